"""The charts: one bar a run, oldest on the left, drawn as SVG by the templates. What they total comes first, in words."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle

from include.quality_page.measures import Measures, Run
from include.quality_page.words import NOTHING, age, counted, moment, number, share

FEWEST = 24  # places of a chart: one run is one slim bar, not a wall
COLOURS = ("one", "two", "three")


@dataclass(frozen=True)
class Bar:
    """One bar: what it says, the run that it leads to, and its parts from the ground up: colour, top and height in percent."""

    says: str
    run_id: str | None
    parts: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True)
class Chart:
    """A chart; without bars there is nothing to draw. `most` is what its full height means."""

    title: str
    total: str
    says: str
    keys: tuple[tuple[str, str], ...]
    bars: tuple[Bar, ...]
    most: str
    first: str
    last: str

    @property
    def places(self) -> int:
        """How many bars have room."""
        return max(FEWEST, len(self.bars))


@dataclass(frozen=True)
class Broken:
    """A rule, and how many records of its topic broke it."""

    topic: str
    rule: str
    rows: int
    share: str
    width: float


def draw(measures: Measures) -> list[Chart]:
    """All charts of the page."""
    runs, topics = measures.runs, [topic for topic in ("transactions", "customers", "accounts") if topic in measures.taken]
    topics += sorted(measures.taken.keys() - set(topics))
    taken, held = sum(measures.taken.values()), sum(sum(run.quarantined.values()) for run in runs)
    late, latest = sum(run.late for run in runs), max((run.latest for run in runs), default=0.0)
    transactions = measures.taken["transactions"]
    released = next((run.age_in_release for run in reversed(runs) if run.age_in_release is not None), None)
    return [
        _chart(
            "Volume", counted(taken, "record"), "that silver took from bronze", topics, runs, lambda run: [run.taken[t] for t in topics]
        ),
        _chart(
            "Quarantine",
            f"{counted(held, 'record')}, {share(held, taken)}",
            "that broke a rule",
            topics,
            runs,
            lambda run: [run.quarantined[topic] for topic in topics],
        ),
        _chart(
            "Late transactions",
            f"{number(late)} of {number(transactions)}, {share(late, transactions)}",
            f"came behind the watermark, by {age(latest)} at most" if late else "came behind the watermark",
            ["late"],
            runs,
            lambda run: [run.late],
        ),
        _chart(
            "Freshness",
            age(released) if released is not None else NOTHING,
            "old was the newest transaction when its release came out; replayed data of the past is always old",
            ["when silver had it", "from silver to the release"],
            [run for run in runs if run.age_in_silver is not None],
            lambda run: [run.age_in_silver or 0, max(0, (run.age_in_release or 0) - (run.age_in_silver or 0))],
            age,
        ),
    ]


def rules(measures: Measures) -> list[Broken]:
    """The rules that these runs' records broke, most often broken first, each with its share of the topic's records."""
    most = max(measures.broken.values(), default=0)
    ranked = sorted(measures.broken.items(), key=lambda item: (-item[1], item[0]))
    return [Broken(topic, rule, rows, share(rows, measures.taken[topic]), 100 * rows / most) for (topic, rule), rows in ranked]


def spark(values: Sequence[float], says: Sequence[str], colours: Sequence[str] = (), is_whole: bool = False) -> Chart:
    """A chart of values that change little: unless it `is_whole`, it begins near the least of them and not at zero."""
    least, most = min(values, default=0), max(values, default=0)
    ground = max(0, least - (most - least) * 0.25) if most > least and not is_whole else 0
    heights = [max(2, 100 * (value - ground) / (most - ground or 1)) for value in values]
    parts = zip(says, heights, colours or ["one"] * len(values), strict=True)
    bars = tuple(Bar(text, None, ((colour, round(100 - height, 2), round(height, 2)),)) for text, height, colour in parts)
    return Chart("", "", "", (), bars, number(most), "", "")


def _chart(
    title: str,
    total: str,
    says: str,
    names: Sequence[str],
    runs: Sequence[Run],
    values: Callable[[Run], Sequence[float]],
    words: Callable[[float], str] = number,
) -> Chart:
    """A bar for each run, of as many parts as there are names."""
    most = max((sum(values(run)) for run in runs), default=0)
    bars = tuple(_bar(run, names, values(run), most, words) for run in runs) if most else ()
    times = (f"{moment(runs[0].at)} UTC", f"{moment(runs[-1].at)} UTC") if runs else ("", "")
    if len(runs) == 1:
        times = (times[0], "")
    return Chart(title, total, says, tuple(zip(cycle(COLOURS), names, strict=False)), bars, words(most), *times)


def _bar(run: Run, names: Sequence[str], values: Sequence[float], most: float, words: Callable[[float], str]) -> Bar:
    parts = []
    ground = 100.0
    for colour, value in zip(cycle(COLOURS), values, strict=False):
        height = 100 * value / most if most else 0
        ground -= height
        if value:
            parts.append((colour, round(ground, 2), round(height, 2)))
    return Bar(f"{moment(run.at)} UTC: {_sum(names, values, words)}", run.run_id, tuple(parts))


def _sum(names: Iterable[str], values: Sequence[float], words: Callable[[float], str]) -> str:
    return ", ".join(f"{name} {words(value)}" for name, value in zip(names, values, strict=True))
