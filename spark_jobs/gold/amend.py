"""What each gold table must look like after silver gained rows: for the part that these rows touch, as it is and as it should be.

A `Reader` gives a table as it is now. The pure functions behind these are in the other files of this folder.
"""

from collections.abc import Callable
from decimal import Decimal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs import tables
from spark_jobs.gold import districts, enrichment, pairs, sessions, windows
from spark_jobs.tables import Table

Reader = Callable[[Table], DataFrame]
Amendment = Callable[[DataFrame, Reader], tuple[DataFrame, DataFrame]]  # (rows, read) -> (present, wanted)


def sessions_of(rows: DataFrame, read: Reader) -> tuple[DataFrame, DataFrame]:
    """All sessions of the customers that the rows speak of. Not repeatable: the rows must be new."""
    present = read(tables.CUSTOMER_SESSIONS).join(rows.select("customer_id").distinct(), on="customer_id", how="left_semi")
    return present, sessions.add_to_sessions(rows, present)


def weeks_of(rows: DataFrame, read: Reader) -> tuple[DataFrame, DataFrame]:
    """The best customers of the weeks that the rows fall into."""
    touched = rows.select(windows.week_of("event_at").alias("window_start")).distinct()
    present = read(tables.WEEKLY_TOP_CUSTOMERS).join(touched, on="window_start", how="left_semi")
    weeks = read(tables.SILVER_TRANSACTIONS).withColumn("window_start", windows.week_of("event_at"))
    return present, windows.weekly_top_customers(weeks.join(touched, on="window_start", how="left_semi"))


def minutes_of(rows: DataFrame, read: Reader) -> tuple[DataFrame, DataFrame]:
    """The minutes, in all districts, that the rows have a part in."""
    touched = districts.touched_minutes(rows)
    present = read(tables.DISTRICT_MINUTES).join(touched, on="minute", how="left_semi")
    silver = read(tables.SILVER_TRANSACTIONS).withColumn("minute", districts.minute_of("event_at"))
    needed = silver.join(districts.needed_minutes(touched), on="minute", how="left_semi").drop("minute")
    wanted = districts.district_minutes(needed, read(tables.SILVER_ACCOUNTS))
    return present, wanted.join(touched, on="minute", how="left_semi")


def enriched(rows: DataFrame, read: Reader) -> tuple[DataFrame, DataFrame]:
    """The rows themselves, with their customers."""
    present = read(tables.ENRICHED_TRANSACTIONS).join(rows.select("transaction_id"), on="transaction_id", how="left_semi")
    return present, enrichment.enrich(rows, read(tables.SILVER_CUSTOMERS))


def pairs_of(rows: DataFrame, read: Reader) -> tuple[DataFrame, DataFrame]:
    """The pairs that the rows have a part in; those that are there already come out again, unchanged."""
    return read(tables.DEBIT_CREDIT_PAIRS).limit(0), pairs.pairs_with(rows, read(tables.SILVER_TRANSACTIONS))


def debit_share(rows: DataFrame, read: Reader) -> tuple[DataFrame, DataFrame]:
    """The whole table, which has one row a day: a late row changes every later day."""
    return read(tables.DEBIT_SHARE), windows.debit_share(read(tables.DAILY_TOTALS))


def large_credits(over: Decimal) -> Amendment:
    """The rows that are credits of more than an amount."""

    def amend(rows: DataFrame, read: Reader) -> tuple[DataFrame, DataFrame]:
        large = rows.where((F.col("type") == "Credit") & (F.col("amount") > F.lit(over)))
        return read(tables.LARGE_CREDITS).limit(0), large.select(*tables.LARGE_CREDITS.columns)

    return amend
