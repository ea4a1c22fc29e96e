"""`run backfill --dry-run`: which rows, files and windows a backfill would touch, and what it would change in silver. Writes no table."""

from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from string import Template
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_jobs import control
from spark_jobs.control import rule_sets
from spark_jobs.gold.declaration import GoldTable
from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from spark_jobs.lake.topics import TOPICS
from spark_jobs.reprocessing.backfill import Request
from spark_jobs.reprocessing.silver_range import rebuild_silver, stage
from spark_jobs.runtime import storage
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import print_masked
from spark_jobs.runtime.times import midnight, to_micros
from spark_jobs.runtime.values import Beyond, to_rows

_COUNT = Template("select count(*) as n from t where $time >= $start and $time $before $end")
_MOMENT = Template("arrow_cast('$time', 'Timestamp(Microsecond, Some(\"UTC\"))')")


def run(settings: Settings, request: Request, start_session: Callable[[], SparkSession]) -> None:
    """Print, for each table that the request names, its rows in the range and the files that hold them; of gold's windows, how many.

    For silver also how many rows differ from what bronze says by today's rules. Raises LedgerError before the first silver run.
    """
    missing = [table.name for table in (*tables.SILVER, *tables.GOLD) if not table.exists(settings)]
    if missing:
        raise LedgerError(f"nothing to rebuild: found no {', '.join(missing)}, expected what silver and gold write: run them first")
    print_masked(f"dry run: backfill of {request.start.isoformat()} to {request.end.isoformat()}; nothing is written")
    changes = _silver_changes(settings, request, start_session())
    for table in (*tables.SILVER, *tables.GOLD):
        parts = _described(settings, table, request) if request.asks_for(table) else []
        if table in changes:
            parts.append(f"{changes[table]} rows would change")
        if parts:
            print_masked(f"  {table.name}: {', '.join(parts)}")


def _silver_changes(settings: Settings, request: Request, spark: SparkSession) -> Mapping[Table, int]:
    """The rows that would change, by table; tells on the way what bronze has."""
    changed: dict[Table, int] = {}
    folder = settings.checkpoints / "backfill-dry-run"
    try:
        for topic in (topic for topic in TOPICS if request.asks_for(topic.silver)):
            staged = stage(spark, settings, topic, rule_sets.present(settings, topic.name), request.start, request.end, folder / topic.name)
            rebuilt = rebuild_silver(spark, settings, staged, request.start, request.end, "dry run", None)
            print_masked(f"  {topic.bronze.name}: {rebuilt.rows} rows to judge, on {len(staged.days(spark))} days")
            changed |= dict.fromkeys(topic.released, 0) | rebuilt.changed
    finally:
        storage.remove(folder)
    return {table: count for table, count in changed.items() if table not in tables.SILVER_INDEXES}


def _described(settings: Settings, table: Table, request: Request) -> list[str]:
    """Rows (or windows) of a table in the range, and files that may hold some."""
    if table.time_column is None:
        return []
    delta = table.open(settings)
    # A sliding window that starts a day before the range still holds a part of it.
    of_windows = isinstance(table, GoldTable) and table.of_windows
    start = request.start - timedelta(days=1) if of_windows and request.start.year > 1 else request.start
    if table.time_column == "day":  # compared with days: as times they would have to fit 64 bits of nanoseconds
        start = start.replace(hour=0, minute=0, second=0, microsecond=0)
        last = request.end - timedelta(microseconds=1)
        words = {"start": f"date '{start.date()}'", "end": f"date '{last.date()}'", "before": "<="}
    else:
        words = {
            "start": _MOMENT.substitute(time=start.isoformat()),
            "end": _MOMENT.substitute(time=request.end.isoformat()),
            "before": "<",
        }
    rows = control.value(delta, _COUNT.substitute(words, time=table.time_column))
    actions = pa.table(delta.get_add_actions(flatten=True))
    bounds = [name for name in (f"min.{table.time_column}", f"max.{table.time_column}") if name in actions.column_names]
    files = to_rows(actions.select(["path", *bounds]))
    touched = sum(_overlaps(file, table.time_column, start, request.end) for file in files)
    return [f"{rows} {'windows' if of_windows else 'rows'} in {touched} of {len(files)} files"]


def _overlaps(file: Mapping[str, Any], time: str, start: datetime, end: datetime) -> bool:
    """Whether a file may hold rows of a range, by its statistics; one without statistics may."""
    least, most = file.get(f"min.{time}"), file.get(f"max.{time}")
    if least is None or most is None:
        return True
    return _micros(least) < to_micros(end) and _micros(most) >= to_micros(start)


def _micros(value: date | Beyond) -> int:
    if isinstance(value, Beyond):
        return value.micros
    return to_micros(value if isinstance(value, datetime) else midnight(value))
