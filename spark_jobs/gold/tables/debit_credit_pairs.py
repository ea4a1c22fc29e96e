"""gold.debit_credit_pairs: a debit and a credit of one customer, the debit at most an hour before the credit. An interval join."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.gold import interval_join
from spark_jobs.gold.declaration import Cell, GoldTable
from spark_jobs.gold.strategies import Inputs, Region, Rows
from spark_jobs.lake.silver_tables import SILVER_TRANSACTIONS
from spark_jobs.runtime.late_spark import F

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
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


def hour(time: str) -> Column:
    """The hour (since the epoch) that holds a time."""
    return F.floor(F.unix_seconds(time) / 3600)


def pair_by_hour(rows: DataFrame) -> DataFrame:
    """`pair` of many rows: a row is compared with those of the customer in two hours, and not with all that the customer has."""
    both = F.array(hour("event_at"), hour("event_at") - BEFORE_HOURS)
    debit_rows = rows.withColumn("customer_id", F.struct("customer_id", hour("event_at").alias("hour")))
    credit_rows = rows.withColumn("_hour", F.explode(both)).withColumn("customer_id", F.struct("customer_id", F.col("_hour").alias("hour")))
    return pair(debit_rows, credit_rows).withColumn("customer_id", F.col("customer_id.customer_id"))


def pairs_with(new: DataFrame, transactions: DataFrame) -> DataFrame:
    """The pairs of which one side at least is new; `transactions` are the silver rows within an hour of one, themselves included.

    In one join of each of these with the new rows of the other type: the new ones are few.
    """
    is_new = new.select("transaction_id", F.lit(True).alias("_is_new"))
    rows = transactions.select("customer_id", "type", hour("event_at").alias("_hour"), "transaction_id", "event_at")
    once = rows.join(is_new, on="transaction_id", how="left").where("type = 'Debit' or _is_new is null")  # a new debit finds a new credit
    of_debit = F.col("type") == "Debit"
    beside = F.when(of_debit, hour("event_at") + BEFORE_HOURS).otherwise(hour("event_at") - BEFORE_HOURS)
    others = new.select(
        "customer_id",
        F.when(of_debit, "Credit").otherwise("Debit").alias("type"),
        F.explode(F.array(hour("event_at"), beside)).alias("_hour"),
        F.col("transaction_id").alias("_id"),
        F.col("event_at").alias("_at"),
    )

    def side(kind: str, own: str, other: str) -> Column:
        return F.when(F.col("type") == kind, F.col(own)).otherwise(F.col(other))

    debit_at, credit_at = (side(kind, "event_at", "_at") for kind in ("Debit", "Credit"))
    is_close = debit_at.between(credit_at - F.expr(f"interval {BEFORE_HOURS} hours"), credit_at)
    return (
        once.join(others, on=["customer_id", "type", "_hour"])
        .where(is_close)
        .select(
            side("Debit", "transaction_id", "_id").alias("debit_id"),
            side("Credit", "transaction_id", "_id").alias("credit_id"),
            "customer_id",
            debit_at.alias("debit_at"),
            credit_at.alias("credit_at"),
        )
    )


def pairs_in_memory(region: Region, inputs: Inputs) -> Iterator[pa.Table] | None:
    """`pairs_with` where both the new rows and those near them are in memory; None otherwise, or of too many pairs."""
    is_near = region.near("event_at", BEFORE_HOURS, key="customer_id")
    rows = None if region.few is None else inputs.held(SILVER_TRANSACTIONS, interval_join.COLUMNS, is_near)
    return None if region.few is None or rows is None else interval_join.pairs(region.few, rows, BEFORE_HOURS * 3600 * 10**6)


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
        lambda rows, _: pair_by_hour(rows),
        near=lambda rows, region, inputs: pairs_with(rows, inputs.silver(region.near("event_at", BEFORE_HOURS, key="customer_id"))),
        few=pairs_in_memory,
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
