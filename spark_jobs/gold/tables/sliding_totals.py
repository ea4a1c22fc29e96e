"""gold.sliding_totals: count and amount per type of windows of a day that start every two hours. Sliding windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.gold.declaration import GoldTable
from spark_jobs.gold.strategies import Windows
from spark_jobs.gold.sums import ADD_TOTALS, CELL_OF_TOTALS, STEP_HOURS, TOTALS, steps, totals
from spark_jobs.runtime.late_spark import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def sliding_totals(transactions: DataFrame) -> DataFrame:
    """gold.sliding_totals of some silver rows: windows of one day that start every 2 hours, per type."""
    return totals(transactions, F.window("event_at", "1 day", f"{STEP_HOURS} hours"))


def sliding_of(event_at: str) -> Column:
    """The starts of the 12 sliding windows that hold a time, each in a row of its own."""
    return F.window(event_at, "1 day", f"{STEP_HOURS} hours")["start"]


TABLE = GoldTable(
    "gold.sliding_totals",
    TOTALS,
    keys=("window_start", "type"),
    time_column="window_start",
    of_windows=True,
    texts={"amount": "Sum of the amounts"},
    strategy=Windows(lambda rows, _: sliding_totals(steps(rows)), sliding_of, days=1, adds=ADD_TOTALS),
    cell=CELL_OF_TOTALS,
)
