"""gold.customer_activity: per customer the transactions, sums of credits and debits, first and last event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.gold.declaration import Cell, GoldTable
from spark_jobs.gold.strategies import Keys
from spark_jobs.gold.sums import ADD_BOOKED, BOOKED, total
from spark_jobs.runtime.late_spark import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def customer_activity(transactions: DataFrame) -> DataFrame:
    """gold.customer_activity of some silver rows: per customer the rows, sums of credits and debits, first and last event."""
    return transactions.groupBy("customer_id").agg(
        F.count("*").alias("transactions"),
        total("amount", "Credit").alias("credits"),
        total("amount", "Debit").alias("debits"),
        F.min("event_at").alias("first_event_at"),
        F.max("event_at").alias("last_event_at"),
    )


TABLE = GoldTable(
    "gold.customer_activity",
    """customer_id string, transactions bigint, credits decimal(38,2), debits decimal(38,2),
    first_event_at timestamp, last_event_at timestamp""",
    keys=("customer_id",),
    time_column="last_event_at",
    strategy=Keys(
        customer_activity,
        "customer_id",
        sums=BOOKED | {"first_event_at": "min(event_at)", "last_event_at": "max(event_at)"},
        adds=ADD_BOOKED
        | {
            "first_event_at": "least(t.first_event_at, s.first_event_at)",
            "last_event_at": "greatest(t.last_event_at, s.last_event_at)",
        },
    ),
    cell=Cell(
        rows="customer_id = $customer_id",
        made="select count(*) as transactions, $booked, min(event_at) as first_event_at, max(event_at) as last_event_at from rows",
    ),
)
