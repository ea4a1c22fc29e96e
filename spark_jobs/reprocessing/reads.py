"""Tables as re-drives, backfills and erasures read them: one of few rows in memory, which Spark plans for longer than it reads."""

from collections.abc import Callable
from datetime import datetime

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.control import corrections
from spark_jobs.control.matching import find_rows
from spark_jobs.lake import few_rows, ranges, sources
from spark_jobs.lake.kept import in_memory
from spark_jobs.lake.table import Table
from spark_jobs.lake.topic import Topic
from spark_jobs.reprocessing.raw_times import may_lie_within
from spark_jobs.runtime.settings import Settings

_MOST_ROWS = 5_000
_MOST_BYTES = 8 * 2**20  # they go to each task


def read_table(spark: SparkSession, settings: Settings, table: Table) -> DataFrame:
    """A table as it is now."""
    try:
        few = find_rows(settings, table, table.columns, None, most=_MOST_ROWS)
    except (DeltaError, ValueError, OSError):  # Spark can read it, or says why not
        few = None
    return sources.read_table(spark, settings, table) if few is None or few.nbytes > _MOST_BYTES else in_memory(spark, few)


def few_records(settings: Settings, topic: Topic, last_batch: int, start: datetime, end: datetime) -> pa.Table | None:
    """The bronze rows of a topic up to a batch whose time, or that of a correction, may lie in [start, end), and perhaps others.

    None where they do not fit into memory. Where they do, Spark need not parse all the others.
    """
    corrected = [offset for name, _, offset in corrections.newest(settings) if name == topic.name]
    is_wanted = may_lie_within(topic.kind.time, start, end, always=corrected)
    return _find(settings, topic.bronze, f"_batch <= {last_batch}", is_wanted)


def few_within(settings: Settings, table: Table, start: datetime, end: datetime) -> pa.Table | None:
    """The rows of a table whose time lies in [start, end); None where they do not fit into memory."""
    return _find(settings, table, ranges.to_datafusion(ranges.within(table.time_column or "", start, end)))


def _find(settings: Settings, table: Table, where: str, is_wanted: Callable[[pa.Table], pa.Array] | None = None) -> pa.Table | None:
    try:
        return find_rows(settings, table, table.columns, is_wanted, where, most=few_rows.MOST_ROWS)
    except (DeltaError, ValueError, OSError):  # Spark can read it, or says why not
        return None
