"""gold.customer_sessions: rows of a customer less than 12 hours apart belong to one session. Session windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.gold.declaration import Cell, GoldTable
from spark_jobs.gold.strategies import Inputs, Keys, Parts, Region
from spark_jobs.lake.ranges import HOUR
from spark_jobs.runtime.late_spark import F, Window
from spark_jobs.runtime.text import quoted
from spark_jobs.runtime.times import to_micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GAP_HOURS = 12
NEAR_HOURS = 7 * 24  # few sessions are longer


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
        .selectExpr(*quoted(TABLE.columns))
    )


def with_added(region: Region, inputs: Inputs) -> Parts:
    """The sessions of the new rows' customers near these rows, and what becomes of them. Not repeatable: the rows would count twice."""
    near = inputs.read(TABLE, region.near("session_start", GAP_HOURS, end="session_end", key="customer_id"))
    present = region.among(near, region.rows.select("customer_id").distinct())
    return present, add_to_sessions(region.rows, present)


def overlapping(region: Region, inputs: Inputs) -> tuple[Parts, DataFrame]:
    """The sessions that overlap a range of times, as they are and as the rows of the days around make them, and whose reach beyond these.

    With a session come all that it overlaps, in the table or as it should be: other sessions than these are not concerned.
    """
    start, end = map(to_micros, region.span or ())
    made = inputs.hold(customer_sessions(inputs.silver(region.near("event_at", NEAR_HOURS))))
    present = inputs.read(TABLE, region.near("session_start", NEAR_HOURS, end="session_end"))
    joined = _join(made.unionByName(present)).where(region.near("session_start", 0, end="session_end").sql)
    reach = inputs.hold(joined.selectExpr("customer_id", "session_start as _from", "session_end as _to"))

    def concerned(sessions: DataFrame) -> DataFrame:
        is_within = (F.col("session_start") >= F.col("_from")) & (F.col("session_end") <= F.col("_to"))
        return sessions.join(reach, on="customer_id").where(is_within).selectExpr(*quoted(TABLE.columns))

    hour = HOUR.seconds * 1_000_000
    first, last = start - (NEAR_HOURS - GAP_HOURS) * hour, end + NEAR_HOURS * hour
    far = reach.where(f"unix_micros(_from) < {first} or unix_micros(_to) > {last}").select("customer_id").distinct()
    return (concerned(present), concerned(made)), far


TABLE = GoldTable(
    "gold.customer_sessions",
    "customer_id string, session_start timestamp, session_end timestamp, transactions bigint, amount decimal(38,2)",
    keys=("customer_id", "session_start"),
    time_column="session_start",
    end_column="session_end",
    deletion_vectors=True,
    of_windows=True,
    texts={
        "session_start": "Event time of the first transaction",
        "session_end": "Event time of the last transaction, and 12 hours",
        "amount": "Sum of the amounts",
    },
    strategy=Keys(customer_sessions, "customer_id", added=with_added, near=overlapping),
    cell=Cell(
        rows="event_at > $session_start - interval '12 hours' and event_at < $session_end and customer_id = $customer_id",
        made="select min(event_at) as session_start, max(event_at) + interval '12 hours' as session_end, $count_and_sum "
        "from sessions group by number",
        steps={  # whatever is less than 12 hours before it is a part of it, and would make another session of these rows
            "gaps": "select *, case when $micros - lag($micros) over (order by $in_time) < 12 * $hour then 0 else 1 end as begins "
            "from rows",
            "sessions": "select *, sum(begins) over (order by $in_time) as number from gaps",
        },
    ),
)
