"""gold.debit_credit_pairs: a debit and a credit of one customer, the debit at most an hour before the credit. An interval join."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.gold.declaration import Cell, GoldTable
from spark_jobs.gold.strategies import Rows
from spark_jobs.runtime.late_spark import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BEFORE_HOURS = 1


def pair(debits_from: DataFrame, credits_from: DataFrame) -> DataFrame:
    """Every pair of a debit of the first frame and a credit of the second, both silver rows (interval join).

    debit_at lies between credit_at - 1 h and credit_at, both ends included.
    """
    debit_rows = debits_from.where("type = 'Debit'").select(
        F.col("transaction_id").alias("debit_id"), "customer_id", F.col("event_at").alias("debit_at")
    )
    credit_rows = credits_from.where("type = 'Credit'").select(
        F.col("transaction_id").alias("credit_id"), F.col("customer_id").alias("_customer_id"), F.col("event_at").alias("credit_at")
    )
    is_same = F.col("customer_id") == F.col("_customer_id")
    is_close = F.col("debit_at").between(F.col("credit_at") - F.expr(f"interval {BEFORE_HOURS} hours"), F.col("credit_at"))
    joined = debit_rows.join(credit_rows, on=is_same & is_close, how="inner")
    return joined.select("debit_id", "credit_id", "customer_id", "debit_at", "credit_at")


def pair_by_hour(debits_from: DataFrame, credits_from: DataFrame) -> DataFrame:
    """`pair` of many rows: a row is compared with those of the customer in two hours, and not with all that the customer has."""

    def hour(time: str) -> Column:
        return F.floor(F.unix_seconds(time) / 3600)

    both = F.array(hour("event_at"), hour("event_at") - BEFORE_HOURS)
    debit_rows = debits_from.withColumn("customer_id", F.struct("customer_id", hour("event_at").alias("hour")))
    credit_rows = credits_from.withColumn("_hour", F.explode(both)).withColumn(
        "customer_id", F.struct("customer_id", F.col("_hour").alias("hour"))
    )
    return pair(debit_rows, credit_rows).withColumn("customer_id", F.col("customer_id.customer_id"))


def pairs_with(new: DataFrame, transactions: DataFrame) -> DataFrame:
    """The pairs of which one side at least is new; `transactions` are the silver rows within an hour of one, themselves included."""
    return pair_by_hour(new, transactions).unionByName(pair_by_hour(transactions, new)).distinct()


TABLE = GoldTable(
    "gold.debit_credit_pairs",
    "debit_id string, credit_id string, customer_id string, debit_at timestamp, credit_at timestamp",
    keys=("debit_id", "credit_id"),
    time_column="debit_at",
    merge_keys=("debit_id", "credit_id", "debit_at"),
    deletion_vectors=True,
    texts={
        "debit_id": "Id of the debit",
        "credit_id": "Id of the credit",
        "debit_at": "Event time of the debit",
        "credit_at": "Event time of the credit",
    },
    strategy=Rows(
        lambda rows, _: pair_by_hour(rows, rows),
        near=lambda rows, region, inputs: pairs_with(rows, inputs.silver(region.near("event_at", BEFORE_HOURS))),
        ids=("debit_id", "credit_id"),
        times=("debit_at", "credit_at"),
        hours=BEFORE_HOURS,
    ),
    cell=Cell(
        rows="event_at >= $debit_at and event_at <= $credit_at and transaction_id in ($debit_id, $credit_id)",
        made="select d.transaction_id as debit_id, c.transaction_id as credit_id, d.customer_id, d.event_at as debit_at, "
        "c.event_at as credit_at from rows d join rows c on d.customer_id = c.customer_id and d.type = 'Debit' and c.type = 'Credit' "
        "where arrow_cast(c.event_at, 'Int64') - arrow_cast(d.event_at, 'Int64') between 0 and $hour",
    ),
)
