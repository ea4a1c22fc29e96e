"""Sums that several gold tables have, and how those of new rows are added to those that are there. Pure.

Windows are half open `[start, end)`, aligned to the epoch, in UTC. A window without rows has no row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.gold.declaration import Cell
from spark_jobs.lake.silver_tables import ARRIVAL
from spark_jobs.runtime.late_spark import F

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

STEP_HOURS = 2  # of sliding and cumulative windows
TOTALS = "window_start timestamp, window_end timestamp, type string, transactions bigint, amount decimal(38,2)"
CELL_OF_TOTALS = Cell(rows="event_at >= $window_start and event_at < $window_end and type = $type", made="select $count_and_sum from rows")
ADD_TOTALS = {"transactions": "t.transactions + s.transactions", "amount": "t.amount + s.amount"}
ADD_BOOKED = {
    "transactions": "t.transactions + s.transactions",
    "credits": "t.credits + s.credits",
    "debits": "t.debits + s.debits",
}
BOOKED = {  # in DataFusion's SQL, of silver rows
    "transactions": "count(*)",
    "credits": "sum(case when type = 'Credit' then amount else 0 end)",
    "debits": "sum(case when type = 'Debit' then amount else 0 end)",
}


def last_of(column: str) -> str:
    """The value of a column in the last of some silver rows by (event_at, arrival), in DataFusion's SQL."""
    return f"last_value({column} order by event_at, {', '.join(ARRIVAL)})"


def totals(transactions: DataFrame, window: Column, by: Sequence[str] = ("type",)) -> DataFrame:
    """Count and amount of silver rows per window (a struct of start and end) and the columns `by`, with the columns of TOTALS.

    Or of rows that stand for several ones, and have their number in `transactions`.
    """
    count = F.sum("transactions") if "transactions" in transactions.columns else F.count("*")
    return (
        transactions.groupBy(window.alias("window"), *by)
        .agg(count.alias("transactions"), total("amount").alias("amount"))
        .select(F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"), *by, "transactions", "amount")
    )


def steps(transactions: DataFrame) -> DataFrame:
    """Silver rows summed by type and step of two hours, which is their event_at: windows of whole steps have fewer rows to add."""
    step = F.window("event_at", f"{STEP_HOURS} hours")
    return totals(transactions, step).withColumnRenamed("window_start", "event_at").drop("window_end")


def total(amount: str, kind: str | None = None) -> Column:
    """The sum of an amount as decimal(38,2), of all rows or of those of one type."""
    value = amount if kind is None else f"case when type = '{kind}' then {amount} else cast(0 as decimal(18,2)) end"
    return F.expr(f"cast(sum(cast({value} as decimal(38,2))) as decimal(38,2))")


def day_of(event_at: str) -> Column:
    """The start of the day that holds a time."""
    return F.window(event_at, "1 day")["start"]


def is_valid_then() -> Column:
    """Whether a version holds at `event_at`: from valid_from, included, to valid_to, excluded, if it has one."""
    return F.expr("event_at >= valid_from and (valid_to is null or event_at < valid_to)")
