"""Windows of time, each at its edges: half open, aligned to the epoch, in UTC."""

import random
from datetime import date
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from spark_jobs.gold.changes import Change
from spark_jobs.gold.strategies import Inputs
from spark_jobs.gold.tables import district_minutes as minutes
from spark_jobs.gold.tables.cumulative_totals import cumulative_totals
from spark_jobs.gold.tables.debit_share import debit_share
from spark_jobs.gold.tables.sliding_totals import sliding_totals
from spark_jobs.gold.tables.weekly_top_customers import weekly_top_customers
from spark_jobs.lake import sinks, tables
from tests.support.frames import assert_same, frame
from tests.support.rows import silver

pytestmark = pytest.mark.spark

A, B = "A00000001", "A00000002"
C1, C2, C3, C4 = (f"C0000000{number}" for number in range(1, 5))
DAY_1, DAY_2, DAY_3 = "2013-01-01", "2013-01-02", "2013-01-03"
EVEN = [f"{hour:02}:00" for hour in range(0, 24, 2)]


def test_a_row_at_the_end_of_a_sliding_window_is_not_in_it(spark: SparkSession) -> None:
    """The credit is at midnight, the debit a millisecond before it: each in 12 windows, of which the first and last differ."""
    rows = [
        ("T0", A, C1, "2013-01-02 00:00", "Credit", "0.10", "0.00"),
        ("T1", A, C1, "2013-01-01 23:59:59.999", "Debit", "9999999999999999.99", "0.00"),
        ("T2", A, C2, "2013-01-01 23:59:59.999", "Debit", "9999999999999999.99", "0.00"),
    ]
    expected = [
        *((f"{DAY_1} {hour}", f"{DAY_2} {hour}", "Debit", 2, "19999999999999999.98") for hour in EVEN),
        *((f"{DAY_1} {hour}", f"{DAY_2} {hour}", "Credit", 1, "0.10") for hour in EVEN[1:]),
        (DAY_2, DAY_3, "Credit", 1, "0.10"),
    ]
    assert_same(sliding_totals(silver(spark, rows)), frame(spark, tables.SLIDING_TOTALS.ddl, expected))


def test_cumulative_windows_go_from_the_step_of_the_first_row_to_the_end_of_the_day(spark: SparkSession) -> None:
    """A row at the end of a step is in the next one; of no type is there a step before its first row."""
    rows = [
        ("T0", A, C1, "2013-01-01 19:59:59.999", "Debit", "1.00", "0.00"),
        ("T1", A, C1, "2013-01-01 22:00", "Debit", "0.50", "0.00"),
        ("T2", A, C1, "2013-01-01 22:00", "Credit", "0.20", "0.00"),
        ("T3", A, C1, "2013-01-02 00:00", "Credit", "7.00", "0.00"),
        ("T4", A, C1, "2013-01-02 23:59:59.999", "Credit", "0.00", "0.00"),
    ]
    expected = [
        (DAY_1, "2013-01-01 20:00", "Debit", 1, "1.00"),
        (DAY_1, "2013-01-01 22:00", "Debit", 1, "1.00"),
        (DAY_1, DAY_2, "Debit", 2, "1.50"),
        (DAY_1, DAY_2, "Credit", 1, "0.20"),
        *((DAY_2, f"{DAY_2} {hour}", "Credit", 1, "7.00") for hour in EVEN[1:]),
        (DAY_2, DAY_3, "Credit", 2, "7.00"),
    ]
    assert_same(cumulative_totals(silver(spark, rows)), frame(spark, tables.CUMULATIVE_TOTALS.ddl, expected))


def test_of_customers_with_as_many_transactions_the_smaller_id_is_better(spark: SparkSession) -> None:
    """Weeks start on Thursdays, as the epoch did. Amounts do not count; the fourth customer has no row."""
    week = ("2012-12-27 00:00", "2013-01-01 12:00", "2013-01-02 23:59:59.999")
    rows = [
        ("T0", A, C4, week[0], "Credit", "1.00", "0.00"),
        ("T1", A, C4, week[2], "Debit", "1.00", "0.00"),
        ("T2", A, C3, week[1], "Credit", "99.00", "0.00"),
        ("T3", A, C2, week[1], "Credit", "50.00", "0.00"),
        ("T4", A, C1, week[1], "Credit", "0.00", "0.00"),
        ("T5", A, C3, "2013-01-03 00:00", "Credit", "1.00", "0.00"),
        ("T6", A, C3, "2012-12-26 23:59:59.999", "Credit", "1.00", "0.00"),
    ]
    expected = [
        ("2012-12-20", "2012-12-27", 1, C3, 1),
        ("2012-12-27", "2013-01-03", 1, C4, 2),
        ("2012-12-27", "2013-01-03", 2, C1, 1),
        ("2012-12-27", "2013-01-03", 3, C2, 1),
        ("2013-01-03", "2013-01-10", 1, C3, 1),
    ]
    assert_same(weekly_top_customers(silver(spark, rows)), frame(spark, tables.WEEKLY_TOP_CUSTOMERS.ddl, expected))


def test_the_share_of_debits_is_of_all_days_so_far_and_rounded_half_up(spark: SparkSession) -> None:
    """1 of 128 is 0.78125 percent: half even would give 0.7812. A day without transactions has no row."""
    daily = [
        ("2013-01-05", "2013-01-06", "Debit", 127, "0.00"),
        ("2013-01-05", "2013-01-06", "Credit", 1, "0.00"),
        ("2013-01-01", "2013-01-02", "Debit", 1, "0.00"),
        ("2013-01-03", "2013-01-04", "Credit", 127, "0.00"),
    ]
    expected = [
        ("2013-01-01", 1, 0, "100.0000"),
        ("2013-01-03", 1, 127, "0.7813"),
        ("2013-01-05", 128, 128, "50.0000"),
    ]
    found = debit_share(frame(spark, tables.DAILY_TOTALS.ddl, daily))
    assert_same(found, frame(spark, tables.DEBIT_SHARE.ddl, expected))


def test_new_rows_are_added_to_minutes_without_a_look_at_other_rows_of_silver(spark: SparkSession) -> None:
    """In minutes that are there and in new ones, before, between and after them; the district is that of the account then."""
    chance = random.Random(7)
    every = [
        (
            f"T{number}",
            chance.choice((A, B, "unknown")),
            C1,
            f"{DAY_1} 10:{chance.randrange(40):02}:{chance.randrange(60):02}",
            "Debit",
            amount,
            amount,
        )
        for number, amount in enumerate(f"{chance.randrange(10**6) / 100:.2f}" for _ in range(60))
    ]
    ddl = "account_id string, district_id int, valid_from timestamp, valid_to timestamp"
    moved = frame(spark, ddl, [(A, 1, DAY_1, f"{DAY_1} 10:20"), (A, 2, f"{DAY_1} 10:20", None), (B, 2, DAY_1, None)])
    rows = silver(spark, every)
    old, new = rows.where("_offset < 40"), rows.where("_offset >= 40")
    present = minutes.district_minutes(old, moved).localCheckpoint()
    tables_of = {tables.SILVER_ACCOUNTS: moved, tables.DISTRICT_MINUTES: present}
    hour = ((date(2013, 1, 1) - date(1970, 1, 1)).days * 24 + 10,)
    parts = minutes.TABLE.strategy.parts(
        tables.DISTRICT_MINUTES, Change(new, new, is_in_place=False, hours=hour), Inputs(tables_of.__getitem__, Decimal(0))
    )
    found = sinks.difference(*parts, on=tables.DISTRICT_MINUTES.keys)
    assert_same(found, sinks.difference(present, minutes.district_minutes(rows, moved), on=tables.DISTRICT_MINUTES.keys))
    assert found.where("transactions > 1").count() > 3
