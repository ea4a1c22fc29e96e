"""Every read of the jobs that use Spark: Delta tables whole, in ranges and as streams."""

from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from spark_jobs.lake.ddl import parse_columns
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.times import to_micros

# One micro-batch takes everything: otherwise Delta would cut in the middle of a bronze batch.
_ALL_FILES = str(2**31 - 1)
ALL_TASKS = 100_000  # more than a scan has


def read_table(spark: SparkSession, settings: Settings, table: Table, version: int | None = None) -> DataFrame:
    """A table as it is now, or as it was at a version."""
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return with_columns_of(table, reader.load(str(table.path(settings))))


def with_columns_of(table: Table, rows: DataFrame) -> DataFrame:
    """Rows of a table with all its declared columns; those that an older version lacks are null."""
    lacking = {name: F.lit(None).cast(kind) for name, kind, _ in parse_columns(table.ddl) if name not in rows.columns}
    return rows.withColumns(lacking) if lacking else rows


def between(time: str | Column, start: datetime, end: datetime) -> Column:
    """Whether a time (or day) is in [start, end), in literals that data skipping understands."""
    at = F.col(time) if isinstance(time, str) else time
    return (at >= moment(start)) & (at < moment(end))


def moment(time: datetime) -> Column:
    """A time as a literal that does not depend on the machine's zone."""
    return F.timestamp_micros(F.lit(to_micros(time)))


def stream_table(
    spark: SparkSession, settings: Settings, table: Table, from_version: int | None = None, name: str | None = None
) -> DataFrame:
    """The rows appended to a table, whole commits at a time; commits that remove or change rows are skipped.

    A query without checkpoint starts with the commit `from_version`, which must exist, or with all rows there are. Under `name` the
    checkpoint keeps how far it has come (session.live_conf).
    """
    reader = (spark.readStream.name(name) if name else spark.readStream).format("delta")
    reader = reader.option("maxFilesPerTrigger", _ALL_FILES).option("skipChangeCommits", "true")
    if from_version is not None:
        reader = reader.option("startingVersion", from_version)
    return reader.load(str(table.path(settings)))


def read_changes(spark: SparkSession, settings: Settings, table: Table, after_version: int, upto_version: int) -> DataFrame:
    """The change feed of a table after one of its versions, up to another one: its columns, _change_type and _commit_version."""
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", after_version + 1)
    return reader.option("endingVersion", upto_version).load(str(table.path(settings)))
