"""Bronze: every Kafka record becomes one row, bytes untouched, with its coordinates.

One application, one query a topic, append only. A row's `_batch` is counted by the table, not by the checkpoint, so it goes on
rising when a checkpoint is lost; records that bronze has already are then left out by their coordinates.
"""

import logging
import signal
from collections.abc import Callable
from types import FrameType

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs import sinks, sources
from spark_jobs.bronze.checkpoints import Checkpoint, open_checkpoint
from spark_jobs.errors import LedgerError, first_line
from spark_jobs.settings import Settings
from spark_jobs.tables import BRONZE, Table

log = logging.getLogger(__name__)

APPLICATION = "bronze"
TRIGGER_SECONDS = 2
MOST_RECORDS_A_BATCH = 500_000
_POLL_SECONDS = 1


def run(spark: SparkSession, settings: Settings, *, available_now: bool, starting_offsets: str | None) -> None:
    """Ingest the topics until told to stop (SIGTERM, SIGINT), or until all that is there now was read.

    Raises LedgerError when a query fails, after the others were stopped. A batch that a stop cuts short is repeated at the next
    start.
    """
    queries: list[StreamingQuery] = []
    stopping: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.append(number)

    handlers = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        for table in BRONZE:
            queries.append(_start(spark, settings, table, available_now, starting_offsets))
        while any(query.isActive for query in queries) and not stopping:
            spark.streams.awaitAnyTermination(_POLL_SECONDS)
            spark.streams.resetTerminated()
    except StreamingQueryException as error:
        raise LedgerError(f"ingestion stopped: {first_line(error)}") from error
    finally:
        for query in queries:
            query.stop()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if failed := [exception for query in queries if (exception := query.exception())]:
        raise LedgerError(f"ingestion stopped: {first_line(failed[0])}")
    log.info("bronze stopped%s", " on request" if stopping else ": all that was there is ingested")


def with_coordinates(records: DataFrame, batch: int) -> DataFrame:
    """Kafka's columns as bronze's: key, value and headers as they came; `_ingested_at` is the driver's clock, for people."""
    return records.select(
        "key",
        "value",
        "headers",
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
        F.lit(batch).cast("bigint").alias("_batch"),
        F.current_timestamp().alias("_ingested_at"),
        F.current_date().alias("_ingested_on"),
    )


def _start(spark: SparkSession, settings: Settings, table: Table, available_now: bool, starting_offsets: str | None) -> StreamingQuery:
    topic = table.name.split(".")[1]
    checkpoint = open_checkpoint(settings, table, topic, starting_offsets)
    log.info("%s: batches from %d, starting at %s", table.name, checkpoint.first_batch, checkpoint.starting_offsets)
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.broker())
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", checkpoint.starting_offsets)
        .option("maxOffsetsPerTrigger", MOST_RECORDS_A_BATCH)
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "true")
        .load()
    )
    writer = records.writeStream.queryName(table.name).option("checkpointLocation", str(checkpoint.folder))
    writer = writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime=f"{TRIGGER_SECONDS} seconds")
    return writer.foreachBatch(_append_to(spark, settings, table, checkpoint)).start()


def _append_to(spark: SparkSession, settings: Settings, table: Table, checkpoint: Checkpoint) -> Callable[[DataFrame, int], None]:
    def append(records: DataFrame, number: int) -> None:
        batch = checkpoint.first_batch + number
        rows = with_coordinates(records, batch)
        if checkpoint.may_replay(number):
            known = sources.read_table(records.sparkSession, settings, table).select("_topic", "_partition", "_offset")
            rows = rows.join(known, on=["_topic", "_partition", "_offset"], how="left_anti")
        sinks.append_batches(rows, settings, table, APPLICATION, batch)

    return append
