"""Gold tables of one row a customer or account: each new row of silver adds to one of theirs. Pure."""

from collections.abc import Sequence
from decimal import Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.lake.tables import ARRIVAL, LARGE_CREDITS


def customer_activity(transactions: DataFrame) -> DataFrame:
    """gold.customer_activity of some silver rows: per customer the rows, sums of credits and debits, first and last event."""
    return transactions.groupBy("customer_id").agg(
        F.count("*").alias("transactions"),
        _sum("amount", "Credit").alias("credits"),
        _sum("amount", "Debit").alias("debits"),
        F.min("event_at").alias("first_event_at"),
        F.max("event_at").alias("last_event_at"),
    )


def large_credits(transactions: DataFrame, over: Decimal) -> DataFrame:
    """gold.large_credits of some silver rows: the credits of more than an amount."""
    is_large = (F.col("type") == "Credit") & (F.col("amount") > F.lit(over))
    return transactions.where(is_large).select(*LARGE_CREDITS.columns)


_ADD_SUMS = {
    "transactions": "t.transactions + s.transactions",
    "credits": "t.credits + s.credits",
    "debits": "t.debits + s.debits",
}
ADD_ACTIVITY = _ADD_SUMS | {
    "first_event_at": "least(t.first_event_at, s.first_event_at)",
    "last_event_at": "greatest(t.last_event_at, s.last_event_at)",
}


def account_balances(transactions: DataFrame, per: Sequence[str] = ("account_id",)) -> DataFrame:
    """gold.account_balances of some silver rows: per account the balance of the last row by (event_at, arrival), and sums."""
    last = F.max_by(F.struct("balance", "event_at", *ARRIVAL), F.struct("event_at", *ARRIVAL))
    return (
        transactions.groupBy(*per)
        .agg(
            last.alias("last"),
            _sum("amount", "Credit").alias("credits"),
            _sum("amount", "Debit").alias("debits"),
            F.count("*").alias("transactions"),
        )
        .select(
            *per,
            "last.balance",
            F.col("last.event_at").alias("last_event_at"),
            "credits",
            "debits",
            "transactions",
            *(f"last.{name}" for name in ("_topic", "_partition", "_offset", "_batch")),
        )
    )


_PLACE = "struct({0}.last_event_at, {0}._batch, {0}._topic, {0}._partition, {0}._offset)"
_IS_LATER = f"{_PLACE.format('s')} > {_PLACE.format('t')}"
ADD_BALANCES = _ADD_SUMS | {
    name: f"if({_IS_LATER}, s.{name}, t.{name})" for name in ("balance", "last_event_at", "_topic", "_partition", "_offset", "_batch")
}


def _sum(amount: str, kind: str | None = None) -> Column:
    value = F.col(amount) if kind is None else F.when(F.col("type") == kind, F.col(amount)).otherwise(F.lit(0).cast("decimal(18,2)"))
    return F.sum(value.cast("decimal(38,2)")).cast("decimal(38,2)")
