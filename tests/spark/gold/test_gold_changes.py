"""Rows of silver that changed in place or went: what must then be done to a gold table, and which days of silver are read for it."""

import random
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs.gold import job
from spark_jobs.gold.changes import Change, Feed, hold_changes, present_rows
from spark_jobs.gold.strategies import Inputs
from spark_jobs.gold.tables.account_days import account_days, with_added, with_openings
from spark_jobs.lake import sinks, tables
from spark_jobs.lake.kept import in_memory
from spark_jobs.lake.ranges import Where
from spark_jobs.lake.tables import Table
from tests.support.frames import assert_same, frame
from tests.support.rows import silver

pytestmark = pytest.mark.spark

A, B = "A00000001", "A00000002"
C1, C2, C3, C4 = (f"C0000000{number}" for number in range(1, 5))
DAY, NEXT, THIRD = "2013-01-01", "2013-01-02", "2013-01-03"  # weeks start on Thursdays, 2012-12-27 and THIRD

HOURS = ["00:00", "07:59", "08:00", "10:59", "11:00"]

Rows = Sequence[tuple[Any, ...]]


def assert_amended(
    spark: SparkSession, table: Table, rows: Rows, *, before: set[int], after: set[int], present: Rows, expected: Rows
) -> None:
    """Of `rows`, silver held those at places `before` and now holds those `after`: `expected` are then to be written, or (True) to go."""
    every = silver(spark, rows)

    def at(places: set[int]) -> DataFrame:
        return every.where(F.col("_offset").isin(*places))

    def read(other: Table) -> DataFrame:
        return at(after) if other == tables.SILVER_TRANSACTIONS else frame(spark, other.ddl, present if other == table else [])

    change = Change(at(before ^ after), at(after - before), is_in_place=True)
    declared = next(each for each in job.tables_in_order() if each == table)
    is_, should_be = declared.strategy.parts(declared, change, Inputs(read, Decimal(50000)))
    found = sinks.difference(is_.select(*table.columns), should_be.select(*table.columns), on=table.keys)
    assert_same(found, frame(spark, f"{table.ddl}, _is_gone boolean", expected))


def test_a_day_without_rows_has_no_totals(spark: SparkSession) -> None:
    """The day's debit goes for good, its credit becomes one of another day; the day that has one more is counted anew."""
    rows = [
        ("T0", A, C1, f"{DAY} 10:00", "Debit", "1.00", "0.00"),
        ("T1", A, C1, f"{DAY} 11:00", "Credit", "2.00", "0.00"),
        ("T2", A, C1, f"{NEXT} 00:00", "Credit", "3.00", "0.00"),
        ("T1", A, C1, f"{NEXT} 23:59:59.999", "Credit", "4.00", "0.00"),
    ]
    present = [(DAY, NEXT, "Debit", 1, "1.00"), (DAY, NEXT, "Credit", 1, "2.00"), (NEXT, THIRD, "Credit", 1, "3.00")]
    expected = [(*present[0], True), (*present[1], True), (NEXT, THIRD, "Credit", 2, "7.00", False)]
    assert_amended(spark, tables.DAILY_TOTALS, rows, before={0, 1, 2}, after={2, 3}, present=present, expected=expected)


def test_who_was_fourth_moves_up(spark: SparkSession) -> None:
    rows = [(f"T{number}", A, customer, DAY, "Debit", "1.00", "0.00") for number, customer in enumerate((C1, C1, C2, C3, C4))]
    week = ("2012-12-27", THIRD)
    present = [(*week, 1, C1, 2), (*week, 2, C2, 1), (*week, 3, C3, 1)]
    expected = [(*week, 2, C3, 1, False), (*week, 3, C4, 1, False)]
    assert_amended(spark, tables.WEEKLY_TOP_CUSTOMERS, rows, before={0, 1, 2, 3, 4}, after={0, 1, 3, 4}, present=present, expected=expected)


def test_a_session_splits_where_a_row_goes(spark: SparkSession) -> None:
    rows = [
        ("T0", A, C1, f"{DAY} 00:00", "Debit", "1.00", "0.00"),
        ("T1", A, C1, f"{DAY} 10:00", "Debit", "2.00", "0.00"),
        ("T2", A, C1, f"{DAY} 20:00", "Debit", "3.00", "0.00"),
        ("T3", A, C2, f"{DAY} 20:00", "Debit", "4.00", "0.00"),
    ]
    present = [(C1, f"{DAY} 00:00", f"{NEXT} 08:00", 3, "6.00"), (C2, f"{DAY} 20:00", f"{NEXT} 08:00", 1, "4.00")]
    expected = [(C1, f"{DAY} 00:00", f"{DAY} 12:00", 1, "1.00", False), (C1, f"{DAY} 20:00", f"{NEXT} 08:00", 1, "3.00", False)]
    assert_amended(spark, tables.CUSTOMER_SESSIONS, rows, before={0, 1, 2, 3}, after={0, 2, 3}, present=present, expected=expected)


def test_pairs_go_with_either_side(spark: SparkSession) -> None:
    """One debit goes, one credit is another hour, and of one debit another row is the first now."""
    rows = [
        ("gone", A, C1, f"{DAY} 10:00", "Debit", "1.00", "0.00"),
        ("stays", A, C1, f"{DAY} 10:30", "Debit", "1.00", "0.00"),
        ("credit", A, C1, f"{DAY} 11:00", "Credit", "1.00", "0.00"),
        ("moved", A, C1, f"{DAY} 11:30", "Credit", "1.00", "0.00"),
        ("moved", A, C1, f"{DAY} 11:30:00.001", "Credit", "1.00", "0.00"),
    ]
    at = f"{DAY} 10:30"
    stays = ("stays", "credit", C1, at, f"{DAY} 11:00")
    present = [("gone", "credit", C1, f"{DAY} 10:00", f"{DAY} 11:00"), stays, ("stays", "moved", C1, at, f"{DAY} 11:30")]
    expected = [(*present[0], True), (*present[2], True)]
    assert_amended(spark, tables.DEBIT_CREDIT_PAIRS, rows, before={0, 1, 2, 3}, after={1, 2, 4}, present=present, expected=expected)


def test_a_balance_goes_back_to_the_row_before(spark: SparkSession) -> None:
    """The other account has no row any more."""
    rows = [
        ("T0", A, C1, f"{DAY} 10:00", "Credit", "5.00", "5.00"),
        ("T1", A, C1, f"{DAY} 10:00", "Debit", "1.00", "4.00"),
        ("T2", B, C1, f"{DAY} 10:00", "Debit", "1.00", "-1.00"),
    ]
    present = [
        (A, "4.00", f"{DAY} 10:00", "5.00", "1.00", 2, "transactions", 0, 1, 1),
        (B, "-1.00", f"{DAY} 10:00", "0.00", "1.00", 1, "transactions", 0, 2, 1),
    ]
    expected = [(A, "5.00", f"{DAY} 10:00", "5.00", "0.00", 1, "transactions", 0, 0, 1, False), (*present[1], True)]
    assert_amended(spark, tables.ACCOUNT_BALANCES, rows, before={0, 1, 2}, after={0}, present=present, expected=expected)


def test_minutes_after_a_row_that_goes_have_another_mean(spark: SparkSession) -> None:
    """Up to the fourth."""
    times = ["00:00:59.999", "00:04:59.999", "00:05:00"]
    rows = [(f"T{number}", A, C1, f"{DAY} {time}", "Debit", "1.00", "0.00") for number, time in enumerate(times)]
    present = [(f"{DAY} 00:0{minute}", -1, 1, "1.00", mean) for minute, mean in ((0, "0.2"), (4, "0.4"), (5, "0.4"))]
    expected = [(*present[0], True), (f"{DAY} 00:04", -1, 1, "1.00", "0.2", False)]
    assert_amended(spark, tables.DISTRICT_MINUTES, rows, before={0, 1, 2}, after={1, 2}, present=present, expected=expected)


def test_days_of_accounts_balance_by_what_was_booked(spark: SparkSession) -> None:
    """The last row of a day by time closes it; of an account's first day nothing is known before it."""
    rows = [
        ("T0", A, C1, f"{DAY} 10:00", "Credit", "100.00", "100.00"),
        ("T1", A, C1, f"{THIRD} 12:00", "Debit", "30.00", "75.00"),
        ("T2", A, C1, f"{THIRD} 10:00", "Credit", "5.00", "105.00"),
        ("T3", A, C1, "2013-01-04 10:00", "Debit", "5.00", "70.01"),
        ("T4", B, C1, f"{THIRD} 10:00", "Debit", "9999999999999999.99", "-9999999999999999.99"),
    ]
    expected = [
        (A, DAY, None, "100.00", "100.00", "0.00", 1, None),
        (A, THIRD, "100.00", "75.00", "5.00", "30.00", 2, "0.00"),
        (A, "2013-01-04", "75.00", "70.01", "0.00", "5.00", 1, "0.01"),
        (B, THIRD, None, "-9999999999999999.99", "0.00", "9999999999999999.99", 1, None),
    ]
    assert_same(with_openings(account_days(silver(spark, rows))), frame(spark, tables.ACCOUNT_DAYS.ddl, expected))


def test_a_day_that_comes_or_goes_opens_the_next_one(spark: SparkSession) -> None:
    """A row comes on a day between two; of the other account the first day goes. What else there is stays."""
    rows = [
        ("T0", A, C1, f"{DAY} 10:00", "Credit", "100.00", "100.00"),
        ("T1", A, C1, f"{THIRD} 10:00", "Debit", "30.00", "65.00"),
        ("T2", A, C1, "2013-01-04 10:00", "Debit", "5.00", "60.00"),
        ("T3", A, C1, f"{NEXT} 10:00", "Debit", "5.00", "95.00"),
        ("T4", B, C1, f"{DAY} 10:00", "Credit", "1.00", "1.00"),
        ("T5", B, C1, f"{NEXT} 10:00", "Credit", "1.00", "2.00"),
    ]
    present = [
        (A, DAY, None, "100.00", "100.00", "0.00", 1, None),
        (A, THIRD, "100.00", "65.00", "0.00", "30.00", 1, "-5.00"),
        (A, "2013-01-04", "65.00", "60.00", "0.00", "5.00", 1, "0.00"),
        (B, DAY, None, "1.00", "1.00", "0.00", 1, None),
        (B, NEXT, "1.00", "2.00", "1.00", "0.00", 1, "0.00"),
    ]
    expected = [
        (A, NEXT, "100.00", "95.00", "0.00", "5.00", 1, "0.00", False),
        (A, THIRD, "95.00", "65.00", "0.00", "30.00", 1, "0.00", False),
        (*present[3], True),
        (B, NEXT, None, "2.00", "1.00", "0.00", 1, None, False),
    ]
    assert_amended(spark, tables.ACCOUNT_DAYS, rows, before={0, 1, 2, 4, 5}, after={0, 1, 2, 3, 5}, present=present, expected=expected)


FEED = "transaction_id string, place string, event_at timestamp, _change_type string, _commit_version bigint"


def test_of_a_change_feed_the_rows_that_are_there_at_its_end(spark: SparkSession) -> None:
    feed = [
        ("comes", "a", DAY, "insert", 5),
        ("comes and goes", "a", DAY, "insert", 5),
        ("comes and goes", "a", DAY, "delete", 7),
        ("changes", "a", DAY, "update_preimage", 6),
        ("changes", "b", NEXT, "update_postimage", 6),
        ("changes twice", "a", DAY, "update_preimage", 6),
        ("changes twice", "b", DAY, "update_postimage", 6),
        ("changes twice", "b", DAY, "update_preimage", 7),
        ("changes twice", "c", DAY, "update_postimage", 7),
        ("another in one commit", "b", DAY, "insert", 6),
        ("another in one commit", "a", DAY, "delete", 6),
        ("goes and comes again", "a", DAY, "delete", 6),
        ("goes and comes again", "a", THIRD, "insert", 8),
    ]
    rows = frame(spark, FEED, feed).withColumns({"customer_id": F.lit("C1"), "account_id": F.lit("A1")})
    names = ["transaction_id", "place"]
    there = {"comes": "a", "changes": "b", "changes twice": "c", "another in one commit": "b", "goes and comes again": "a"}
    assert_same(present_rows(rows).select(*names), frame(spark, "transaction_id string, place string", [*there.items()]))

    changes = hold_changes(Feed(rows))
    assert changes is not None
    first = (date(2013, 1, 1) - date(1970, 1, 1)).days
    assert (changes.count, changes.last, changes.last_in_place) == (len(feed), 8, 7)
    assert sorted(changes.hours) == [24 * day for day in (first, first + 1, first + 2)]
    assert [changes.after(version).is_in_place for version in (0, 6, 7, 8)] == [True, True, False, False]
    for version, count in ((0, 13), (4, 13), (5, 11), (6, 4), (8, 0)):
        change = changes.after(version)
        assert change.few is not None
        assert (change.images.count(), change.few.num_rows) == (count, count)
    assert changes.after(4).images is changes.feed, "a filter by number would be compiled anew in each run"
    assert hold_changes(Feed(rows.limit(0))) is None


def test_near_a_change_are_whole_days_and_hours_around_its_rows(spark: SparkSession) -> None:
    moments = [f"{day} {hour}" for day in (DAY, NEXT, THIRD) for hour in ("00:00", "07:59:59.999", "08:00", "10:59:59.999", "11:00")]
    rows = frame(spark, "event_at timestamp, event_on date, until timestamp", [(text, text[:10], f"{THIRD} 09:00") for text in moments])
    change = Change(rows, rows, is_in_place=False, hours=(24 * (date(2013, 1, 2) - date(1970, 1, 1)).days + 9,))

    def found(where: Where) -> list[str]:
        return [row[0] for row in rows.where(where.sql).select(F.date_format("event_at", "d HH:mm")).collect()]

    assert found(change.near("event_at", 1)) == ["2 08:00", "2 10:59"]
    assert found(change.near("event_at", 23, end="until")) == [f"{day} {hour}" for day in (1, 2, 3) for hour in HOURS][:-2]
    assert found(change.on_days("event_on", 0)) == [f"2 {hour}" for hour in HOURS]
    assert len(found(change.on_days("event_on", 1))) == len(moments)
    assert len(found(Change(rows, rows, is_in_place=False).near("event_at", 0))) == len(moments)
    assert found(Change(rows, rows, is_in_place=False, hours=()).near("event_at", 9)) == []


@pytest.mark.parametrize("most", [0, 50, 1000])
def test_of_an_account_only_days_beside_the_changed_ones_are_written(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """As many as if all were made anew; also where the next day of an account is farther away than days are looked for.

    Those days are read by Spark, or in memory; nearer ones where so many are too many for it.
    """
    monkeypatch.setattr("spark_jobs.gold.tables.account_days.NEAR", 2)
    monkeypatch.setattr("spark_jobs.gold.tables.account_days._NEARER", 0)
    chance = random.Random(5)
    days = [date(2013, 1, 1) + timedelta(days=number) for number in range(40)]
    every = [
        (f"T{number}", f"A0000000{chance.randrange(5)}", C1, f"{chance.choice(days)} 10:00", "Debit", f"{number}.00", f"{number}.00")
        for number in range(110)
    ]
    rows = silver(spark, every)
    old, new = rows.where("_offset < 90"), rows.where("_offset >= 90")
    hours = tuple(24 * (date.fromisoformat(row[3][:10]) - date(1970, 1, 1)).days + 10 for row in every[90:])
    tables_of = {tables.SILVER_TRANSACTIONS: rows, tables.ACCOUNT_DAYS: with_openings(account_days(old)).localCheckpoint()}
    fits: dict[Table, list[bool]] = {table: [] for table in tables_of}

    def few(table: Table, where: Where) -> DataFrame | None:
        found = tables_of[table].where(where.sql).toArrow()
        found = found.filter(where.is_wanted(found)) if where.is_wanted else found
        fits[table].append(found.num_rows <= most)
        return in_memory(spark, found) if fits[table][-1] else None

    every_day = (min(days), max(days))
    inputs = Inputs(tables_of.__getitem__, Decimal(0), few, span=lambda _: every_day)
    present, wanted = with_added(Change(new, new, is_in_place=False, hours=hours), inputs)
    assert fits[tables.ACCOUNT_DAYS] == {0: [False, False, False], 50: [False, True, False], 1000: [True, True]}[most]

    found = sinks.difference(present, wanted, on=tables.ACCOUNT_DAYS.keys)
    expected = sinks.difference(tables_of[tables.ACCOUNT_DAYS], with_openings(account_days(rows)), on=tables.ACCOUNT_DAYS.keys)
    assert_same(found, expected)
    assert 20 < wanted.count() < tables_of[tables.ACCOUNT_DAYS].count()


def test_a_day_that_was_there_keeps_its_opening(spark: SparkSession) -> None:
    """The account's day before it is farther away than days are looked for, but not looked for. Days of new accounts are."""
    late = "2013-03-01"
    old = [
        ("T0", A, C1, f"{DAY} 10:00", "Credit", "100.00", "100.00"),
        ("T1", A, C1, f"{late} 10:00", "Debit", "30.00", "70.00"),
        ("T2", B, C1, f"{NEXT} 10:00", "Credit", "1.00", "1.00"),
    ]
    added = [("T3", A, C1, f"{late} 11:00", "Debit", "5.00", "65.00"), ("T4", B, C1, f"{late} 10:00", "Debit", "1.00", "0.00")]
    day = [(A, late, "100.00", "65.00", "0.00", "35.00", 2, "0.00")]
    opened = [(B, late, "1.00", "0.00", "0.00", "1.00", 1, "0.00")]
    days, hour = with_openings(account_days(silver(spark, old))).localCheckpoint(), (date(2013, 3, 1) - date(1970, 1, 1)).days * 24 + 10
    for count, accounts, expected in ((1, list[str](), day), (2, [B], day + opened)):
        rows, asked = silver(spark, old + added[:count]), list[str]()

        def few(table: Table, where: Where, rows: DataFrame = rows, asked: list[str] = asked) -> DataFrame:
            found = (days if table == tables.ACCOUNT_DAYS else rows).where(where.sql).toArrow()
            if table == tables.ACCOUNT_DAYS and where.sql == "true" and where.is_wanted:
                found = found.filter(where.is_wanted(found))
                asked += found["account_id"].unique().to_pylist()
            return in_memory(spark, found)

        new = rows.where("_offset >= 3")
        given = Inputs(lambda table: few(table, Where()), Decimal(0), few, span=lambda _: (date(2013, 1, 1), date(2013, 3, 1)))
        _, wanted = with_added(Change(new, new, is_in_place=False, hours=(hour,)), given)
        assert_same(wanted, frame(spark, tables.ACCOUNT_DAYS.ddl, expected))
        assert asked == accounts
