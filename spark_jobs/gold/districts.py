"""gold.district_minutes: transactions per minute and district, and their mean over five minutes. Pure."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.gold.enrichment import is_valid_then

MINUTES = 5
UNKNOWN_DISTRICT = -1


def minute_of(event_at: str) -> Column:
    """The minute that holds a time."""
    return F.date_trunc("minute", F.col(event_at))


def district_minutes(transactions: DataFrame, accounts: DataFrame) -> DataFrame:
    """The table of some silver rows. Rows of the 4 minutes before must be among them for `average_5m` to be right.

    The district is that of the account's version at event_at (from valid_from, included, to valid_to, excluded), -1 where
    there is none. average_5m is the mean of `transactions` over the minute and the 4 before it; absent minutes count 0.
    """
    a = accounts.select(F.col("account_id").alias("_account_id"), "district_id", "valid_from", "valid_to")
    is_same = F.col("account_id") == F.col("_account_id")
    located = transactions.join(a, on=is_same & is_valid_then(), how="left").withColumn(
        "district_id", F.coalesce("district_id", F.lit(UNKNOWN_DISTRICT))
    )
    minutes = located.groupBy(minute_of("event_at").alias("minute"), "district_id").agg(
        F.count("*").alias("transactions"), F.sum(F.col("amount").cast("decimal(38,2)")).cast("decimal(38,2)").alias("amount")
    )
    five = Window.partitionBy("district_id").orderBy(F.unix_seconds("minute")).rangeBetween(-60 * (MINUTES - 1), 0)
    average = (F.sum("transactions").over(five).cast("decimal(18,1)") / F.lit(MINUTES)).cast("decimal(18,1)")
    return minutes.withColumn("average_5m", average)


def touched_minutes(transactions: DataFrame) -> DataFrame:
    """The minutes of the table that some silver rows have a part in: their own and the 4 after it."""
    minute = minute_of("event_at")
    return _each_minute(transactions, minute, minute + F.expr(f"interval {MINUTES - 1} minutes"))


def needed_minutes(touched: DataFrame) -> DataFrame:
    """The minutes whose silver rows say what the touched ones are: themselves and the 4 before."""
    minute = F.col("minute")
    return _each_minute(touched, minute - F.expr(f"interval {MINUTES - 1} minutes"), minute)


def _each_minute(rows: DataFrame, first: Column, last: Column) -> DataFrame:
    return rows.select(F.explode(F.sequence(first, last, F.expr("interval 1 minute"))).alias("minute")).distinct()
