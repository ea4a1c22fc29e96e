"""What the charts show, of the last runs of silver: rows, rows that broke a rule, late rows, ages."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from include.quality_page import quarantine
from include.quality_page.reading import Row, Warehouse
from spark_jobs.lake.tables import BATCHES, RELEASES, TRANSACTIONS_LATE, Table

RUNS = 100  # older ones are not drawn

_RUNS = """select * from t where job = 'silver' and run_id in (
      select run_id from t where job = 'silver' and finished_at is not null group by run_id order by max(finished_at) desc limit $count)
    order by last_batch"""
_BROKEN = """select _batch, rule, count(*) as n from (select _batch, unnest(broken_rules) as rule from t where _batch >= $first)
    group by _batch, rule"""
_LATE = "select _batch, count(*) as n, max(late_by_seconds) as worst from t where _batch >= $first group by _batch"
_RELEASED = """select released_at, last_batch from t where "table" = 'bronze.transactions' order by release_id desc limit $count"""


@dataclass
class Run:
    """What one run of silver did, by topic: records in, records to quarantine; late transactions; ages in seconds, None if unknown."""

    run_id: str
    at: datetime
    taken: Counter[str] = field(default_factory=Counter)
    quarantined: Counter[str] = field(default_factory=Counter)
    late: int = 0
    latest: float = 0.0
    newest_event_at: datetime | None = None
    age_in_silver: float | None = None
    age_in_release: float | None = None


@dataclass(frozen=True)
class Measures:
    """The last runs, oldest first, the first batch of theirs by topic, and how many of their records broke each (topic, rule)."""

    runs: list[Run]
    broken: Counter[tuple[str, str]]
    first_batches: dict[str, int] = field(default_factory=dict)

    @property
    def taken(self) -> Counter[str]:
        """The records that all of these runs took, by topic."""
        return sum((run.taken for run in self.runs), Counter[str]())


def measure(warehouse: Warehouse) -> Measures:
    """Read what the last runs left behind; no runs where there were none."""
    rows = warehouse.select(BATCHES, _RUNS, count=RUNS)
    runs: dict[str, Run] = {}
    of_topic: dict[str, list[Row]] = {}
    for row in rows:
        topic = row["table"].removeprefix("silver.")
        of_topic.setdefault(topic, []).append(row)
        run = runs.setdefault(row["run_id"], Run(row["run_id"], row["finished_at"]))
        run.at = max(run.at, row["finished_at"] or run.at)
        run.taken[topic] += row["input"] or 0
        run.quarantined[topic] += row["quarantined"] or 0
        if topic == "transactions":
            run.newest_event_at = row["_newest_event_at"]
    first_batches = {topic: int(found[0]["first_batch"] or 0) for topic, found in of_topic.items()}
    measures = Measures(sorted(runs.values(), key=lambda run: run.at), Counter(), first_batches)
    for table in quarantine.TABLES.values():
        for broken in _since(warehouse, table, _BROKEN, of_topic.get(table.topic, [])):
            measures.broken[table.topic, broken["rule"]] += broken["n"]
    transactions = of_topic.get("transactions", [])
    for late in _since(warehouse, TRANSACTIONS_LATE, _LATE, transactions):
        if found := _run_of(transactions, late["_batch"]):
            run = runs[found["run_id"]]
            run.late, run.latest = run.late + late["n"], max(run.latest, float(late["worst"] or 0))
    _add_ages(warehouse, runs, transactions)
    return measures


def _since(warehouse: Warehouse, table: Table, sql: str, runs: list[Row]) -> list[Row]:
    """What SQL says of a table, of the batches of some runs on."""
    return warehouse.select(table, sql, first=runs[0]["first_batch"]) if runs else []


def _add_ages(warehouse: Warehouse, runs: dict[str, Run], rows: list[Row]) -> None:
    """How old the newest transaction was when silver had it, and when it was first released."""
    for run in runs.values():
        if run.newest_event_at is not None:
            run.age_in_silver = (run.at - run.newest_event_at).total_seconds()
    for release in warehouse.select(RELEASES, _RELEASED, count=RUNS) if rows else []:
        found = _run_of(rows, release["last_batch"] or 0)
        if found and (run := runs[found["run_id"]]).newest_event_at is not None:
            run.age_in_release = (release["released_at"] - run.newest_event_at).total_seconds()


def _run_of(rows: list[Row], batch: int) -> Row | None:
    """Which of the runs took a batch."""
    place = bisect_left(rows, batch, key=lambda row: row["last_batch"])
    return rows[place] if place < len(rows) and rows[place]["first_batch"] <= batch else None
