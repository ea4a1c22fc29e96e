"""gold.operation_totals: count and amount of each day (UTC) and operation; an empty operation is ''."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.gold.declaration import Cell, GoldTable
from spark_jobs.gold.strategies import Windows
from spark_jobs.gold.sums import ADD_TOTALS, day_of, totals
from spark_jobs.runtime.late_spark import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def operation_totals(transactions: DataFrame) -> DataFrame:
    """gold.operation_totals of some silver rows."""
    named = transactions.withColumn("operation", F.coalesce("operation", F.lit("")))
    return totals(named, F.window("event_at", "1 day"), by=("operation",))


TABLE = GoldTable(
    "gold.operation_totals",
    "window_start timestamp, window_end timestamp, operation string, transactions bigint, amount decimal(38,2)",
    keys=("window_start", "operation"),
    time_column="window_start",
    of_windows=True,
    strategy=Windows(lambda rows, _: operation_totals(rows), day_of, days=0, adds=ADD_TOTALS),
    cell=Cell(
        rows="event_at >= $window_start and event_at < $window_end and coalesce(operation, '') = $operation",
        made="select $count_and_sum from rows",
    ),
)
