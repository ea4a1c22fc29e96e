"""What the charts show: points in time, of the last runs of silver."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from include.quality_page import quarantine
from include.quality_page.reading import Row, Warehouse
from spark_jobs.lake.tables import BATCHES, RELEASES, TRANSACTIONS_LATE

RUNS = 200  # of each table; older ones are not drawn
MOST_LINES = 8

_RUNS = """select * from (select *, row_number() over (partition by "table" order by last_batch desc) as place from t where job = 'silver')
    where place <= $count order by last_batch"""
_BROKEN = """select _batch, rule, count(*) as n from (select _batch, unnest(broken_rules) as rule from t where _batch >= $first)
    group by _batch, rule"""
_LATE = "select _batch, count(*) as n, max(late_by_seconds) as worst from t where _batch >= $first group by _batch"
_RELEASED = """select released_at, last_batch from t where "table" = 'bronze.transactions' order by release_id desc limit $count"""


@dataclass(frozen=True)
class Line:
    """One line of a chart: a name, and values at times."""

    name: str
    times: list[datetime]
    values: list[float]


@dataclass(frozen=True)
class Measures:
    """The lines of every chart: rows a run, percent of them, seconds, seconds."""

    volume: list[Line]
    quarantine_share: list[Line]
    late_share: list[Line]
    lateness: list[Line]
    freshness: list[Line]


def measure(warehouse: Warehouse) -> Measures:
    """Read what the last runs left behind; lines without points where there is nothing yet."""
    runs = _runs(warehouse)
    transactions = runs.get("transactions", [])
    late = _late(warehouse, transactions)
    late_share = [_percent(rows, run["input"]) for run, (rows, _) in zip(transactions, late, strict=True)]
    return Measures(
        volume=[_line(topic, each, [run["input"] for run in each]) for topic, each in runs.items()],
        quarantine_share=_quarantine_shares(warehouse, runs),
        late_share=[_line("late rows", transactions, late_share)],
        lateness=[_line("largest lateness", transactions, [worst for _, worst in late])],
        freshness=_freshness(warehouse, transactions),
    )


def _runs(warehouse: Warehouse) -> dict[str, list[Row]]:
    """The last runs of silver by topic, in the order of their batches."""
    found: dict[str, list[Row]] = {}
    for row in warehouse.select(BATCHES, _RUNS, count=RUNS):
        found.setdefault(row["table"].removeprefix("silver."), []).append(row)
    return dict(sorted(found.items(), reverse=True))  # transactions first


def _quarantine_shares(warehouse: Warehouse, runs: dict[str, list[Row]]) -> list[Line]:
    """Rows that broke a rule, in percent of the run's rows, for the rules that were broken most."""
    shares: dict[str, list[float]] = {}
    for table in quarantine.TABLES.values():
        topic = table.topic
        of_topic = runs.get(topic, [])
        if of_topic:
            for row in warehouse.select(table, _BROKEN, first=of_topic[0]["first_batch"]):
                place = _place(of_topic, row["_batch"])
                if place is not None:
                    line = shares.setdefault(f"{topic} {row['rule']}", [0.0] * len(of_topic))
                    line[place] += _percent(row["n"], of_topic[place]["input"])
    worst = sorted(shares, key=lambda name: (-sum(shares[name]), name))[:MOST_LINES]
    return [_line(name, runs[name.split(" ")[0]], shares[name]) for name in worst]


def _late(warehouse: Warehouse, runs: list[Row]) -> list[tuple[int, float]]:
    """For each run, how many rows were late and by how much at most, in seconds."""
    late = [(0, 0.0)] * len(runs)
    if runs:
        for row in warehouse.select(TRANSACTIONS_LATE, _LATE, first=runs[0]["first_batch"]):
            place = _place(runs, row["_batch"])
            if place is not None:
                late[place] = (late[place][0] + row["n"], max(late[place][1], float(row["worst"] or 0)))
    return late


def _freshness(warehouse: Warehouse, runs: list[Row]) -> list[Line]:
    """The age of the newest transaction when silver had it, and when it was released, in seconds."""
    known = [run for run in runs if run["_newest_event_at"] is not None and run["finished_at"] is not None]
    ages = [(run["finished_at"] - run["_newest_event_at"]).total_seconds() for run in known]
    lines = [_line("in silver", known, ages)]
    released: list[tuple[datetime, float]] = []
    for release in reversed(warehouse.select(RELEASES, _RELEASED, count=RUNS) if known else []):
        place = _place(known, release["last_batch"] or 0)
        if place is not None:
            age = release["released_at"] - known[place]["_newest_event_at"]
            released.append((release["released_at"], age.total_seconds()))
    return [*lines, Line("in a release", [at for at, _ in released], [age for _, age in released])]


def _place(runs: list[Row], batch: int) -> int | None:
    """Which of the runs took a batch."""
    place = bisect_left(runs, batch, key=lambda run: run["last_batch"])
    return place if place < len(runs) and runs[place]["first_batch"] <= batch else None


def _percent(part: int, whole: int | None) -> float:
    return 100 * part / whole if whole else 0.0


def _line(name: str, runs: Iterable[Row], values: Iterable[float]) -> Line:
    points = [(run["finished_at"], value) for run, value in zip(runs, values, strict=True) if run["finished_at"] is not None]
    return Line(name, [at for at, _ in points], [value for _, value in points])
