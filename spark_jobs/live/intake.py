"""The rows that live queries see: valid, the first of their id, and not late. Decided here, batch by batch of bronze.

Spark drops late rows without a word, by the watermark of the micro-batch before, so what it drops depends on how its micro-batches
cut the input. These decisions depend on bronze alone, are stricter than Spark's (no live query drops a row that was accepted), and
every row that is refused is kept with the watermark that refused it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame, Window, functions as F

from expectations.wire_format import WireSchema
from spark_jobs.lake.sinks import text_bytes
from spark_jobs.lake.tables import ARRIVAL, BRONZE_TRANSACTIONS, LIVE_REFUSED, LIVE_TRANSACTIONS
from spark_jobs.lake.topics.transactions import TOPIC as TRANSACTIONS
from spark_jobs.runtime.times import from_micros, to_micros
from spark_jobs.silver.events import batch_watermarks
from spark_jobs.silver.records import parse_records, type_records

LATE, DUPLICATE, INVALID = "late", "duplicate", "invalid"


@dataclass(frozen=True)
class Batch:
    """A batch of bronze among judged rows: the largest event time (UTC) of its valid rows, how many rows it has, and bytes of texts."""

    number: int
    newest: datetime | None
    rows: int
    size: int


def batches(judged: DataFrame) -> list[Batch]:
    """The batches of judged rows, in order."""
    newest = F.unix_micros(F.max("event_at"))
    found = judged.groupBy("_batch").agg(newest, F.count("*"), text_bytes(judged)).collect()
    return sorted((Batch(number, from_micros(at), rows, size) for number, at, rows, size in found), key=lambda batch: batch.number)


def watermarks(
    found: Sequence[Batch], newest: datetime | None, lateness_seconds: int
) -> tuple[list[tuple[int, datetime]], datetime | None]:
    """The watermark (UTC) of each batch that has one, and the newest event time up to the last.

    The watermark is the largest event time among valid rows of earlier batches, less the allowed lateness. `newest` is the largest
    event time of all batches before these.
    """
    times = [(batch.number, batch.newest) for batch in found]
    largest = max((at for at in (newest, *(at for _, at in times)) if at is not None), default=None)
    return batch_watermarks(times, newest, lateness_seconds), largest


def decide(judged: DataFrame, marks: list[tuple[int, datetime]], known: DataFrame) -> DataFrame:
    """Add to rows judged by silver's rules `watermark_at`, and `reason`: why a row is refused; null for one that is accepted.

    late: event_at is not after the watermark of its batch. duplicate: an earlier row of its id, itself not late, is remembered;
    an id is remembered until the watermark passes the event time of its newest such row. `known` are such rows of earlier batches
    (transaction_id, event_at): those after the first of these watermarks suffice.
    """
    by_batch = F.from_json(F.lit(json.dumps({batch: to_micros(time) for batch, time in marks})), "map<string,bigint>")
    mark = F.timestamp_micros(F.try_element_at(by_batch, F.col("_batch").cast("string")))
    before = known.groupBy("transaction_id").agg(F.max("event_at").alias("_known_at"))
    marked = judged.withColumn("watermark_at", mark).join(before, on="transaction_id", how="left")

    def is_after(time: Column) -> Column:
        return F.col("watermark_at").isNull() | (time > F.col("watermark_at"))

    is_in_time = F.col("_is_valid") & is_after(F.col("event_at"))
    earlier = Window.partitionBy("transaction_id").orderBy(*ARRIVAL).rowsBetween(Window.unboundedPreceding, -1)
    remembered_at = F.greatest(F.max(F.when(is_in_time, F.col("event_at"))).over(earlier), "_known_at")
    is_remembered = remembered_at.isNotNull() & is_after(remembered_at)
    reason = F.when(~F.col("_is_valid"), INVALID).when(~is_in_time, LATE).when(is_remembered, DUPLICATE)
    return marked.select(reason.alias("reason"), "watermark_at", *LIVE_TRANSACTIONS.columns)


def accepted(decided: DataFrame) -> DataFrame:
    """gold.live_transactions of decided rows."""
    return decided.where(F.col("reason").isNull()).select(*LIVE_TRANSACTIONS.columns)


def refused(decided: DataFrame) -> DataFrame:
    """gold.live_refused of decided rows."""
    return decided.where(F.col("reason").isNotNull()).select(*LIVE_REFUSED.columns)


def not_refused(bronze: DataFrame, refusals: DataFrame, schemas: Sequence[WireSchema]) -> DataFrame:
    """gold.live_transactions of bronze rows of which gold.live_refused has all that were refused: no rule is asked."""
    others = bronze.join(refusals, on=list(BRONZE_TRANSACTIONS.keys), how="left_anti")
    return type_records(parse_records(others, TRANSACTIONS, schemas), TRANSACTIONS).select(*LIVE_TRANSACTIONS.columns)


def remembered(transactions: DataFrame, refusals: DataFrame, first: int, since: Column | None) -> DataFrame:
    """The rows of batches before `first` by which duplicates are known: accepted ones and duplicates, after a watermark if there is one.

    A run that died may have left refused rows of later batches, which are decided again.
    """
    names = ("transaction_id", "event_at", "_batch")
    rows = transactions.select(*names).unionByName(refusals.where(F.col("reason") == DUPLICATE).select(*names))
    earlier = rows.where(F.col("_batch") < first).drop("_batch")
    return earlier if since is None else earlier.where(F.col("event_at") > since)
