"""What batches cost, as the heartbeat tells it: every batch of real queries once, whatever the looks at them miss."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.service.costs import Costs

pytestmark = pytest.mark.spark

ROWS = 10


def test_every_batch_is_counted_once_with_its_phases_and_its_state(spark: SparkSession, tmp_path: Path) -> None:
    taken: list[int] = []

    def take(rows: DataFrame, number: int) -> None:
        rows.count()
        taken.append(number)

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load().groupBy("value").count()
    writer = rows.writeStream.outputMode("update").option("checkpointLocation", str(tmp_path)).trigger(processingTime="100 milliseconds")
    query, costs = writer.foreachBatch(take).start(), Costs()
    try:
        look_until(query, costs, lambda: costs.batches >= 2)
        look_until(query, costs, lambda: costs.batches >= 3)
        deadline = time.monotonic() + 60
        while len(taken) < 7:  # batches that nobody looks at
            assert time.monotonic() < deadline, query.exception()
            time.sleep(0.1)
    finally:
        query.stop()
    last = query.lastProgress
    assert last is not None
    costs.follow(query, last)
    costs.follow(query, last)
    found = costs.facts()["costs"]
    ended = last.batchId + 1
    assert ended >= 6
    assert (found["batches"], found["rows"], found["state_rows"]) == (ended, ended * ROWS, ended * ROWS)
    assert found["state_bytes"] > 0
    assert {"addBatch", "walCommit", "queryPlanning"} <= found["seconds"].keys()
    assert "triggerExecution" not in found["seconds"]
    assert 0 < found["batch_seconds"] < 60
    assert found["processing_rate"] > 0


def test_rows_behind_the_watermark_are_counted_also_after_a_report_without_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    def arrive(number: int, day: int) -> None:
        pq.write_table(pa.table({"at": pa.array([datetime(2024, 1, day, tzinfo=UTC)], pa.timestamp("us", "UTC"))}), tmp_path / "draft")
        (tmp_path / "draft").rename(folder / f"{number}.parquet")
        counted, idle = costs.batches, time.monotonic() + 0.5
        look_until(query, costs, lambda: costs.batches > counted and time.monotonic() > idle)

    (folder := tmp_path / "rows").mkdir()
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "100")
    rows = spark.readStream.schema("at timestamp").parquet(str(folder)).withWatermark("at", "1 hour").groupBy("at").count()
    writer = rows.writeStream.outputMode("update").option("checkpointLocation", str(tmp_path / "c")).format("noop")
    query, costs = writer.trigger(processingTime="100 milliseconds").start(), Costs()
    try:
        for number, day in enumerate([1, 20, 20, 2, 3]):  # the last two are late
            arrive(number, day)
        look_until(query, costs, lambda: costs.dropped >= 2)
    finally:
        query.stop()
        spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
    assert costs.dropped == 2


def test_progress_that_cannot_be_read_is_left_out_and_fails_nothing(caplog: pytest.LogCaptureFixture) -> None:
    costs = Costs()
    nothing: Any = None
    costs.follow(nothing, nothing)
    assert costs.facts() == {}
    assert [message.partition(":")[0] for message in caplog.messages] == ["the costs of a batch are not counted"]


def look_until(query: Any, costs: Costs, is_enough: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_enough():
        assert time.monotonic() < deadline, query.exception()
        if query.lastProgress is not None:
            costs.follow(query, query.lastProgress)
        time.sleep(0.02)
