"""The first run of gold dies, and silver moves on: the tables that it made follow, and are right before others are made of them."""

import random
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.gold import job
from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings, read_settings
from tests.spark.gold.test_gold_job import Silver, histories, killed_at, of_customers, silver_rows
from tests.support import kill_points
from tests.support.gold_model import Row, model
from tests.support.lake import assert_equal, gold_of

pytestmark = pytest.mark.spark

ORDER = list[Table](job.tables_in_order())
Histories = tuple[list[Row], list[Row]]


def assert_right(settings: Settings, silver: Silver, histories: Histories, made: Iterable[Table]) -> None:
    """These tables are what plain Python makes of silver."""
    found, expected = gold_of(settings), model(list(silver.rows.values()), *histories, settings.large_credit)
    names = [table.name for table in made]
    assert_equal({name: found[name] for name in names}, {name: expected[name] for name in names})


def die_in_first_run(
    spark: SparkSession, home: Path, deaths: Sequence[Table], monkeypatch: pytest.MonkeyPatch
) -> tuple[Settings, Silver, Histories]:
    """Each run makes some new tables, and dies after one of them; before the next run silver gains, changes and loses rows.

    At each death all tables up to that one are right: those that were there, and those that are new.
    """
    chance = random.Random(len(deaths))
    settings = read_settings({"LEDGER_HOME": str(home), "LEDGER_LARGE_CREDIT": "50000"})
    tables.ensure_tables(settings, (*tables.SILVER, *tables.GOLD, *tables.CONTROL))
    rows = silver_rows(chance)
    accounts, customers = histories(chance, rows)[0], of_customers(chance, rows)
    silver = Silver(spark, settings, chance, rows)
    silver.append(100)
    silver.put(tables.SILVER_ACCOUNTS, accounts)
    silver.put(tables.SILVER_CUSTOMERS, customers)
    for table in job.tables_in_order():
        for dimension in table.follows[1:]:
            job.follow_dimension(spark, settings, dimension, table)
    assert job.missing_rows(settings) == len(silver.rows)
    for dies_after in deaths:
        with monkeypatch.context() as patch:
            kill_points.reach(patch, killed_at(f"after {dies_after.name}"))
            with pytest.raises(LedgerError, match="killed"):
                job.follow_transactions(spark, settings)
        assert_right(settings, silver, (accounts, customers), ORDER[: ORDER.index(dies_after) + 1])
        silver.append(10)
        silver.change(2, on=tables.SILVER_TRANSACTIONS.keys)
    job.run(spark, settings, "ends")
    assert job.missing_rows(settings) == 0
    assert_right(settings, silver, (accounts, customers), ORDER)
    return settings, silver, (accounts, customers)


def test_a_table_that_is_made_of_another_one_is_not_made_of_an_older_state(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gold.debit_share is new when gold.daily_totals has yet to follow, and follows when those are new because they were lost."""
    settings, silver, histories = die_in_first_run(spark, tmp_path, [tables.DISTRICT_MINUTES], monkeypatch)
    shutil.rmtree(tables.DAILY_TOTALS.path(settings))
    tables.ensure_tables(settings, [tables.DAILY_TOTALS])
    silver.append(10)
    job.run(spark, settings, "finds a table lost")
    assert_right(settings, silver, histories, ORDER)


@pytest.mark.soak
def test_the_first_run_dies_after_every_table(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    die_in_first_run(spark, tmp_path, ORDER, monkeypatch)
