"""The language of the commands: how one is written, where it dies, where it gives its turn away."""

from dataclasses import dataclass

from tests.spark.orders.stage import Point


@dataclass(frozen=True)
class Call:
    """One command as it is written: `gold ! 7` dies at its seventh point, `silver @ holding silver.accounts` gives its turn away there."""

    words: tuple[str, ...]
    dies_at: Point | None = None
    yields_at: Point | None = None


def parse(line: str) -> list[Call]:
    """One command, or two at once (`one @ point & other`)."""
    return [_parse(text) for text in line.split(" & ")]


def _parse(text: str) -> Call:
    text, _, yields_at = text.partition(" @ ")
    text, _, dies_at = text.partition(" ! ")
    return Call(tuple(text.split()), _point(dies_at), _point(yields_at))


def _point(text: str) -> Point | None:
    return int(text) if text.isdigit() else text.strip() or None
