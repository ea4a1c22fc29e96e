"""The smallest stream: every row is in one window, the rate changes while it runs, and a restart continues."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.live import example
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.ledger import await_that

pytestmark = pytest.mark.spark

Window = tuple[int, int, int]  # start in seconds, rows, sum
Batches = dict[int, list[Window]]  # by number: a batch that a stop cuts short is given again under the same one


def run_until(spark: SparkSession, settings: Settings, batches: Batches, is_done: Callable[[], bool]) -> None:
    def take(batch: DataFrame, number: int) -> None:
        rows = batch.selectExpr("unix_seconds(start)", "rows", "sum").collect()
        batches[number] = sorted((row[0], row[1], row[2]) for row in rows)

    query = example.start(spark, settings, take)
    try:
        await_that(lambda: query.exception() is not None or is_done(), 120)
        assert query.exception() is None
    finally:
        query.stop()


def test_each_row_is_in_one_window_also_after_a_new_rate_and_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    settings, batches = read_settings({"LEDGER_HOME": str(tmp_path)}), Batches()

    def windows() -> list[Window]:
        return [window for number in sorted(batches) for window in batches[number]]

    example.set_rate(settings, 1000)
    run_until(spark, settings, batches, lambda: 5000 in [rows for _, rows, _ in windows()])
    example.set_rate(settings, 10)
    run_until(spark, settings, batches, lambda: 50 in [rows for _, rows, _ in windows()])
    starts = [start for start, _, _ in windows()]
    assert starts == sorted(set(starts))
    first = 0
    for start, rows, total in windows():  # the rows are numbered: a lost one or one that is there twice would show in the sum
        assert (start % 5, total) == (0, sum(range(first, first + rows)))
        first += rows
