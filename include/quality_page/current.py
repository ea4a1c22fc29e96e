"""What readers see, what the gates said last, what the newest release lacks: for the page, and for the metrics. Without Airflow."""

from dataclasses import dataclass
from datetime import datetime

from include.quality_page.reading import Row, Warehouse
from spark_jobs.control.verdicts import Decision, Verdict, with_causes
from spark_jobs.lake.tables import BATCHES, BRONZE, DECISIONS, QUALITY_RESULTS, RELEASES

# Of each table the newest verdict, and the closed ones since the last that passed.
_UNRESOLVED = """select * from (
      select *, row_number() over (partition by "table" order by _judged_at desc) as place,
        max(case when success then _judged_at end) over (partition by "table") as passed_at from t)
    where place = 1 or (not success and (passed_at is null or _judged_at > passed_at))"""
_NEWEST_RELEASE = "select * from t where release_id = (select max(release_id) from t)"
_NEWEST_EVENT = """select max(_newest_event_at) as at from t
    where job = 'silver' and "table" = 'silver.transactions' and last_batch <= $last_batch"""
_BEYOND = "select count(*) as n from t where _batch > $last_batch"
_DECISIONS = "select * from t order by decided_at desc limit $count"
DECISIONS_READ = 1000


@dataclass(frozen=True)
class Release:
    """The newest release: its number and time, its rows by table, its last batch by bronze table, its newest event."""

    number: int
    at: datetime
    rows: dict[str, int]
    last_batches: dict[str, int]
    newest_event_at: datetime | None


def newest_release(warehouse: Warehouse) -> Release | None:
    """The newest release; None where nothing was released yet."""
    rows = warehouse.select(RELEASES, _NEWEST_RELEASE)
    if not rows:
        return None
    last_batches = {row["table"]: int(row["last_batch"]) for row in rows if row["last_batch"] is not None}
    events = warehouse.select(BATCHES, _NEWEST_EVENT, last_batch=last_batches.get("bronze.transactions", 0))
    return Release(
        number=int(rows[0]["release_id"]),
        at=rows[0]["released_at"],
        rows={row["table"]: int(row["rows"] or 0) for row in rows},
        last_batches=last_batches,
        newest_event_at=events[0]["at"] if events else None,
    )


def newest_verdicts(warehouse: Warehouse, decisions: list[Decision]) -> list[Verdict]:
    """The newest verdict on each table, with its decision."""
    return [given[-1] for given in with_causes(warehouse.select(QUALITY_RESULTS, _UNRESOLVED), decisions).values()]


def read_decisions(warehouse: Warehouse) -> list[Decision]:
    """What people decided, newest first."""
    return [Decision(**row) for row in warehouse.select(DECISIONS, _DECISIONS, count=DECISIONS_READ)]


def held_back(warehouse: Warehouse, release: Release | None) -> dict[str, int]:
    """The rows of bronze that the release lacks, by topic."""
    return {table.topic: _count(warehouse.select(table, _BEYOND, last_batch=_last(release, table.name))) for table in BRONZE}


def _last(release: Release | None, table: str) -> int:
    return release.last_batches.get(table, 0) if release else 0


def _count(rows: list[Row]) -> int:
    return int(rows[0]["n"]) if rows else 0
