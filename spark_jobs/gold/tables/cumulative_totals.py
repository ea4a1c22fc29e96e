"""gold.cumulative_totals: count and amount per type from midnight to the end of each step of two hours. Cumulative windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.gold.declaration import GoldTable
from spark_jobs.gold.strategies import Windows
from spark_jobs.gold.sums import ADD_TOTALS, CELL_OF_TOTALS, STEP_HOURS, TOTALS, day_of, steps, totals
from spark_jobs.runtime.late_spark import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def cumulative_totals(transactions: DataFrame) -> DataFrame:
    """gold.cumulative_totals of some silver rows: per day and type, from midnight to the end of each step of 2 hours.

    From the step that holds the first row to the end of the day. Contributions of later rows add to these, row by row.
    """
    day, step = F.window("event_at", "1 day"), F.window("event_at", f"{STEP_HOURS} hours")
    ends = F.sequence(F.col("_step")["end"], F.col("_day")["end"], F.expr(f"interval {STEP_HOURS} hours"))
    windows = transactions.withColumn("_day", day).withColumn("_step", step).withColumn("_end", F.explode(ends))
    return totals(windows, F.struct(F.col("_day")["start"].alias("start"), F.col("_end").alias("end")))


TABLE = GoldTable(
    "gold.cumulative_totals",
    TOTALS,
    keys=("window_start", "window_end", "type"),
    time_column="window_start",
    of_windows=True,
    texts={
        "window_end": "End of the step, not included",
        "window_start": "Start of the day",
        "amount": "Sum of the amounts since the start of the day",
        "transactions": "Number of transactions since the start of the day",
    },
    strategy=Windows(lambda rows, _: cumulative_totals(steps(rows)), day_of, days=0, adds=ADD_TOTALS),
    cell=CELL_OF_TOTALS,
)
