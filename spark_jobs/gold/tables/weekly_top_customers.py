"""gold.weekly_top_customers: the three customers with most transactions of each week (UTC, from Thursday), ties by customer_id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.gold.declaration import Cell, GoldTable
from spark_jobs.gold.strategies import HOURS_A_DAY, Inputs, Parts, Region, Windows
from spark_jobs.runtime.late_spark import F, Window
from spark_jobs.runtime.text import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TOP = 3
DAYS = 7
_COLUMNS = "window_start", "window_end", "rank", "customer_id", "transactions"
_EACH = {"window_start": f"date_bin(interval '{DAYS} days', event_at)", "customer_id": "customer_id"}
_COUNT = {"transactions": "count(*)"}
_BEST = f"dense_rank() over (partition by window_start order by transactions desc) <= {TOP}"  # and those who tie with them


def week_of(event_at: str) -> Column:
    """The start of the 7-day window that holds a time."""
    return F.window(event_at, f"{DAYS} days")["start"]


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
    return ranked.withColumn("window_end", F.col("window_start") + F.expr(f"interval {DAYS} days")).selectExpr(*quoted(_COLUMNS))


def with_added(region: Region, inputs: Inputs) -> Parts:
    """The best of the new rows' weeks, among the customers with the most transactions in them."""
    counts = inputs.groups(TABLE, _EACH, _COUNT, region.on_days("event_on", DAYS - 1), _BEST)
    if counts is None:
        return TABLE.strategy.rebuilt(TABLE, region, inputs)
    weeks = region.rows.select(week_of("event_at").alias("window_start")).distinct()
    return region.among(inputs.read(TABLE), weeks), best_of_weeks(region.among(counts, weeks))


TABLE = GoldTable(
    "gold.weekly_top_customers",
    "window_start timestamp, window_end timestamp, rank int, customer_id string, transactions bigint",
    keys=("window_start", "rank"),
    time_column="window_start",
    of_windows=True,
    texts={"rank": "1 to 3, by `transactions`; ties by `customer_id`"},
    strategy=Windows(
        lambda rows, _: weekly_top_customers(rows),
        week_of,
        days=DAYS - 1,
        span=("0 hours", f"{DAYS * HOURS_A_DAY} hours"),
        added=with_added,
    ),
    cell=Cell(
        rows="event_at >= $window_start and event_at < $window_end and customer_id = $customer_id",
        made="select a.rank, m.transactions from mine m cross join above a",
        steps={
            "counts": "select customer_id, count(*) as transactions from silver "
            "where event_at >= $window_start and event_at < $window_end group by customer_id",
            "mine": "select count(*) as transactions from rows",
            "above": "select count(*) + 1 as rank from counts c cross join mine m where c.transactions > m.transactions "
            "or (c.transactions = m.transactions and c.customer_id < $customer_id)",
        },
        note="its rank is found among the counts of all customers of the week",
    ),
)
