"""Sessions, pairs, large credits and minutes of districts, each at its edges."""

from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from spark_jobs.gold.changes import Change
from spark_jobs.gold.strategies import Inputs
from spark_jobs.gold.tables import large_credits
from spark_jobs.gold.tables.customer_sessions import add_to_sessions
from spark_jobs.gold.tables.debit_credit_pairs import pair, pair_by_hour, pairs_with
from spark_jobs.gold.tables.district_minutes import district_minutes
from spark_jobs.lake import tables
from tests.support.frames import assert_same, frame
from tests.support.rows import silver

pytestmark = pytest.mark.spark

A, B, DELETED, NOBODY = (f"A0000000{number}" for number in range(1, 5))
C1, C2, C3 = (f"C0000000{number}" for number in range(1, 4))
DAY, NEXT = "2013-01-01", "2013-01-02"


def test_a_gap_of_exactly_12_hours_starts_a_new_session(spark: SparkSession) -> None:
    rows = [
        ("T0", A, C1, f"{NEXT} 12:00", "Debit", "0.30", "0.00"),
        ("T1", A, C1, f"{DAY} 00:00", "Credit", "0.10", "0.00"),
        ("T2", A, C1, f"{NEXT} 00:00", "Debit", "0.20", "0.00"),
        ("T3", A, C2, f"{DAY} 00:00", "Debit", "9999999999999999.99", "0.00"),
        ("T4", B, C2, f"{DAY} 11:59:59.999", "Credit", "9999999999999999.99", "0.00"),
        ("T5", B, C2, f"{DAY} 11:59:59.999", "Credit", "0.01", "0.00"),
    ]
    expected = [
        (C1, f"{DAY} 00:00", f"{DAY} 12:00", 1, "0.10"),
        (C1, f"{NEXT} 00:00", f"{NEXT} 12:00", 1, "0.20"),
        (C1, f"{NEXT} 12:00", "2013-01-03 00:00", 1, "0.30"),
        (C2, f"{DAY} 00:00", f"{DAY} 23:59:59.999", 3, "19999999999999999.99"),
    ]
    found = add_to_sessions(silver(spark, rows), frame(spark, tables.CUSTOMER_SESSIONS.ddl, []))
    assert_same(found.select(*tables.CUSTOMER_SESSIONS.columns), frame(spark, tables.CUSTOMER_SESSIONS.ddl, expected))


def test_a_late_row_joins_the_sessions_that_it_lies_between(spark: SparkSession) -> None:
    """C1's row is within 12 hours of both; C2's exactly 12 hours from both; C3's lies inside of one and changes no bound."""
    sessions = [
        (C1, f"{DAY} 00:00", f"{DAY} 12:00", 1, "1.00"),
        (C1, f"{DAY} 20:00", f"{NEXT} 09:00", 2, "2.00"),
        (C2, f"{DAY} 00:00", f"{DAY} 12:00", 1, "1.00"),
        (C2, f"{NEXT} 00:00", f"{NEXT} 12:00", 1, "2.00"),
        (C3, f"{DAY} 00:00", f"{DAY} 18:00", 2, "1.00"),
    ]
    rows = [
        ("T0", A, C1, f"{DAY} 11:59:59.999", "Credit", "0.10", "0.00"),
        ("T1", A, C2, f"{DAY} 12:00", "Credit", "0.20", "0.00"),
        ("T2", A, C3, f"{DAY} 03:00", "Credit", "0.30", "0.00"),
    ]
    expected = [
        (C1, f"{DAY} 00:00", f"{NEXT} 09:00", 4, "3.10"),
        (C2, f"{DAY} 00:00", f"{DAY} 12:00", 1, "1.00"),
        (C2, f"{DAY} 12:00", f"{NEXT} 00:00", 1, "0.20"),
        (C2, f"{NEXT} 00:00", f"{NEXT} 12:00", 1, "2.00"),
        (C3, f"{DAY} 00:00", f"{DAY} 18:00", 3, "1.30"),
    ]
    found = add_to_sessions(silver(spark, rows), frame(spark, tables.CUSTOMER_SESSIONS.ddl, sessions))
    assert_same(found.select(*tables.CUSTOMER_SESSIONS.columns), frame(spark, tables.CUSTOMER_SESSIONS.ddl, expected))


PAIRS = [
    ("early", A, C1, f"{DAY} 10:59:59.999", "Debit", "1.00", "0.00"),
    ("hour", A, C1, f"{DAY} 11:00", "Debit", "1.00", "0.00"),
    ("same", B, C1, f"{DAY} 12:00", "Debit", "1.00", "0.00"),
    ("after", A, C1, f"{DAY} 12:00:00.001", "Debit", "1.00", "0.00"),
    ("other", A, C2, f"{DAY} 11:30", "Debit", "1.00", "0.00"),
    ("credit", A, C1, f"{DAY} 12:00", "Credit", "1.00", "0.00"),
    ("second", A, C1, f"{DAY} 12:30", "Credit", "1.00", "0.00"),
]
OF_HOUR = ("hour", "credit", C1, f"{DAY} 11:00", f"{DAY} 12:00")
OF_SAME = ("same", "credit", C1, f"{DAY} 12:00", f"{DAY} 12:00")
SAME_AND_SECOND = ("same", "second", C1, f"{DAY} 12:00", f"{DAY} 12:30")
AFTER_AND_SECOND = ("after", "second", C1, f"{DAY} 12:00:00.001", f"{DAY} 12:30")


def test_both_ends_of_the_hour_before_a_credit_count(spark: SparkSession) -> None:
    rows = silver(spark, PAIRS)
    expected = frame(spark, tables.DEBIT_CREDIT_PAIRS.ddl, [OF_HOUR, OF_SAME, SAME_AND_SECOND, AFTER_AND_SECOND])
    for made in (pair(rows, rows), pair_by_hour(rows), pairs_with(rows, rows)):
        assert_same(made, expected)


def test_new_rows_give_the_pairs_that_they_have_a_part_in_once(spark: SparkSession) -> None:
    """A new debit of an old credit, an old debit of a new credit, and two new ones; not the pair of two old ones."""
    rows = silver(spark, PAIRS)
    new = rows.where("transaction_id in ('hour', 'after', 'second')")
    expected = frame(spark, tables.DEBIT_CREDIT_PAIRS.ddl, [OF_HOUR, SAME_AND_SECOND, AFTER_AND_SECOND])
    assert_same(pairs_with(new, rows), expected)


def test_a_large_credit_is_more_than_the_amount(spark: SparkSession) -> None:
    rows = [
        ("equal", A, C1, f"{DAY} 11:00", "Credit", "50000.00", "0.00"),
        ("more", A, C1, f"{DAY} 11:00", "Credit", "50000.01", "-1.00"),
        ("debit", A, C1, f"{DAY} 11:00", "Debit", "60000.00", "0.00"),
    ]
    expected = [("more", f"{DAY} 11:00", A, C1, "50000.01", "-1.00", "transactions", 0, 1, 1)]
    change = Change(silver(spark, rows), silver(spark, rows), is_in_place=False)
    given = Inputs(lambda table: frame(spark, table.ddl, []), Decimal(50000))
    _, wanted = large_credits.TABLE.strategy.parts(large_credits.TABLE, change, given)
    assert_same(wanted, frame(spark, tables.LARGE_CREDITS.ddl, expected))


ACCOUNTS = "account_id string, district_id int, valid_from timestamp, valid_to timestamp"


def test_a_transaction_has_the_district_of_its_account_as_of_its_time(spark: SparkSession) -> None:
    accounts = [
        (A, 1, DAY, NEXT),
        (A, 2, NEXT, None),
        (DELETED, 3, DAY, NEXT),
        (DELETED, None, NEXT, None),
    ]
    rows = [
        ("before", A, C1, "2012-12-31 23:59:59.999", "Debit", "0.01", "0.00"),
        ("from", A, C1, f"{DAY} 00:00", "Debit", "0.10", "0.00"),
        ("until", A, C1, f"{DAY} 23:59:59.999", "Debit", "0.20", "0.00"),
        ("next", A, C2, f"{NEXT} 00:00", "Debit", "0.30", "0.00"),
        ("deleted", DELETED, C2, f"{NEXT} 00:00", "Debit", "0.40", "0.00"),
        ("nobody", NOBODY, C2, f"{NEXT} 00:00:59.999", "Credit", "0.50", "0.00"),
    ]
    expected = [
        ("2012-12-31 23:59", -1, 1, "0.01", "0.2"),
        (f"{DAY} 00:00", 1, 1, "0.10", "0.2"),
        (f"{DAY} 23:59", 1, 1, "0.20", "0.2"),
        (f"{NEXT} 00:00", 2, 1, "0.30", "0.2"),
        (f"{NEXT} 00:00", -1, 2, "0.90", "0.4"),
    ]
    found = district_minutes(silver(spark, rows), frame(spark, ACCOUNTS, accounts))
    assert_same(found, frame(spark, tables.DISTRICT_MINUTES.ddl, expected))


def test_the_average_is_over_five_minutes_of_which_absent_ones_count_zero(spark: SparkSession) -> None:
    """The row of another district is no part of it."""
    times = ["00:00:00", "00:00:59.999", "00:00:30", "00:04:59.999", "00:05:00", "00:05:01", "00:10:00"]
    rows = [(f"T{number}", A, C1, f"{DAY} {time}", "Debit", "1.00", "0.00") for number, time in enumerate(times)]
    other = ("T9", B, C1, f"{DAY} 00:04", "Debit", "1.00", "0.00")
    accounts = [(A, 1, "2012-01-01", None), (B, 2, "2012-01-01", None)]
    expected = [
        (f"{DAY} 00:00", 1, 3, "3.00", "0.6"),
        (f"{DAY} 00:04", 1, 1, "1.00", "0.8"),
        (f"{DAY} 00:05", 1, 2, "2.00", "0.6"),
        (f"{DAY} 00:10", 1, 1, "1.00", "0.2"),
        (f"{DAY} 00:04", 2, 1, "1.00", "0.2"),
    ]
    found = district_minutes(silver(spark, [*rows, other]), frame(spark, ACCOUNTS, accounts))
    assert_same(found, frame(spark, tables.DISTRICT_MINUTES.ddl, expected))
