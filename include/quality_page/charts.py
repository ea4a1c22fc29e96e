"""The charts: one bar a run, oldest on the left, drawn as SVG by the templates. What they total comes first, in words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

from include.quality_page.measures import Measures, Run
from include.quality_page.words import NOTHING, age, counted, moment, number, share

FEWEST = 24  # places of a chart: one run is one slim bar, not a wall
COLOURS = ("one", "two", "three")
Counts = Callable[[Run], Sequence[int]]


@dataclass(frozen=True)
class Bar:
    """One bar: what it says, the run that it leads to, and its parts from the ground up: colour, top and height in percent."""

    says: str
    run_id: str | None
    parts: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True)
class Chart:
    """A chart; without bars there is nothing to draw. `most` is what its full height means.

    `keys` are its parts: colour, name, and what they come to over all bars, as count and share.
    """

    title: str
    total: str
    says: str
    keys: tuple[tuple[str, str, str], ...]
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
            "Volume",
            counted(taken, "record"),
            "that silver took from bronze",
            topics,
            runs,
            lambda run: [run.taken[topic] for topic in topics],
            lambda run: [run.taken.total() for _ in topics],
        ),
        _chart(
            "Quarantine",
            f"{counted(held, 'record')}, {share(held, taken)}",
            "that broke a rule",
            topics,
            runs,
            lambda run: [run.quarantined[topic] for topic in topics],
            lambda run: [run.taken[topic] for topic in topics],
        ),
        _chart(
            "Late transactions",
            f"{number(late)} of {number(transactions)}, {share(late, transactions)}",
            f"came behind the watermark, by {age(latest)} at most" if late else "came behind the watermark",
            ["late"],
            runs,
            lambda run: [run.late],
            lambda run: [run.taken["transactions"]],
        ),
        _ages(released, [run for run in runs if run.age_in_silver is not None]),
    ]


def rules(measures: Measures) -> list[Broken]:
    """The rules that these runs' records broke, most often broken first, each with its share of the topic's records."""
    most = max(measures.broken.values(), default=0)
    ranked = sorted(measures.broken.items(), key=lambda item: (-item[1], item[0]))
    return [Broken(topic, rule, rows, share(rows, measures.taken[topic]), 100 * rows / most) for (topic, rule), rows in ranked]


def spark(values: Sequence[float], says: Sequence[str], colours: Sequence[str] = ()) -> Chart:
    """A chart of single values. It begins at zero: bars that do not would show 1 % more as five times as much."""
    most = max(values, default=0)
    heights = [max(2, 100 * value / (most or 1)) for value in values]
    parts = zip(says, heights, colours or ["one"] * len(values), strict=True)
    bars = tuple(Bar(text, None, ((colour, round(100 - height, 2), round(height, 2)),)) for text, height, colour in parts)
    return Chart("", "", "", (), bars, number(most), "", "")


def _chart(title: str, total: str, says: str, names: Sequence[str], runs: Sequence[Run], values: Counts, wholes: Counts) -> Chart:
    """A bar for each run, of as many parts as there are names; `wholes` are what each part is a share of."""
    sums = [sum(each) for each in zip(*map(values, runs), strict=True)]
    of = [sum(each) for each in zip(*map(wholes, runs), strict=True)]
    keys = [f"{number(part)}, {share(part, whole)}" for part, whole in zip(sums, of, strict=True)]
    texts = [f"{moment(run.at)} UTC: {_counts(names, values(run), wholes(run))}" for run in runs]
    return _drawn(title, total, says, names, keys, runs, values, texts)


def _ages(released: float | None, runs: Sequence[Run]) -> Chart:
    """A bar for each run: how old the newest transaction was in silver, and how much older in the release."""
    names = ("until silver had it", "from silver to the release")

    def values(run: Run) -> list[float]:
        if run.age_in_release is None:  # no release ends with it
            return [run.age_in_silver or 0]
        return [run.age_in_silver or 0, max(0, run.age_in_release - (run.age_in_silver or 0))]

    texts = [
        f"{moment(run.at)} UTC: {', '.join(f'{name} {age(each)}' for name, each in zip(names, values(run), strict=False))}" for run in runs
    ]
    total = age(released) if released is not None else NOTHING
    says = "from the newest transaction, by its event time, to its release; replayed data of the past is always old"
    return _drawn("Freshness", total, says, names, ("", ""), runs, values, texts, age)


def _drawn(
    title: str,
    total: str,
    says: str,
    names: Sequence[str],
    keys: Sequence[str],
    runs: Sequence[Run],
    values: Callable[[Run], Sequence[float]],
    texts: Sequence[str],
    words: Callable[[float], str] = number,
) -> Chart:
    most = max((sum(values(run)) for run in runs), default=0)
    bars = tuple(Bar(text, run.run_id, _parts(values(run), most)) for run, text in zip(runs, texts, strict=True)) if most else ()
    first, last = (f"{moment(runs[0].at)} UTC", f"{moment(runs[-1].at)} UTC") if runs else ("", "")
    colours = tuple(zip(cycle(COLOURS), names, keys, strict=False)) if bars else ()
    return Chart(title, total, says, colours, bars, words(most), first, last if len(runs) > 1 else "")


def _parts(values: Sequence[float], most: float) -> tuple[tuple[str, float, float], ...]:
    """The parts of a bar, from the ground up."""
    parts = []
    ground = 100.0
    for colour, value in zip(cycle(COLOURS), values, strict=False):
        height = 100 * value / most if most else 0
        ground -= height
        if value:
            parts.append((colour, round(ground, 2), round(height, 2)))
    return tuple(parts)


def _counts(names: Sequence[str], values: Sequence[int], wholes: Sequence[int]) -> str:
    """The sum first, then each part with its share: `3 of 300, 1 %: transactions 1, 0.5 %; customers 2, 2 %`."""
    parts, is_volume = sum(values), len(set(wholes)) == 1 and sum(values) == wholes[0]
    whole = wholes[0] if len(names) == 1 or is_volume else sum(wholes)
    total = counted(parts, "record") if is_volume else f"{number(parts)} of {number(whole)}, {share(parts, whole)}"
    each = [f"{name} {number(value)}, {share(value, of)}" for name, value, of in zip(names, values, wholes, strict=True)]
    return f"{total}: {'; '.join(each)}" if len(names) > 1 else total
