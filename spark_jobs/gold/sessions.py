"""gold.customer_sessions: rows of a customer less than 12 hours apart belong to one session. Pure."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.lake.tables import CUSTOMER_SESSIONS

GAP_HOURS = 12


def customer_sessions(transactions: DataFrame) -> DataFrame:
    """gold.customer_sessions of all silver rows of some customers."""
    return _join(_alone(transactions))


def add_to_sessions(transactions: DataFrame, sessions: DataFrame) -> DataFrame:
    """The sessions of some customers after new rows: each row is a session of its own at first, then what overlaps is joined.

    `sessions` are those that these customers have so far (columns of the table; may be empty), at least all within 12 hours of a new
    row. session_end is the last event + 12 hours; a row exactly at session_end starts a new session.
    """
    return _join(_alone(transactions).unionByName(sessions))


def _alone(transactions: DataFrame) -> DataFrame:
    return transactions.select(
        "customer_id",
        F.col("event_at").alias("session_start"),
        (F.col("event_at") + F.expr(f"interval {GAP_HOURS} hours")).alias("session_end"),
        F.lit(1).cast("bigint").alias("transactions"),
        F.col("amount").cast("decimal(38,2)").alias("amount"),
    )


def _join(pieces: DataFrame) -> DataFrame:
    in_time = Window.partitionBy("customer_id").orderBy("session_start", "session_end")
    reached = F.max("session_end").over(in_time.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.when(reached.isNull() | (F.col("session_start") >= reached), 1).otherwise(0)
    return (
        pieces.withColumn("_begins", begins)
        .withColumn("_number", F.sum("_begins").over(in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)))
        .groupBy("customer_id", "_number")
        .agg(
            F.min("session_start").alias("session_start"),
            F.max("session_end").alias("session_end"),
            F.sum("transactions").alias("transactions"),
            F.sum("amount").cast("decimal(38,2)").alias("amount"),
        )
        .select(*CUSTOMER_SESSIONS.columns)
    )
