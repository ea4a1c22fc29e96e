"""The live queries: each window and the interval join over gold.live_transactions, in append mode. Pure: frames in, frames out.

A row of a result is written once, when the watermark has passed its end: the largest event time so far less the allowed lateness.
State is what is not closed yet, so the watermark bounds it. Results equal those of gold over the same rows, for what is closed.
Those in SQL are files of this folder (sql_tables.py).
"""

from pyspark.sql import Column, DataFrame, functions as F

from spark_jobs.gold.sums import STEP_HOURS, total
from spark_jobs.gold.tables import daily_totals, debit_credit_pairs as gold_pairs, sliding_totals
from spark_jobs.gold.tables.customer_sessions import GAP_HOURS
from spark_jobs.lake import tables
from spark_jobs.live import places, sql_queries
from spark_jobs.live.declaration import LiveQuery
from spark_jobs.live.products import alerts, debit_share, district_transactions, enriched_transactions
from spark_jobs.live.products.lookups import LOOKUPS
from spark_jobs.live.sql_tables import SqlLiveTable
from spark_jobs.live.watermarks import hide_type
from spark_jobs.runtime.settings import Settings

INTAKE = "transactions"  # the query before them, which writes gold.live_transactions


def cumulative_totals(transactions: DataFrame) -> DataFrame:
    """gold.cumulative_totals as a stream: of the sliding windows of a day, what lies on the day in which the window ends.

    So each step is closed by the watermark on its own, not with its day.
    """
    window = F.window("event_at", "1 day", f"{STEP_HOURS} hours")
    day_of_end = F.date_trunc("day", F.col("window")["end"] - F.expr("interval 1 microsecond"))
    on_its_day = transactions.withColumn("window", window).where(F.date_trunc("day", "event_at") == day_of_end)
    return _totals(on_its_day, day_of_end)


def customer_sessions(transactions: DataFrame) -> DataFrame:
    """gold.customer_sessions as a stream: rows of a customer less than 12 hours apart, the gap excluded.

    Spark also joins sessions that touch, so the gap is a millisecond shorter, which is the precision of event times.
    """
    window = F.session_window("event_at", _SHORTER_GAP).alias("window")
    sums = transactions.groupBy(window, "customer_id").agg(F.count("*").alias("transactions"), total("amount").alias("amount"))
    end = F.col("window")["end"] + F.expr("interval 1 millisecond")
    return sums.select("customer_id", F.col("window")["start"].alias("session_start"), end.alias("session_end"), *_SUMS)


def debit_credit_pairs(debits_from: DataFrame, credits_from: DataFrame) -> DataFrame:
    """gold.debit_credit_pairs as a stream: an interval join, whose state the watermark bounds by the hour between the two.

    Each side is a source with the rows of both types, and the watermark is set before the type is chosen, so that a type that does
    not come holds nothing back. Spark would choose the type first (it moves filters below watermarks), were it not hidden from it.
    """
    return gold_pairs.pair(hide_type(debits_from), hide_type(credits_from))


def switched_on(settings: Settings) -> list[LiveQuery]:
    """The queries that the application runs."""
    return [query for query in QUERIES if places.is_on(settings, query.table)]


QUERIES = (
    LiveQuery(
        tables.LIVE_DAILY_TOTALS,
        lambda read: daily_totals.daily_totals(read("live_transactions")),
        {"window": "tumbling, 1 day"},
    ),
    LiveQuery(
        tables.LIVE_SLIDING_TOTALS,
        lambda read: sliding_totals.sliding_totals(read("live_transactions")),
        {"window": f"sliding, 1 day every {STEP_HOURS} hours"},
    ),
    LiveQuery(
        tables.LIVE_CUMULATIVE_TOTALS,
        lambda read: cumulative_totals(read("live_transactions")),
        {"window": f"cumulative, {STEP_HOURS} hours up to 1 day"},
    ),
    LiveQuery(
        tables.LIVE_CUSTOMER_SESSIONS,
        lambda read: customer_sessions(read("live_transactions")),
        {"window": f"session, gap {GAP_HOURS} hours, excluded"},
    ),
    LiveQuery(
        tables.LIVE_DEBIT_CREDIT_PAIRS,
        lambda read: debit_credit_pairs(read("live_debits"), read("live_credits")),
        {"join": f"a debit at most {gold_pairs.BEFORE_HOURS} hour before a credit"},
        sources=("live_debits", "live_credits"),
        seconds=5,
    ),
    *(sql_queries.query(table) for table in tables.LIVE_IN_SQL if isinstance(table, SqlLiveTable)),
    alerts.QUERY,
    *LOOKUPS,
    district_transactions.QUERY,
    debit_share.QUERY,
    enriched_transactions.QUERY,
)
BY_NAME = {query.name: query for query in QUERIES}
_SUMS = ("transactions", "amount")
_SHORTER_GAP = f"{GAP_HOURS * 3_600_000 - 1} milliseconds"  # than that of gold


def _totals(windowed: DataFrame, start: Column) -> DataFrame:
    sums = windowed.groupBy("window", "type").agg(F.count("*").alias("transactions"), total("amount").alias("amount"))
    return sums.select(start.alias("window_start"), F.col("window")["end"].alias("window_end"), "type", *_SUMS)
