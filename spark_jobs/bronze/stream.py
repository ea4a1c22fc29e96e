"""One topic's stream into its bronze table: started, paced, and started again when it fails, whatever the others do."""

import json
import logging
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.bronze import additions, large
from spark_jobs.bronze.checkpoints import Checkpoint
from spark_jobs.bronze.pace import CATCH_UP, FIRST, Pace, next_limit
from spark_jobs.bronze.resume_state import confirm_topic, make_topics, open_checkpoint
from spark_jobs.kafka.clients import spark_options
from spark_jobs.kafka.offsets import Positions
from spark_jobs.lake import sinks, sources
from spark_jobs.lake.tables import Table
from spark_jobs.lake.txn import Txn
from spark_jobs.runtime.session import FEW_ROWS
from spark_jobs.runtime.settings import Settings
from spark_jobs.service.query_loop import Batch, SupervisedQuery

log = logging.getLogger(__name__)

TRIGGER_SECONDS = 1.5
_FEW_BYTES = 16 * 2**20  # the decoded records of a batch that is held in memory


def with_coordinates(records: DataFrame, label: str, batch: int) -> DataFrame:
    """Kafka's columns as bronze's: key, value and headers as they came; `_ingested_at` is the driver's clock, for information only.

    `label` is their `_topic`: the name of the topic, and another one after it was deleted and created again.
    """
    return records.select(
        "key",
        "value",
        "headers",
        F.lit(label).alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
        F.lit(batch).cast("bigint").alias("_batch"),
        F.current_timestamp().alias("_ingested_at"),
        F.current_date().alias("_ingested_on"),
    )


class Stream(SupervisedQuery):
    """A query that copies one topic to one table."""

    def __init__(self, spark: SparkSession, settings: Settings, table: Table, *, available_now: bool, starting_offsets: str | None) -> None:
        super().__init__(table.name, available_now=available_now)
        self.table = table
        self.topic = table.topic
        self.pace = Pace()
        self.reached: dict[int, int] | None = None  # bronze holds all records before these offsets
        self._spark, self._settings, self._starting_offsets = spark, settings, starting_offsets
        self.limit = CATCH_UP if available_now else FIRST  # records a batch
        self._batch, self._last_batch = 0, -1

    def status(self, now: float) -> dict[str, Any]:
        """Its status for the heartbeat; `now` is of the clock of `pace`."""
        status = self._state()
        if self.reached is not None and self.pace.arrived:
            records, seconds = self.pace.lag(now, self.reached)
            if not records:
                self._progressed = time.time()
            status |= {
                "pace": self.pace.state(now, self.reached),
                "batch": self._batch,
                "offsets": self.reached,
                "lag_records": records,
                "lag_seconds": round(seconds, 1),
                "arrival_rate": round(self.pace.arrival_rate(now), 1),
                "processing_rate": round(self.pace.processing_rate(now), 1),
                "limit": self.limit,
            }
        return status | {"progressed_at": self._progressed}

    def _follow(self, query: StreamingQuery) -> None:
        """Take note of the last batch that ended."""
        progress = query.lastProgress
        if progress is not None:
            self.costs.follow(query, progress)
        if progress is None or progress.batchId == self._last_batch or not progress.sources:
            return
        if ends := json.loads(progress.sources[0].endOffset):  # null in a trigger that found no partition
            self._reach(ends.get(self.topic, {}))
        records, seconds = progress.numInputRows, progress.durationMs.get("triggerExecution", 0) / 1000
        if not records:
            return
        self._last_batch, self._progressed = progress.batchId, time.time()
        self._recovered()
        self.pace.took(time.monotonic(), records, seconds)
        limit = next_limit(self.limit, records, seconds)
        if limit != self.limit and not self._available_now:
            log.info("%s: %d records took %.1f s; from now on at most %d a batch", self.table.name, records, seconds, limit)
            self.limit, self._is_changing = limit, True  # no batch begins before the query has started again

    def _reach(self, offsets: Positions) -> None:
        self.reached = {int(number): offset for number, offset in offsets.items()}

    def _open(self) -> StreamingQuery:
        """Start the query at its checkpoint. Raises LedgerError when it must not resume by itself."""
        make_topics(self._settings, [self.topic])
        checkpoint = open_checkpoint(self._settings, self.table, self.topic, self._starting_offsets)
        self._last_batch, self._starting_offsets = -1, None  # `latest` given twice would skip what came in between
        written = additions.count_written(self._settings, self.table)
        self._reach(checkpoint.resumes_at(written))
        offset = additions.batch_offset(self._settings, self.table)  # nobody else writes while this application holds the lease
        log.info("%s: batches from %d, starting at %s", self.table.name, checkpoint.first_batch + offset, checkpoint.starting_offsets)
        records = (
            self._spark.readStream.format("kafka")
            .options(**spark_options(self._settings.broker()))
            .option("kafka.isolation.level", "read_committed")
            .option("kafka.max.partition.fetch.bytes", large.POLL_BYTES)
            .option("subscribe", self.topic)
            .option("startingOffsets", checkpoint.starting_offsets)
            .option("maxOffsetsPerTrigger", self.limit)
            .option("includeHeaders", "true")
            .option("failOnDataLoss", "true")
            .load()
        )
        writer = records.writeStream.queryName(self.table.name).option("checkpointLocation", str(checkpoint.folder))
        trigger: dict[str, Any] = (
            {"availableNow": True} if self._available_now else {"processingTime": f"{TRIGGER_SECONDS * 1000:.0f} milliseconds"}
        )
        return writer.trigger(**trigger).foreachBatch(self._guarded(self._append(checkpoint, offset))).start()

    def _append(self, checkpoint: Checkpoint, offset: int) -> Batch:
        def append(records: DataFrame, number: int) -> None:
            confirm_topic(self._settings, self.topic, checkpoint)
            count = checkpoint.first_batch + number
            if additions.count_written(self._settings, self.table) < count:
                self._append_new(records, checkpoint, number, count + offset)
            self._batch = count + offset

        return append

    def _append_new(self, records: DataFrame, checkpoint: Checkpoint, number: int, batch: int) -> None:
        """Append what the query's batch `number` brings, in the way that fits its size, as the table's batch `batch`."""
        count, planned = checkpoint.first_batch + number, checkpoint.offsets(number)
        sizes, most = large.measure(self._settings, self.topic, planned), sum(map(len, planned.values()))
        rows = with_coordinates(records, checkpoint.label, batch)
        may_replay = checkpoint.may_replay(number)
        are_few = most <= sinks.MOST_IN_ONE_FILE and sizes.total is not None and sizes.total <= _FEW_BYTES
        if sizes.is_large:
            self._append_large(checkpoint, planned, count, batch)
        elif are_few and not may_replay:
            self._append_few(rows, count, batch)
        else:
            if may_replay:
                known = sources.read_table(records.sparkSession, self._settings, self.table).select("_topic", "_partition", "_offset")
                rows = rows.join(known, on=["_topic", "_partition", "_offset"], how="left_anti")
            sinks.append_batches(rows, self._settings, self.table, Txn(additions.STREAM, count), batch, are_few=are_few)

    def _append_few(self, rows: DataFrame, count: int, batch: int) -> None:
        """A batch that fits into memory: read by Spark, and committed without it, which would plan for longer than it writes."""
        with sinks.configured(rows.sparkSession, FEW_ROWS):
            few = rows.select(*self.table.columns).toArrow()
        ordered = few.sort_by([("_partition", "ascending"), ("_offset", "ascending")])
        additions.append_planned(self._settings, self.table, ordered.to_batches(), count, batch)

    def _append_large(self, checkpoint: Checkpoint, planned: large.Planned, count: int, batch: int) -> None:
        """A batch that Spark's consumer cannot read, one record at a time, once."""
        with additions.open_spool(self._settings, self.table) as spool:
            large.read(self._settings, self.table, checkpoint.label, planned, spool)
            log.info("%s: batch %d decodes to much more than it is: read without Spark, %d records", self.table.name, batch, spool.rows)
            additions.append_planned(self._settings, self.table, spool.read(), count, batch)
        self._progressed = time.time()  # Spark's own progress says nothing of records that it did not read
        self._recovered()
