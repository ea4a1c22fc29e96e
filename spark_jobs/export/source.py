"""The rows of a release's table, by their times."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from spark_jobs.export.days import Range
from spark_jobs.lake.sources import between, with_columns_of
from spark_jobs.lake.tables import BY_NAME
from spark_jobs.releases import archive
from spark_jobs.releases.releases import Release
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings

_COORDINATES = ("_topic", "_partition", "_offset")
TIME = "_time_of_export"  # not among the columns of any table, and not in the files


@dataclass(frozen=True)
class Source:
    """Rows to export, with their time in a column TIME; `order` is how they lie in a file, `most_bytes` what they take at most."""

    rows: DataFrame
    order: tuple[str, ...]
    origin: dict[str, Any]  # where they come from, for `_SUCCESS`
    most_bytes: int


def release_rows(spark: SparkSession, settings: Settings, release: Release, name: str, ranges: Iterable[Range]) -> Source:
    """The rows of a table as the release names it, with their time in one of the ranges; of bronze no later batches than it has.

    Their time is the table's `time_column`. Duplicates and quarantine have none: theirs is the `_timestamp` of their bronze record.
    Raises SettingsError when the release's version can no longer be read.
    """
    table, (rows, size) = BY_NAME[name], _read(spark, settings, release, name)
    origin = {"table": name, "release": release.release_id, "version": release.versions[name]}
    if table.layer == "bronze":
        rows = rows.where(F.col("_batch") <= release.last_batches[name])
    column = table.time_column
    if column is None:
        bronze, _ = _read(spark, settings, release, f"bronze.{table.topic}")
        column = "_timestamp"
        rows = rows.join(bronze.select(*_COORDINATES, column), on=list(_COORDINATES), how="left")
    at = F.col(column).cast("timestamp")
    return Source(rows.where(in_ranges(at, ranges)).select(*table.columns, at.alias(TIME)), (TIME, *table.keys), origin, size)


def in_ranges(at: Column, ranges: Iterable[Range]) -> Column:
    """Whether a time lies in one of the ranges."""
    found = F.lit(False)
    for start, end in ranges:
        found = found | between(at, start, end)
    return found


def _read(spark: SparkSession, settings: Settings, release: Release, name: str) -> tuple[DataFrame, int]:
    """A table at the release's version, and the bytes of its files."""
    try:
        table = archive.open_table(settings, release, name)
    except LedgerError as error:
        raise SettingsError(str(error)) from None
    size = sum(pa.table(table.get_add_actions()).column("size_bytes").to_pylist())
    rows = spark.read.format("delta").option("versionAsOf", table.version()).load(table.table_uri)
    return with_columns_of(BY_NAME[name], rows), size
