"""What each gold table must look like after rows of silver came, changed or went: for the part they touch, as it is and as it should be.

An amendment may be repeated, but for that of sessions. The pure functions behind these are in the other files of this folder.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs import tables
from spark_jobs.gold import account_days, districts, enrichment, pairs, sessions, totals, windows
from spark_jobs.gold.changes import Change
from spark_jobs.tables import Table


class Reader(Protocol):
    """Gives a table: silver.transactions as the change left it, the others as they are now."""

    def __call__(self, table: Table, /, around: int | None = None) -> DataFrame:
        """With `around`, of silver.transactions at least the rows of every day that is so many days, or fewer, from a changed row."""


Amendment = Callable[[Change, Reader], tuple[DataFrame, DataFrame]]  # -> (present, wanted)
Pure = Callable[[DataFrame], DataFrame]


def parts_by(key: str, table: Table, make: Pure, *, of: Callable[[], Column] | None = None, around: int | None = None) -> Amendment:
    """Make those rows of a table anew that share a key (a day, a customer, ...) with a row that came or went.

    `of` gives the key, or keys, of a silver row where that is not a column of it. Rows of one key are at most `around` days apart.
    """

    def amend(change: Change, read: Reader) -> tuple[DataFrame, DataFrame]:
        touched = change.images.select((of() if of else F.col(key)).alias(key)).distinct()
        silver = read(tables.SILVER_TRANSACTIONS, around)
        wanted = make(silver if of else silver.join(touched, on=key, how="left_semi"))
        return read(table).join(touched, on=key, how="left_semi"), wanted.join(touched, on=key, how="left_semi")

    return amend


def sessions_of(change: Change, read: Reader) -> tuple[DataFrame, DataFrame]:
    """All sessions of the customers that the rows speak of. New rows are added to the sessions there are: not repeatable."""
    if change.is_in_place:
        return parts_by("customer_id", tables.CUSTOMER_SESSIONS, sessions.customer_sessions)(change, read)
    present = read(tables.CUSTOMER_SESSIONS).join(change.rows.select("customer_id").distinct(), on="customer_id", how="left_semi")
    return present, sessions.add_to_sessions(change.rows, present)


def minutes_of(change: Change, read: Reader) -> tuple[DataFrame, DataFrame]:
    """The minutes, in all districts, that the rows have a part in."""
    touched = districts.touched_minutes(change.images)
    present = read(tables.DISTRICT_MINUTES).join(touched, on="minute", how="left_semi")
    silver = read(tables.SILVER_TRANSACTIONS, around=1).withColumn("minute", districts.minute_of("event_at"))
    needed = silver.join(districts.needed_minutes(touched), on="minute", how="left_semi").drop("minute")
    wanted = districts.district_minutes(needed, read(tables.SILVER_ACCOUNTS))
    return present, wanted.join(touched, on="minute", how="left_semi")


def account_days_of(change: Change, read: Reader) -> tuple[DataFrame, DataFrame]:
    """All days of the accounts; made anew are those of the rows, the others get new openings only."""
    touched = change.images.select("account_id", F.col("event_on").alias("day")).distinct()
    present = read(tables.ACCOUNT_DAYS).join(touched.select("account_id").distinct(), on="account_id", how="left_semi")
    silver = read(tables.SILVER_TRANSACTIONS, around=0).withColumn("day", F.col("event_on"))
    anew = account_days.account_days(silver.join(touched, on=["account_id", "day"], how="left_semi"))
    kept = present.join(touched, on=["account_id", "day"], how="left_anti")
    return present, account_days.with_openings(kept.select(*anew.columns).unionByName(anew))


def enriched(change: Change, read: Reader) -> tuple[DataFrame, DataFrame]:
    """The rows themselves, with their customers."""
    return _of_ids(change, read(tables.ENRICHED_TRANSACTIONS)), enrichment.enrich(change.rows, read(tables.SILVER_CUSTOMERS))


def large_credits(over: Decimal) -> Amendment:
    """The rows that are credits of more than an amount."""

    def amend(change: Change, read: Reader) -> tuple[DataFrame, DataFrame]:
        return _of_ids(change, read(tables.LARGE_CREDITS)), totals.large_credits(change.rows, over)

    return amend


def pairs_of(change: Change, read: Reader) -> tuple[DataFrame, DataFrame]:
    """The pairs that the rows have a part in."""
    there = read(tables.DEBIT_CREDIT_PAIRS)
    present = _of_ids(change, there, "debit_id").unionByName(_of_ids(change, there, "credit_id")).distinct()
    return present, pairs.pairs_with(change.rows, read(tables.SILVER_TRANSACTIONS, around=1))


def debit_share(change: Change, read: Reader) -> tuple[DataFrame, DataFrame]:
    """The whole table, which has one row a day: a late row changes every later day."""
    return read(tables.DEBIT_SHARE), windows.debit_share(read(tables.DAILY_TOTALS))


def amendments(large_credit: Decimal) -> dict[Table, Amendment]:
    """Every gold table's, in the order in which they are to be written."""

    def by_time(table: Table, make: Pure, start: Callable[[str], Column], around: int) -> Amendment:
        return parts_by("window_start", table, make, of=lambda: start("event_at"), around=around)

    return {
        tables.DAILY_TOTALS: by_time(tables.DAILY_TOTALS, windows.daily_totals, windows.day_of, 0),
        tables.SLIDING_TOTALS: by_time(tables.SLIDING_TOTALS, windows.sliding_totals, windows.sliding_of, 1),
        tables.CUMULATIVE_TOTALS: by_time(tables.CUMULATIVE_TOTALS, windows.cumulative_totals, windows.day_of, 0),
        tables.CUSTOMER_ACTIVITY: parts_by("customer_id", tables.CUSTOMER_ACTIVITY, totals.customer_activity),
        tables.ACCOUNT_BALANCES: parts_by("account_id", tables.ACCOUNT_BALANCES, totals.account_balances),
        tables.CUSTOMER_SESSIONS: sessions_of,
        tables.WEEKLY_TOP_CUSTOMERS: by_time(tables.WEEKLY_TOP_CUSTOMERS, windows.weekly_top_customers, windows.week_of, 6),
        tables.LARGE_CREDITS: large_credits(large_credit),
        tables.ENRICHED_TRANSACTIONS: enriched,
        tables.DEBIT_CREDIT_PAIRS: pairs_of,
        tables.DISTRICT_MINUTES: minutes_of,
        tables.DEBIT_SHARE: debit_share,  # reads daily_totals, which are up to date by then
        tables.ACCOUNT_DAYS: account_days_of,
    }


def _of_ids(change: Change, rows: DataFrame, name: str = "transaction_id") -> DataFrame:
    return rows.join(change.images.select(F.col("transaction_id").alias(name)).distinct(), on=name, how="left_semi").select(*rows.columns)
