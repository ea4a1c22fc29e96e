"""What gold's gate judges after runs of the gold job: rows near the new ones, unless a run had a reason to change others."""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs import control
from spark_jobs.control.scope import find_written
from spark_jobs.gold import job
from spark_jobs.lake import tables
from spark_jobs.runtime.settings import Settings, read_settings
from tests.spark.gold.test_gold_job import Silver, histories, silver_rows
from tests.support.publishing import pass_gates

pytestmark = pytest.mark.spark


def judged_at_any_time(spark: SparkSession, settings: Settings, batch: int) -> set[str]:
    """The gold tables of which rows of any time are judged, once gold has taken a batch; then all pass."""
    run = {"job": "silver", "table": "silver.transactions", "first_batch": batch, "last_batch": batch, "output": 1}
    control.append(settings, tables.BATCHES, [run])
    job.run(spark, settings, f"run-{batch}")
    written, unchanged = find_written(settings, "gold")
    assert ({each.table for each in written}, unchanged) == (set(tables.GOLD), [])
    pass_gates(settings, last_batch=batch)
    return {each.table.name for each in written if each.at_any_time}


def test_rows_near_the_new_ones_are_judged_where_gold_only_took_new_rows(spark: SparkSession, tmp_path: Path) -> None:
    chance, settings = random.Random(4), read_settings({"LEDGER_HOME": str(tmp_path)})
    tables.ensure_tables(settings, (*tables.BRONZE, *tables.SILVER, *tables.GOLD, *tables.CONTROL))
    rows = silver_rows(chance)
    before, after = histories(chance, rows)
    silver = Silver(spark, settings, chance, rows)
    silver.append(100)
    silver.put(tables.SILVER_ACCOUNTS, before)
    assert judged_at_any_time(spark, settings, 1) == {table.name for table in tables.GOLD}  # no gate has judged any
    silver.append(30)
    assert judged_at_any_time(spark, settings, 2) == set()
    silver.append(30)
    silver.put(tables.SILVER_ACCOUNTS, after)
    assert judged_at_any_time(spark, settings, 3) == {"gold.district_minutes"}
