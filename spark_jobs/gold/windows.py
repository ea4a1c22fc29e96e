"""Gold tables over windows of time: tumbling, sliding, cumulative, the best of a week, running shares. Pure.

Windows are half open `[start, end)`, aligned to the epoch, in UTC. A window without rows has no row.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.lake.tables import SLIDING_TOTALS, WEEKLY_TOP_CUSTOMERS

STEP_HOURS = 2
TOP = 3
WEEK = "7 days"
ADD_TOTALS = {"transactions": "t.transactions + s.transactions", "amount": "t.amount + s.amount"}


def daily_totals(transactions: DataFrame) -> DataFrame:
    """gold.daily_totals of some silver rows: tumbling windows of one day, per type."""
    return _totals(transactions, F.window("event_at", "1 day"))


def sliding_totals(transactions: DataFrame) -> DataFrame:
    """gold.sliding_totals of some silver rows: windows of one day that start every 2 hours, per type."""
    return _totals(transactions, F.window("event_at", "1 day", f"{STEP_HOURS} hours"))


def cumulative_totals(transactions: DataFrame) -> DataFrame:
    """gold.cumulative_totals of some silver rows: per day and type, from midnight to the end of each step of 2 hours.

    From the step that holds the first row to the end of the day. Contributions of later rows add to these, row by row.
    """
    day, step = F.window("event_at", "1 day"), F.window("event_at", f"{STEP_HOURS} hours")
    ends = F.sequence(F.col("_step")["end"], F.col("_day")["end"], F.expr(f"interval {STEP_HOURS} hours"))
    windows = transactions.withColumn("_day", day).withColumn("_step", step).withColumn("_end", F.explode(ends))
    return _totals(windows, F.struct(F.col("_day")["start"].alias("start"), F.col("_end").alias("end")))


def day_of(event_at: str) -> Column:
    """The start of the day that holds a time."""
    return F.window(event_at, "1 day")["start"]


def sliding_of(event_at: str) -> Column:
    """The starts of the 12 sliding windows that hold a time, each in a row of its own."""
    return F.window(event_at, "1 day", f"{STEP_HOURS} hours")["start"]


def week_of(event_at: str) -> Column:
    """The start of the 7-day window that holds a time."""
    return F.window(event_at, WEEK)["start"]


def weekly_top_customers(transactions: DataFrame) -> DataFrame:
    """gold.weekly_top_customers of whole weeks of silver rows: the three customers with most transactions, ties by customer_id."""
    return best_of_weeks(weekly_counts(transactions.withColumn("window_start", week_of("event_at"))))


def weekly_counts(transactions: DataFrame) -> DataFrame:
    """How many rows each customer has in a week; the rows have its `window_start`."""
    return transactions.groupBy("window_start", "customer_id").agg(F.count("*").alias("transactions"))


def best_of_weeks(counts: DataFrame) -> DataFrame:
    """gold.weekly_top_customers of `weekly_counts`."""
    best_first = Window.partitionBy("window_start").orderBy(F.desc("transactions"), "customer_id")
    ranked = counts.withColumn("rank", F.row_number().over(best_first)).where(F.col("rank") <= TOP)
    window_end = F.col("window_start") + F.expr(f"interval {WEEK}")
    return ranked.withColumn("window_end", window_end).select(*WEEKLY_TOP_CUSTOMERS.columns)


def debit_share(daily: DataFrame) -> DataFrame:
    """gold.debit_share of gold.daily_totals: per day that has transactions, the counts of all days up to it, and the debits' share.

    100 * debits / (debits + credits), rounded half up to 4 decimals.
    """
    up_to_now = Window.orderBy("day").rowsBetween(Window.unboundedPreceding, Window.currentRow)

    def count(kind: str) -> Column:
        return F.sum(F.when(F.col("type") == kind, F.col("transactions")).otherwise(0))

    days = daily.groupBy(F.to_date("window_start").alias("day")).agg(count("Debit").alias("debits"), count("Credit").alias("credits"))
    sums = days.select("day", *(F.sum(name).over(up_to_now).alias(name) for name in ("debits", "credits")))
    share = (100 * F.col("debits")).cast("decimal(20,0)") / (F.col("debits") + F.col("credits")).cast("decimal(20,0)")
    return sums.withColumn("debit_share_percent", F.round(share, 4).cast("decimal(7,4)"))


def _totals(transactions: DataFrame, window: Column) -> DataFrame:
    return (
        transactions.groupBy(window.alias("window"), "type")
        .agg(F.count("*").alias("transactions"), F.sum(F.col("amount").cast("decimal(38,2)")).cast("decimal(38,2)").alias("amount"))
        .select("window.start", "window.end", "type", "transactions", "amount")
        .toDF(*SLIDING_TOTALS.columns)
    )
