"""What each gold table must look like after rows of silver came, changed or went: for the part they touch, as it is and as it should be.

An amendment may be repeated, but for that of sessions. The pure functions behind these are in the other files of this folder.
"""

from collections.abc import Callable
from decimal import Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.gold import account_days, districts, enrichment, pairs, sessions, totals, windows
from spark_jobs.gold.changes import HOURS_A_DAY, Change
from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table

Reader = Callable[[Table], DataFrame]  # gives a table: silver.transactions as the change left it, the others as they are now
Amendment = Callable[[Change, Reader], tuple[DataFrame, DataFrame]]  # -> (present, wanted)
Pure = Callable[[DataFrame], DataFrame]
MADE_OF = {tables.DEBIT_SHARE: tables.DAILY_TOTALS}  # the tables that are made of another one of gold


def parts_by(key: str, table: Table, make: Pure) -> Amendment:
    """Make those rows of a table anew that share a key (a customer, an account) with a row that came or went."""

    def amend(change: Change, read: Reader) -> tuple[DataFrame, DataFrame]:
        touched = change.images.select(key).distinct()
        wanted = make(read(tables.SILVER_TRANSACTIONS).join(touched, on=key, how="left_semi"))
        return read(table).join(touched, on=key, how="left_semi"), wanted

    return amend


def windows_of(table: Table, make: Pure, start: Callable[[str], Column], days: int) -> Amendment:
    """Make those windows anew that hold a row that came or went. Rows of one window are at most `days` calendar days apart."""

    def amend(change: Change, read: Reader) -> tuple[DataFrame, DataFrame]:
        touched = change.images.select(start("event_at").alias("window_start")).distinct()
        wanted = make(read(tables.SILVER_TRANSACTIONS).where(change.on_days("event_on", days)))
        present = read(table).where(change.near("window_start", (days + 1) * HOURS_A_DAY))
        return change.among(present, touched), change.among(wanted, touched)

    return amend


def weekly_top_of(change: Change, read: Reader) -> tuple[DataFrame, DataFrame]:
    """The best of the rows' weeks. Where rows only came, a customer who has none of them does not rise: only theirs are counted anew."""
    table, make = tables.WEEKLY_TOP_CUSTOMERS, windows.weekly_top_customers
    if change.is_in_place:
        return windows_of(table, make, windows.week_of, 6)(change, read)
    touched = change.rows.select(windows.week_of("event_at").alias("window_start"), "customer_id").distinct()
    silver = read(tables.SILVER_TRANSACTIONS).where(change.on_days("event_on", 6)).select("event_at", "customer_id")
    rows = change.among(silver.withColumn("window_start", windows.week_of("event_at")), touched)
    present = change.among(read(table), touched.select("window_start").distinct())
    others = present.join(touched, on=touched.columns, how="left_anti").select("window_start", "customer_id", "transactions")
    return present, windows.best_of_weeks(windows.weekly_counts(rows).unionByName(others))


def sessions_of(change: Change, read: Reader) -> tuple[DataFrame, DataFrame]:
    """The sessions of the rows' customers near the rows. New rows are added to the sessions there are: not repeatable."""
    if change.is_in_place:
        return parts_by("customer_id", tables.CUSTOMER_SESSIONS, sessions.customer_sessions)(change, read)
    near = read(tables.CUSTOMER_SESSIONS).where(change.near("session_start", sessions.GAP_HOURS, end="session_end"))
    present = change.among(near, change.rows.select("customer_id").distinct())
    return present, sessions.add_to_sessions(change.rows, present)


def minutes_of(change: Change, read: Reader) -> tuple[DataFrame, DataFrame]:
    """The minutes, in all districts, that the rows have a part in."""
    touched = districts.touched_minutes(change.images)
    present = change.among(read(tables.DISTRICT_MINUTES).where(change.near("minute", 1)), touched)
    silver = read(tables.SILVER_TRANSACTIONS).where(change.near("event_at", 1)).withColumn("minute", districts.minute_of("event_at"))
    needed = change.among(silver, districts.needed_minutes(touched)).drop("minute")
    wanted = districts.district_minutes(needed, read(tables.SILVER_ACCOUNTS))
    return present, change.among(wanted, touched)


def account_days_of(change: Change, read: Reader) -> tuple[DataFrame, DataFrame]:
    """The days of the rows, made anew, and of each account the day after each of them, which gets a new opening.

    Neighbours are looked for among the days of the next weeks; of accounts that have none there all days are read, and so they are after
    a change in place, which may leave a day without rows.
    """
    key = ["account_id", "day"]
    touched = change.images.select("account_id", F.col("event_on").alias("day")).distinct()
    silver = read(tables.SILVER_TRANSACTIONS).where(change.on_days("event_on", 0)).withColumn("day", F.col("event_on"))
    anew = account_days.account_days(change.among(silver, touched)).localCheckpoint()
    days = read(tables.ACCOUNT_DAYS)
    if change.is_in_place:
        present = days.join(touched.select("account_id").distinct(), on="account_id", how="left_semi")
        kept = present.join(touched, on=key, how="left_anti")
        return present, account_days.with_openings(kept.select(*anew.columns).unionByName(anew))
    near = account_days.beside(days.where(change.on_days("day", account_days.NEAR)), anew)
    found = account_days.amended(near, anew).localCheckpoint()
    ends = days.agg(F.min("day").alias("first"), F.max("day").alias("last")).collect()[0]
    lonely = found.where(account_days.is_lonely(ends["first"], ends["last"])).select("account_id").distinct().localCheckpoint()
    if not lonely.isEmpty():
        of_lonely = account_days.amended(*(rows.join(lonely, on="account_id", how="left_semi") for rows in (days, anew)))
        found = found.join(lonely, on="account_id", how="left_anti").unionByName(of_lonely.localCheckpoint())
    return found.where("_was is not null").select("_was.*"), found.select(*days.columns)


def enriched(change: Change, read: Reader) -> tuple[DataFrame, DataFrame]:
    """The rows themselves, with their customers."""
    near = read(tables.ENRICHED_TRANSACTIONS).where(change.near("event_at", 0))
    return _of_ids(change, near), enrichment.enrich(change.rows, read(tables.SILVER_CUSTOMERS))


def large_credits(over: Decimal) -> Amendment:
    """The rows that are credits of more than an amount."""

    def amend(change: Change, read: Reader) -> tuple[DataFrame, DataFrame]:
        near = read(tables.LARGE_CREDITS).where(change.near("event_at", 0))
        return _of_ids(change, near), totals.large_credits(change.rows, over)

    return amend


def pairs_of(change: Change, read: Reader) -> tuple[DataFrame, DataFrame]:
    """The pairs that the rows have a part in."""
    near = read(tables.DEBIT_CREDIT_PAIRS).where(change.near("debit_at", pairs.BEFORE_HOURS))
    present = _of_ids(change, near, "debit_id").unionByName(_of_ids(change, near, "credit_id")).distinct()
    silver = read(tables.SILVER_TRANSACTIONS).where(change.near("event_at", pairs.BEFORE_HOURS))
    return present, pairs.pairs_with(change.rows, silver)


def debit_share(change: Change, read: Reader) -> tuple[DataFrame, DataFrame]:
    """The whole table, which has one row a day: a late row changes every later day."""
    return read(tables.DEBIT_SHARE), windows.debit_share(read(tables.DAILY_TOTALS))


def amendments(large_credit: Decimal) -> dict[Table, Amendment]:
    """Every gold table's, in the order in which they are to be written."""

    return {
        tables.ENRICHED_TRANSACTIONS: enriched,  # the others read silver's rows from it, in the order of time
        tables.DAILY_TOTALS: windows_of(tables.DAILY_TOTALS, windows.daily_totals, windows.day_of, 0),
        tables.SLIDING_TOTALS: windows_of(tables.SLIDING_TOTALS, windows.sliding_totals, windows.sliding_of, 1),
        tables.CUMULATIVE_TOTALS: windows_of(tables.CUMULATIVE_TOTALS, windows.cumulative_totals, windows.day_of, 0),
        tables.CUSTOMER_ACTIVITY: parts_by("customer_id", tables.CUSTOMER_ACTIVITY, totals.customer_activity),
        tables.ACCOUNT_BALANCES: parts_by("account_id", tables.ACCOUNT_BALANCES, totals.account_balances),
        tables.CUSTOMER_SESSIONS: sessions_of,
        tables.WEEKLY_TOP_CUSTOMERS: weekly_top_of,
        tables.LARGE_CREDITS: large_credits(large_credit),
        tables.DEBIT_CREDIT_PAIRS: pairs_of,
        tables.DISTRICT_MINUTES: minutes_of,
        tables.DEBIT_SHARE: debit_share,  # reads daily_totals, which are up to date by then
        tables.ACCOUNT_DAYS: account_days_of,
    }


def _of_ids(change: Change, rows: DataFrame, name: str = "transaction_id") -> DataFrame:
    return change.among(rows, change.images.select(F.col("transaction_id").alias(name)).distinct()).select(*rows.columns)
