"""gold.daily_totals: count and amount of each day (UTC) and type. Tumbling windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.gold.declaration import GoldTable
from spark_jobs.gold.strategies import Windows
from spark_jobs.gold.sums import ADD_TOTALS, CELL_OF_TOTALS, TOTALS, day_of, steps, totals
from spark_jobs.runtime.late_spark import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def daily_totals(transactions: DataFrame) -> DataFrame:
    """gold.daily_totals of some silver rows: tumbling windows of one day, per type."""
    return totals(transactions, F.window("event_at", "1 day"))


TABLE = GoldTable(
    "gold.daily_totals",
    TOTALS,
    keys=("window_start", "type"),
    time_column="window_start",
    of_windows=True,
    texts={"amount": "Sum of the amounts"},
    strategy=Windows(lambda rows, _: daily_totals(steps(rows)), day_of, days=0, adds=ADD_TOTALS),
    cell=CELL_OF_TOTALS,
)
