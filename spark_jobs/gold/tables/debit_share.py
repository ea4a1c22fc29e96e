"""gold.debit_share: per day that has transactions, the counts of debits and credits up to it, and the debits' share of both."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING

from spark_jobs.gold.declaration import Cell, GoldTable, Row
from spark_jobs.gold.strategies import Whole
from spark_jobs.gold.tables import daily_totals
from spark_jobs.runtime.late_spark import F, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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


def _share(made: Row) -> Row:
    """Rounded half up to 4 decimals."""
    both = (made["debits"] or 0) + (made["credits"] or 0)
    share = (Decimal(100 * made["debits"]) / Decimal(both)).quantize(Decimal("0.0001"), ROUND_HALF_UP) if both else None
    return made | {"debit_share_percent": share}


TABLE = GoldTable(
    "gold.debit_share",
    "day date, debits bigint, credits bigint, debit_share_percent decimal(7,4)",
    keys=("day",),
    time_column="day",
    made_of=daily_totals.TABLE,
    texts={
        "debits": "Number of debits up to and including the day",
        "credits": "Number of credits up to and including the day",
        "debit_share_percent": "100 * debits / (debits + credits), rounded half up",
    },
    strategy=Whole(lambda inputs: debit_share(inputs.read(daily_totals.TABLE))),
    cell=Cell(
        rows="event_on <= $day",
        made="select max(day) as day, cast(sum(debits) as bigint) as debits, cast(sum(credits) as bigint) as credits from rows",
        finish=_share,
        by_day=True,
    ),
)
