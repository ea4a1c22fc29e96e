"""Tables as re-drives, backfills and erasures read them: one of few rows in memory, which Spark plans for longer than it reads."""

from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.control.matching import find_rows
from spark_jobs.lake import sources
from spark_jobs.lake.kept import in_memory
from spark_jobs.lake.table import Table
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
