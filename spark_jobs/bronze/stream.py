"""One topic's stream into its bronze table: started, paced, and started again when it fails, whatever the others do."""

import json
import logging
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.bronze import additions, records
from spark_jobs.bronze.checkpoints import Checkpoint
from spark_jobs.bronze.pace import CATCH_UP, FIRST, Pace, next_limit
from spark_jobs.bronze.resume_state import confirm_topic, make_topics, open_checkpoint
from spark_jobs.kafka.clients import spark_options
from spark_jobs.kafka.offsets import Positions
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.settings import Settings
from spark_jobs.service.costs import is_of_batch
from spark_jobs.service.query_loop import Batch, SupervisedQuery

log = logging.getLogger(__name__)

TRIGGER_SECONDS = 1.5
_REMEMBERED = 100  # batches: as many as Spark reports


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
        self._brought: dict[int, int] = {}  # by Spark's number of a batch: how many offsets it has, because Spark does not see the records

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
            self.costs.follow(query, progress, self._brought)
        if progress is None or progress.batchId == self._last_batch or not progress.sources or not is_of_batch(progress):
            return
        if ends := json.loads(progress.sources[0].endOffset):  # null in a trigger that found no partition
            self._reach(ends.get(self.topic, {}))
        brought, seconds = self._brought.get(progress.batchId, 0), progress.durationMs.get("triggerExecution", 0) / 1000
        if not brought:
            return
        self._last_batch, self._progressed = progress.batchId, time.time()
        self._recovered()
        self.pace.took(time.monotonic(), brought, seconds)
        limit = next_limit(self.limit, brought, seconds)
        if limit != self.limit and not self._available_now:
            log.info("%s: %d records took %.1f s; from now on at most %d a batch", self.table.name, brought, seconds, limit)
            self.limit, self._is_changing = limit, True  # no batch begins before the query has started again

    def _reach(self, offsets: Positions) -> None:
        self.reached = {int(number): offset for number, offset in offsets.items()}

    def _open(self) -> StreamingQuery:
        """Start the query at its checkpoint. Raises LedgerError when it must not resume by itself."""
        make_topics(self._settings, [self.topic])
        checkpoint = open_checkpoint(self._settings, self.table, self.topic, self._starting_offsets)
        self._brought = {}
        self._last_batch, self._starting_offsets = -1, None  # `latest` given twice would skip what came in between
        written = additions.count_written(self._settings, self.table)
        self._reach(checkpoint.resumes_at(written))
        offset = additions.batch_offset(self._settings, self.table)  # nobody else writes while this application holds the lease
        log.info("%s: batches from %d, starting at %s", self.table.name, checkpoint.first_batch + offset, checkpoint.starting_offsets)
        planned = (
            self._spark.readStream.format("kafka")
            .options(**spark_options(self._settings.broker()))
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", self.topic)
            .option("startingOffsets", checkpoint.starting_offsets)
            .option("maxOffsetsPerTrigger", self.limit)
            .option("failOnDataLoss", "true")
            .load()
        )
        writer = planned.writeStream.queryName(self.table.name).option("checkpointLocation", str(checkpoint.folder))
        trigger: dict[str, Any] = (
            {"availableNow": True} if self._available_now else {"processingTime": f"{TRIGGER_SECONDS * 1000:.0f} milliseconds"}
        )
        return writer.trigger(**trigger).foreachBatch(self._guarded(self._append(checkpoint, offset))).start()

    def _append(self, checkpoint: Checkpoint, offset: int) -> Batch:
        """What becomes of a batch. Spark plans it, and records when it is done; its records are read here, in bounded memory."""

        def append(_: DataFrame, number: int) -> None:
            confirm_topic(self._settings, self.topic, checkpoint)
            count, planned = checkpoint.first_batch + number, checkpoint.offsets(number)
            if additions.count_written(self._settings, self.table) < count:
                may_be_there = checkpoint.may_replay(number)
                rows = records.read(self._settings, self.table, checkpoint.label, planned, may_be_there=may_be_there)
                additions.append_planned(self._settings, self.table, rows, count, count + offset)
            self._brought[number] = sum(map(len, planned.values()))
            self._brought.pop(number - _REMEMBERED, None)
            self._batch = count + offset

        return append
