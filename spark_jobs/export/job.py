"""The export: stage the rows as Parquet in a hidden folder of the target, then publish day by day."""

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs.export import postgres, source
from spark_jobs.export.bucket import Bucket
from spark_jobs.export.days import Day, Part, Range, joined, whole, within
from spark_jobs.export.folder import Folder
from spark_jobs.export.request import Request
from spark_jobs.export.source import TIME, Source
from spark_jobs.lake.sinks import configured
from spark_jobs.releases.releases import Release
from spark_jobs.runtime import progress
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.storage import s3_access
from spark_jobs.runtime.times import to_text

log = logging.getLogger(__name__)

Target = Folder | Bucket

_DAY = "_day_of_export"
_SAMPLE = 50_000  # rows by which the size of a row in Parquet is judged
_PARQUET = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS", "spark.sql.parquet.compression.codec": "zstd"}
# A task's files are copied once: its second try writes the same names, and they are read only after the job has succeeded.
_ON_S3 = {"mapreduce.fileoutputcommitter.algorithm.version": "2"}


def run(spark: SparkSession, settings: Settings, request: Request, run_id: str, release: Release | None) -> int:
    """Export; returns the number of rows. A day of the target is replaced whole, or stays as it was.

    Rows outside [start, end) that were exported into the first or last day stay in it: they are read again, of the same release.
    Raises LedgerError when the target cannot be used or holds something else.
    """
    with configured(spark, _PARQUET | (_ON_S3 | s3_access() if request.bucket else {})):
        target = open_target(spark, request, run_id)
        target.begin()
        try:
            before = target.days()
            ranges = widened(request, before)
            with _rows(spark, settings, request, release, ranges) as found, progress.phase("writing files"):
                kill_point("before staging an export")
                staged = _stage(target, found, request)
            kill_point("after staging an export")
            with progress.phase("publishing days"):
                return _publish(target, request, found, ranges, staged, before)
        finally:
            target.end()


@contextmanager
def _rows(spark: SparkSession, settings: Settings, request: Request, release: Release | None, ranges: Iterable[Range]) -> Iterator[Source]:
    """What is to be exported; from Postgres, for as long as its snapshot is open."""
    if release:
        yield source.release_rows(spark, settings, release, request.name, ranges)
    else:
        with postgres.snapshot(settings) as seen:
            yield postgres.postgres_rows(spark, seen, request, ranges)


def open_target(spark: SparkSession, request: Request, run_id: str) -> Target:
    """The folder or bucket of a request."""
    if request.bucket:
        return Bucket(spark, request.folder, request.name, run_id)
    return Folder(request.folder, request.name, run_id)


def widened(request: Request, before: dict[date, Day]) -> tuple[Range, ...]:
    """The range of the request, and the times that its first and last day cover already."""
    asked = (request.start, request.end)
    edges = (day for day in before.values() if within([asked], day.day) not in ((), (whole(day.day),)))  # asked for in part
    return joined([asked, *(each for day in edges for each in day.ranges)])


def _stage(target: Target, found: Source, request: Request) -> dict[date, list[Part]]:
    """Write all rows, by days and there in their order."""
    rows = found.rows.withColumn(_DAY, F.to_date(TIME))
    most = _rows_a_file(target, rows, request) if found.most_bytes > request.file_mb << 20 else 0
    rows = rows.repartition(_DAY).sortWithinPartitions(_DAY, *found.order).drop(TIME)
    days: dict[date, list[Part]] = {}
    for part in _write(target, rows, "rows", most):
        days.setdefault(date.fromisoformat(part.path.split("/")[1].partition("=")[2]), []).append(part)
    return days


def _rows_a_file(target: Target, rows: DataFrame, request: Request) -> int:
    """How many rows take about as many bytes as a file may have; 0 where there are none."""
    parts = _write(target, rows.drop(TIME).withColumn(_DAY, F.lit(0)).limit(_SAMPLE).coalesce(1), "sample", 0)
    count, size = sum(part.rows for part in parts), sum(part.bytes for part in parts)
    return max(1, (request.file_mb << 20) * count // size) if count else 0


def _write(target: Target, rows: DataFrame, name: str, most: int) -> list[Part]:
    """Write Parquet below the staging folder, of at most so many rows a file if that is not 0; returns the files."""
    place = f"{target.staging}/{name}"
    rows.write.partitionBy(_DAY).option("maxRecordsPerFile", most).parquet(place)
    written = rows.sparkSession.read.schema(rows.schema).parquet(place).groupBy("_metadata.file_path", "_metadata.file_size").count()
    return [Part(unquote(path).partition("/staged/")[2], count, size) for path, size, count in written.collect()]


def _publish(
    target: Target, request: Request, found: Source, ranges: tuple[Range, ...], staged: dict[date, list[Part]], before: dict[date, Day]
) -> int:
    """Replace every day that has rows, remove those that no longer have any; returns the number of rows."""
    origin = found.origin | {"exported_at": to_text(datetime.now(UTC).replace(microsecond=0))}

    def publish(day: date) -> Day:
        return target.publish(Day(day, origin, within(ranges, day), ()), staged[day], before.get(day))

    with ThreadPoolExecutor(target.at_once) as pool:
        futures = [pool.submit(publish, day) for day in sorted(staged)]
        try:
            done = [future.result() for future in futures]
        finally:
            pool.shutdown(cancel_futures=True)
    gone = [day for day in before if day not in staged and within(ranges, day)]
    for day in sorted(gone):
        target.remove(before[day])
    rows, files = sum(day.rows for day in done), [file for day in done for file in day.files]
    size = sum(file.bytes for file in files) / (1 << 20)
    log.info("%s: %d rows, %d days, %d files, %.1f MB in %s", request.name, rows, len(done), len(files), size, request.folder)
    if gone:
        log.info("%s: %d days no longer have rows and were removed", request.name, len(gone))
    return rows
