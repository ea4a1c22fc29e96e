"""A query of a long-running application that is held back: no batch begins, and neither Spark nor the application calls it a failure."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.service.query_loop import SupervisedQuery

pytestmark = pytest.mark.spark


class Counting(SupervisedQuery):
    """Takes note of the numbers of its batches, of which one is always due."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__("counting", available_now=False)
        self.begun: list[int] = []
        self.taken: list[int] = []
        self.queries: list[StreamingQuery] = []
        self.is_long = False
        self._spark, self._folder = spark, folder

    @property
    def waits(self) -> bool:
        return self._is_waiting

    def change(self) -> None:
        self._is_changing = True

    def _open(self) -> StreamingQuery:
        def take(rows: DataFrame, number: int) -> None:
            self.begun.append(number)
            if self.is_long:
                work_long(rows.sparkSession)
            self.taken.append(number)

        rows = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        writer = rows.writeStream.option("checkpointLocation", str(self._folder)).trigger(processingTime="100 milliseconds")
        self.queries.append(writer.foreachBatch(self._guarded(take)).start())
        return self.queries[-1]

    def _follow(self, query: StreamingQuery) -> None:
        pass

    def status(self, now: float) -> dict[str, Any]:
        return self._state()


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Iterator[Counting]:
    counting = Counting(spark, tmp_path / "checkpoint")
    yield counting
    counting.stop()


def test_a_batch_that_came_behind_the_hold_is_neither_taken_nor_a_failure(query: Counting) -> None:
    with ThreadPoolExecutor(1) as pool:
        poll_until(query, pool, lambda: len(query.taken) >= 2)
        query.pause()
        poll_until(query, pool, lambda: query.is_drained and query.waits)
        query.stop()
    assert_stopped(query.queries[0])
    assert query.error is None
    assert query.begun == query.taken == list(range(len(query.taken)))


def test_a_batch_that_takes_too_long_is_cut_short_and_the_query_ends(query: Counting) -> None:
    query.is_long = True
    with ThreadPoolExecutor(1) as pool:
        poll_until(query, pool, lambda: len(query.begun) == 1)
        time.sleep(1)
        query.pause()
        stopping = pool.submit(query.stop)
        poll_until(query, pool, stopping.done)
    assert_stopped(query.queries[0])
    assert query.taken == []


def test_a_query_starts_anew_with_other_options_without_a_failure(query: Counting) -> None:
    with ThreadPoolExecutor(1) as pool:
        poll_until(query, pool, lambda: len(query.taken) >= 2)
        query.change()
        poll_until(query, pool, lambda: len(query.queries) == 2 and len(query.taken) >= 5)
        assert query.status(0) == {"state": "running"}
        query.stop()
    assert len(query.queries) == 2
    for one in query.queries:
        assert_stopped(one)
    assert query.taken == list(range(len(query.taken)))


def assert_stopped(query: StreamingQuery) -> None:
    """As Spark sees it: neither failed, nor died of a stack overflow, which leaves no exception behind."""
    assert (query.exception(), query.status["message"]) == (None, "Stopped")


def work_long(spark: SparkSession) -> None:
    """Fails when it is interrupted, as any work in the JVM does: with Java's stack traces, one behind the other."""
    try:
        spark.sparkContext._jvm.java.lang.Thread.sleep(600_000)  # type: ignore[union-attr]
    except Py4JJavaError as error:
        raise RuntimeError(f"py4j.protocol.Py4JJavaError: {error}" * 20) from None


def poll_until(query: Counting, pool: ThreadPoolExecutor, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, f"begun: {query.begun}, taken: {query.taken}, error: {query.error}"
        query.poll(pool)
        time.sleep(0.05)
