"""A second opinion in plain Python: what silver must make of a dimension's messages. Shares no code with the jobs."""

from collections.abc import Iterable
from dataclasses import dataclass

Arrival = tuple[int, int]  # batch, offset


@dataclass(frozen=True)
class Message:
    """One valid message of a dimension: what it says from when on, or (content None) that the key is gone from then on."""

    key: str
    at: int
    content: tuple[str | None, int | None] | None
    arrival: Arrival


@dataclass(frozen=True)
class Version:
    """One version of a key: valid from `start` to before `end` (None: still open)."""

    key: str
    content: tuple[str | None, int | None] | None
    start: int
    end: int | None
    arrival: Arrival


@dataclass(frozen=True)
class History:
    """The versions of one key, and the arrivals of the messages that made none."""

    versions: tuple[Version, ...]
    superseded: frozenset[Arrival]
    no_change: frozenset[Arrival]


def fold(messages: Iterable[Message]) -> History:
    """The history of one key: messages applied one by one in the order of their times, of one time the last to arrive."""
    in_order = sorted(messages, key=lambda message: (message.at, message.arrival))
    superseded, no_change, kept = set(), set(), []
    state = None  # a key that was never written is as one that was deleted
    for place, message in enumerate(in_order):
        if place + 1 < len(in_order) and in_order[place + 1].at == message.at:
            superseded.add(message.arrival)
        elif message.content == state:
            no_change.add(message.arrival)
        else:
            state = message.content
            kept.append(message)
    ends = [*(message.at for message in kept[1:]), None]
    versions = tuple(
        Version(message.key, message.content, message.at, end, message.arrival) for message, end in zip(kept, ends, strict=False)
    )
    return History(versions, frozenset(superseded), frozenset(no_change))
