"""The smallest stream: rows at a rate, and their number and sum in each window of 5 seconds (include/docs/first-stream.md)."""

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.live.rate_source import FORMAT, RateSource
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.settings import Settings
from spark_jobs.service import run_loop
from spark_jobs.service.query_loop import SupervisedQuery

LEASE = "example"


def set_rate(settings: Settings, rate: int) -> None:
    """How many rows a second the source makes from its next batch on, also of an example that runs already."""
    write_whole(_rate_file(settings), f"{rate}\n")


def start(spark: SparkSession, settings: Settings, take: Callable[[DataFrame, int], None]) -> StreamingQuery:
    """Start the query, which continues where its last run ended; `take` is given each batch of windows, and its number."""
    spark.dataSource.register(RateSource)
    rows = spark.readStream.format(FORMAT).option("rate_file", str(_rate_file(settings))).load()
    sums = (
        rows.withWatermark("event_at", "0 seconds")  # the source is in order: a window is done once a later row comes
        .groupBy(F.window("event_at", "5 seconds"))
        .agg(F.count("*").alias("rows"), F.sum("value").alias("sum"))
        .select("window.start", "window.end", "rows", "sum")
    )
    writer = sums.writeStream.outputMode("append").foreachBatch(take).trigger(processingTime="1 second")
    return writer.option("checkpointLocation", str(settings.checkpoints / "example/checkpoint")).start()


def run(spark: SparkSession, settings: Settings, seconds: int | None) -> None:
    """Print each window once it is done, for some seconds, or until Ctrl-C. A query that fails starts again."""
    end = math.inf if seconds is None else time.monotonic() + seconds
    run_loop.run([_Example(spark, settings)], lambda _: None, lambda: time.monotonic() >= end)


class _Example(SupervisedQuery):
    """The query, which a stop ends after the batch under way."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        super().__init__("example", available_now=False)
        self._spark, self._settings = spark, settings

    def _open(self) -> StreamingQuery:
        return start(self._spark, self._settings, self._guarded(_print))

    def _follow(self, query: StreamingQuery) -> None:
        pass

    def status(self, now: float) -> dict[str, Any]:
        """Its state: there is no heartbeat that shows more."""
        return self._state()


def _print(windows: DataFrame, _: int) -> None:
    times = {name: F.date_format(name, "HH:mm:ss") for name in ("start", "end")}
    for row in windows.orderBy("start").withColumns(times).collect():
        sys.stdout.write(f"{row['start']} to {row['end']}: {row['rows']} rows, sum {row['sum']}\n")
    sys.stdout.flush()


def _rate_file(settings: Settings) -> Path:
    return settings.run_folder / "example/rate"
