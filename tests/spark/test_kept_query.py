"""A query of a long-running application that is held back: no batch begins, and neither Spark nor the application calls it a failure."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.kept_query import KeptQuery

pytestmark = pytest.mark.spark


class Counting(KeptQuery):
    """Takes note of the numbers of its batches, of which one is always due."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__("counting", available_now=False)
        self.begun: list[int] = []
        self.taken: list[int] = []
        self.queries: list[StreamingQuery] = []
        self._spark, self._folder = spark, folder

    def change(self) -> None:
        self._is_changing = True

    def _open(self) -> StreamingQuery:
        def take(rows: DataFrame, number: int) -> None:
            self.begun.append(number)
            self._wait_if_held(rows.sparkSession)
            self.taken.append(number)

        rows = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        writer = rows.writeStream.option("checkpointLocation", str(self._folder)).trigger(processingTime="100 milliseconds")
        self.queries.append(writer.foreachBatch(take).start())
        return self.queries[-1]

    def _follow(self, query: StreamingQuery) -> None:
        pass

    def told(self, now: float) -> dict[str, Any]:
        return self._how()


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Iterator[Counting]:
    counting = Counting(spark, tmp_path / "checkpoint")
    yield counting
    counting.stop()


def test_a_batch_that_came_behind_the_hold_is_neither_taken_nor_a_failure(query: Counting) -> None:
    with ThreadPoolExecutor(1) as pool:
        look_until(query, pool, lambda: len(query.taken) >= 2)
        query.hold()
        look_until(query, pool, lambda: query.is_at_rest and len(query.begun) > len(query.taken))
        query.stop()
    assert query.queries[0].exception() is None
    assert query.error is None
    assert query.begun[:-1] == query.taken == list(range(len(query.taken)))


def test_a_query_starts_anew_with_other_options_without_a_failure(query: Counting) -> None:
    with ThreadPoolExecutor(1) as pool:
        look_until(query, pool, lambda: len(query.taken) >= 2)
        query.change()
        look_until(query, pool, lambda: len(query.queries) == 2 and len(query.taken) >= 5)
        assert query.told(0) == {"state": "running"}
        query.stop()
    assert [one.exception() for one in query.queries] == [None, None]
    assert query.taken == list(range(len(query.taken)))


def look_until(query: Counting, pool: ThreadPoolExecutor, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, f"begun: {query.begun}, taken: {query.taken}, error: {query.error}"
        query.look(pool)
        time.sleep(0.05)
