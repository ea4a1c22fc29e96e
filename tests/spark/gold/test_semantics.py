"""Edges of the operations that Flink SQL has too, where no other test is about them; include/docs/semantics.md names all of them.

A test's name begins with the operation. Late rows are frames with and without the row: gold is a function of silver, and the job's own
tests hold it to that.
"""

import pytest
from pyspark.sql import SparkSession

from spark_jobs.gold.tables.cumulative_totals import cumulative_totals
from spark_jobs.gold.tables.customer_sessions import add_to_sessions, customer_sessions
from spark_jobs.gold.tables.daily_totals import daily_totals
from spark_jobs.gold.tables.debit_credit_pairs import pair
from spark_jobs.gold.tables.enriched_transactions import enrich
from spark_jobs.gold.tables.sliding_totals import sliding_totals
from spark_jobs.gold.tables.weekly_top_customers import weekly_top_customers
from spark_jobs.lake import tables
from tests.support.frames import assert_same, frame, values
from tests.support.rows import silver

pytestmark = pytest.mark.spark

A = "A00000001"
C1, C2, C3, C4 = (f"C0000000{number}" for number in range(1, 5))
DAY_1, DAY_2, DAY_3, DAY_4 = (f"2013-01-0{number}" for number in range(1, 5))
EVEN = [f"{hour:02}:00" for hour in range(0, 24, 2)]


def test_tumble_between_two_windows_an_empty_one_has_no_row(spark: SparkSession) -> None:
    rows = [("T0", A, C1, f"{DAY_1} 23:59:59.999", "Debit", "1.00", "0.00"), ("T1", A, C1, f"{DAY_3} 00:00", "Debit", "2.00", "0.00")]
    expected = [(DAY_1, DAY_2, "Debit", 1, "1.00"), (DAY_3, DAY_4, "Debit", 1, "2.00")]
    assert_same(daily_totals(silver(spark, rows)), frame(spark, tables.DAILY_TOTALS.ddl, expected))


def test_tumble_a_row_that_comes_days_late_is_in_the_window_of_its_own_time(spark: SparkSession) -> None:
    """The last to arrive, with the earliest time: two days behind whatever watermark."""
    rows = [("T0", A, C1, f"{DAY_3} 12:00", "Debit", "1.00", "0.00"), ("T1", A, C1, f"{DAY_1} 00:00", "Debit", "2.00", "0.00")]
    expected = [(DAY_1, DAY_2, "Debit", 1, "2.00"), (DAY_3, DAY_4, "Debit", 1, "1.00")]
    assert_same(daily_totals(silver(spark, rows)), frame(spark, tables.DAILY_TOTALS.ddl, expected))


def test_hop_a_late_row_is_in_all_of_its_twelve_windows(spark: SparkSession) -> None:
    """Those that end before the row which came first are amended, too; it makes windows that were not there."""
    first, late = (
        ("T0", A, C1, f"{DAY_3} 12:00", "Debit", "1.00", "0.00"),
        ("T1", A, C1, f"{DAY_1} 23:59:59.999", "Debit", "2.00", "0.00"),
    )
    alone = [(f"{DAY_2} {hour}", f"{DAY_3} {hour}", "Debit", 1, "1.00") for hour in EVEN[7:]]
    alone += [(f"{DAY_3} {hour}", f"{DAY_4} {hour}", "Debit", 1, "1.00") for hour in EVEN[:7]]
    added = [(f"{DAY_1} {hour}", f"{DAY_2} {hour}", "Debit", 1, "2.00") for hour in EVEN]
    assert_same(sliding_totals(silver(spark, [first])), frame(spark, tables.SLIDING_TOTALS.ddl, alone))
    assert_same(sliding_totals(silver(spark, [first, late])), frame(spark, tables.SLIDING_TOTALS.ddl, [*alone, *added]))


def test_cumulate_a_late_row_before_the_first_one_adds_the_steps_from_its_own(spark: SparkSession) -> None:
    first, late = (
        ("T0", A, C1, f"{DAY_1} 20:00", "Debit", "1.00", "0.00"),
        ("T1", A, C1, f"{DAY_1} 18:00", "Debit", "2.00", "0.00"),
    )
    alone = [(DAY_1, f"{DAY_1} 22:00", "Debit", 1, "1.00"), (DAY_1, DAY_2, "Debit", 1, "1.00")]
    both = [
        (DAY_1, f"{DAY_1} 20:00", "Debit", 1, "2.00"),
        (DAY_1, f"{DAY_1} 22:00", "Debit", 2, "3.00"),
        (DAY_1, DAY_2, "Debit", 2, "3.00"),
    ]
    assert_same(cumulative_totals(silver(spark, [first])), frame(spark, tables.CUMULATIVE_TOTALS.ddl, alone))
    assert_same(cumulative_totals(silver(spark, [first, late])), frame(spark, tables.CUMULATIVE_TOTALS.ddl, both))


def test_session_rows_of_one_moment_are_in_one_session_in_whatever_order(spark: SparkSession) -> None:
    rows = [(f"T{number}", A, C1, f"{DAY_1} 10:00", "Debit", f"{number}.00", "0.00") for number in (1, 2, 3)]
    expected = frame(spark, tables.CUSTOMER_SESSIONS.ddl, [(C1, f"{DAY_1} 10:00", f"{DAY_1} 22:00", 3, "6.00")])
    assert_same(customer_sessions(silver(spark, rows)), expected)
    assert_same(customer_sessions(silver(spark, rows[::-1])), expected)


def test_session_a_late_row_before_all_others_moves_the_start(spark: SparkSession) -> None:
    """It is a millisecond less than 12 hours before the session; the row at exactly 12 hours is a session of its own."""
    session = [(C1, f"{DAY_1} 12:00", f"{DAY_2} 00:00", 1, "1.00"), (C2, f"{DAY_1} 12:00", f"{DAY_2} 00:00", 1, "1.00")]
    rows = [
        ("T0", A, C1, f"{DAY_1} 00:00:00.001", "Debit", "2.00", "0.00"),
        ("T1", A, C2, f"{DAY_1} 00:00", "Debit", "2.00", "0.00"),
    ]
    expected = [
        (C1, f"{DAY_1} 00:00:00.001", f"{DAY_2} 00:00", 2, "3.00"),
        (C2, f"{DAY_1} 00:00", f"{DAY_1} 12:00", 1, "2.00"),
        (C2, f"{DAY_1} 12:00", f"{DAY_2} 00:00", 1, "1.00"),
    ]
    found = add_to_sessions(silver(spark, rows), frame(spark, tables.CUSTOMER_SESSIONS.ddl, session))
    assert_same(found, frame(spark, tables.CUSTOMER_SESSIONS.ddl, expected))


def test_interval_join_rows_of_one_moment_pair_each_with_each(spark: SparkSession) -> None:
    """Also where both sides lie at an end of the hour; rows without a partner give nothing."""
    rows = silver(
        spark,
        [
            ("d1", A, C1, f"{DAY_1} 11:00", "Debit", "1.00", "0.00"),
            ("d2", A, C1, f"{DAY_1} 11:00", "Debit", "1.00", "0.00"),
            ("c1", A, C1, f"{DAY_1} 12:00", "Credit", "1.00", "0.00"),
            ("c2", A, C1, f"{DAY_1} 12:00", "Credit", "1.00", "0.00"),
            ("alone", A, C2, f"{DAY_1} 11:00", "Debit", "1.00", "0.00"),
        ],
    )
    expected = [(debit, credit, C1, f"{DAY_1} 11:00", f"{DAY_1} 12:00") for debit in ("d1", "d2") for credit in ("c1", "c2")]
    assert_same(pair(rows, rows), frame(spark, tables.DEBIT_CREDIT_PAIRS.ddl, expected))


VERSIONS = "customer_id string, full_name string, city string, state string, valid_from timestamp, valid_to timestamp, is_deleted boolean"


def test_temporal_join_a_version_that_comes_later_holds_for_the_rows_of_its_time(spark: SparkSession) -> None:
    """The first two rows get the version that came between; the one at its end keeps the next one."""
    rows = silver(spark, [(f"T{day}", A, C1, f"{day} 00:00", "Debit", "1.00", "0.00") for day in (DAY_1, DAY_2, DAY_3)])
    known = [(C1, "Ann", "Ely", "NM", DAY_3, None, False)]
    later = [(C1, "Ann", "Rye", "NY", DAY_1, DAY_3, False), *known]
    cities = "transaction_id string, customer_city string, customer_status string"
    before, after = (
        [(None, "unknown"), (None, "unknown"), ("Ely", "matched")],
        [("Rye", "matched"), ("Rye", "matched"), ("Ely", "matched")],
    )
    for versions, found in ((known, before), (later, after)):
        expected = [(f"T{day}", *each) for day, each in zip((DAY_1, DAY_2, DAY_3), found, strict=True)]
        enriched = enrich(rows, frame(spark, VERSIONS, versions)).select("transaction_id", "customer_city", "customer_status")
        assert_same(enriched, frame(spark, cities, expected))


def test_top_n_with_equal_counts_does_not_depend_on_the_order_of_arrival(spark: SparkSession) -> None:
    rows = [(f"T{number}", A, customer, f"{DAY_1} 12:00", "Debit", "1.00", "0.00") for number, customer in enumerate((C4, C2, C3, C1))]
    expected = [("2012-12-27", "2013-01-03", rank, customer, 1) for rank, customer in enumerate((C1, C2, C3), start=1)]
    for arrived in (rows, rows[::-1]):
        assert_same(weekly_top_customers(silver(spark, arrived)), frame(spark, tables.WEEKLY_TOP_CUSTOMERS.ddl, expected))


def test_top_n_a_late_row_changes_the_ranks_and_pushes_a_customer_out(spark: SparkSession) -> None:
    """A row of C4 comes after the week has ended."""
    rows = [(f"T{customer}", A, customer, f"{DAY_1} 12:00", "Debit", "1.00", "0.00") for customer in (C1, C2, C3)]
    rows += [("T9", A, C1, f"{DAY_4} 12:00", "Debit", "1.00", "0.00")]  # of the next week
    late = [(f"L{number}", A, C4, f"{DAY_1} 12:00", "Debit", "1.00", "0.00") for number in (1, 2)]
    ranks = [
        (row["window_start"][:10], row["rank"], row["customer_id"], row["transactions"])
        for row in values(weekly_top_customers(silver(spark, [*rows, *late])).orderBy("window_start", "rank"))
    ]
    assert ranks == [("2012-12-27", 1, C4, 2), ("2012-12-27", 2, C1, 1), ("2012-12-27", 3, C2, 1), ("2013-01-03", 1, C1, 1)]


def test_top_n_a_window_with_fewer_customers_has_fewer_ranks(spark: SparkSession) -> None:
    rows = [("T0", A, C2, f"{DAY_1} 12:00", "Debit", "1.00", "0.00"), ("T1", A, C1, f"{DAY_1} 12:00", "Debit", "1.00", "0.00")]
    expected = [("2012-12-27", "2013-01-03", 1, C1, 1), ("2012-12-27", "2013-01-03", 2, C2, 1)]
    assert_same(weekly_top_customers(silver(spark, rows)), frame(spark, tables.WEEKLY_TOP_CUSTOMERS.ddl, expected))
