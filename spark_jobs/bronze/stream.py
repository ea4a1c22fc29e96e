"""One topic's stream into its bronze table: started, paced, and started again when it fails, whatever the others do."""

import json
import logging
import time
from concurrent.futures import Executor, Future
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs import sinks, sources
from spark_jobs.bronze import additions, heartbeat
from spark_jobs.bronze.checkpoints import Checkpoint, confirm_topic, open_checkpoint
from spark_jobs.bronze.offsets import Positions
from spark_jobs.bronze.pace import FIRST, Pace, next_limit
from spark_jobs.bronze.standing import make_topics
from spark_jobs.errors import LedgerError, line_with_cause
from spark_jobs.settings import Settings
from spark_jobs.tables import Table

log = logging.getLogger(__name__)

TRIGGER_SECONDS = 1.5
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0  # seconds between two tries of a stream that fails; doubled each time
_STEADY_SECONDS = 30  # a query of a quiet topic that has not failed for so long is well again


class _HeldError(Exception):
    """A batch that must not begin, because its query is being stopped."""


def with_coordinates(records: DataFrame, label: str, batch: int) -> DataFrame:
    """Kafka's columns as bronze's: key, value and headers as they came; `_ingested_at` is the driver's clock, for people.

    `label` is their `_topic`: the name of the topic, and another one after it was deleted and made anew.
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


class Stream:
    """A query that copies one topic to one table. `look` is called about once a second, always by the same thread."""

    def __init__(self, spark: SparkSession, settings: Settings, table: Table, *, available_now: bool, starting_offsets: str | None) -> None:
        self.table = table
        self.topic = table.topic
        self.pace = Pace()
        self.reached: dict[int, int] | None = None  # behind which offsets bronze holds all records
        self.error: Exception | None = None
        self._spark, self._settings = spark, settings
        self._available_now, self._starting_offsets = available_now, starting_offsets
        self._query: StreamingQuery | None = None
        self._opening: Future[StreamingQuery] | None = None
        self._limit, self._batch, self._last_batch = FIRST, 0, -1
        self._is_held = self._is_changing = False  # no batch begins any more; none but in a query with another limit
        self._failures, self._next_try = 0, 0.0
        self._opened_at = self._progressed = time.time()

    @property
    def is_done(self) -> bool:
        """Whether all that was there is ingested, or the one try of an `available_now` stream has failed."""
        return (
            self._available_now
            and self._opening is None
            and (self.error is not None or (self._query is not None and not self._query.isActive))
        )

    def look(self, pool: Executor) -> None:
        """See how the query does; start it, or start it again, when it is time to. Opening it asks Kafka, so a thread of `pool` does."""
        if self._opening is not None:
            if self._opening.done():
                self._opened(self._opening)
        elif self._query is None:
            if time.time() >= self._next_try and not self._is_held and not self.is_done:
                self._opening = pool.submit(self._open)
        else:
            is_active = self._query.isActive  # asked before its progress, so that the last batch is not missed
            self._follow(self._query)
            if not is_active and not self._available_now:
                self._ended(self._query.exception() or LedgerError("its query was stopped"))
            elif not is_active:
                self.error = self.error or self._query.exception()
            elif self.error is not None and time.time() - self._opened_at > _STEADY_SECONDS:
                self._recovered()

    def hold(self) -> None:
        """Let no batch begin any more."""
        self._is_held = True

    @property
    def is_idle(self) -> bool:
        """Whether no batch is under way."""
        if self._opening is not None:
            return False
        return self._query is None or not self._query.isActive or not self._query.status["isTriggerActive"]

    def stop(self) -> None:
        """End the query now; a batch that is cut short is repeated at the next start."""
        if self._opening is not None:
            self._query = self._opening.result() if self._opening.exception() is None else None
        if self._query is not None:
            self._query.stop()

    def told(self, now: float) -> dict[str, Any]:
        """What the heartbeat says of it; `now` is of the clock of `pace`."""
        if self.error is not None:
            told: dict[str, Any] = {"state": "failing", "error": self._line(), "failures": self._failures, "next_try_at": self._next_try}
        else:
            told = {"state": heartbeat.RUNNING if self._query is not None else heartbeat.STARTING}
        if self.reached is not None and self.pace.arrived:
            records, seconds = self.pace.lag(now, self.reached)
            if not records:
                self._progressed = time.time()
            told |= {
                "pace": self.pace.state(now, self.reached),
                "batch": self._batch,
                "offsets": self.reached,
                "lag_records": records,
                "lag_seconds": round(seconds, 1),
                "arrival_rate": round(self.pace.arrival_rate(now), 1),
                "processing_rate": round(self.pace.processing_rate(now), 1),
                "limit": self._limit,
            }
        return told | {"progressed_at": self._progressed}

    def _opened(self, opening: "Future[StreamingQuery]") -> None:
        self._opening = None
        error = opening.exception()
        if error is None:
            self._query, self._last_batch = opening.result(), -1
            self._opened_at = self._progressed = time.time()
        elif isinstance(error, Exception):
            self._ended(error)
        else:
            raise error

    def _ended(self, error: Exception) -> None:
        """The query failed, or was held back: for good, or so that it starts anew with another limit."""
        self._query = None
        if self._is_held or (self._is_changing and _HeldError.__name__ in str(error)):
            self._is_changing = False
            return
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._failures)
        self.error, self._failures, self._next_try = error, self._failures + 1, time.time() + pause
        if not self._available_now:
            log.error("%s stopped: %s; the next try is in %.0f s", self.table.name, self._line(), pause)

    def _recovered(self) -> None:
        self.error, self._failures, self._next_try = None, 0, 0.0

    def _line(self) -> str:
        return line_with_cause(self.error)[:2000] if self.error else ""

    def _follow(self, query: StreamingQuery) -> None:
        """Take note of the last batch that ended."""
        progress = query.lastProgress
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
        limit = next_limit(self._limit, records, seconds)
        if limit != self._limit and not self._available_now:
            log.info("%s: %d records took %.1f s; from now on at most %d a batch", self.table.name, records, seconds, limit)
            self._limit, self._is_changing = limit, True  # the next batch is refused, and the query starts anew

    def _reach(self, offsets: Positions) -> None:
        self.reached = {int(number): offset for number, offset in offsets.items()}

    def _open(self) -> StreamingQuery:
        """Start the query where its checkpoint stands. Raises LedgerError when it must not go on by itself."""
        make_topics(self._settings, [self.topic])
        checkpoint = open_checkpoint(self._settings, self.table, self.topic, self._starting_offsets)
        self._starting_offsets = None  # `latest` given twice would skip what came in between
        written = additions.count_written(self._settings, self.table)
        self._reach(checkpoint.resumes_at(written))
        lift = additions.lift(self._settings, self.table)  # nobody else writes while this application holds the lease
        log.info("%s: batches from %d, starting at %s", self.table.name, checkpoint.first_batch + lift, checkpoint.starting_offsets)
        records = (
            self._spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self._settings.broker())
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", self.topic)
            .option("startingOffsets", checkpoint.starting_offsets)
            .option("maxOffsetsPerTrigger", self._limit)
            .option("includeHeaders", "true")
            .option("failOnDataLoss", "true")
            .load()
        )
        writer = records.writeStream.queryName(self.table.name).option("checkpointLocation", str(checkpoint.folder))
        trigger: dict[str, Any] = (
            {"availableNow": True} if self._available_now else {"processingTime": f"{TRIGGER_SECONDS * 1000:.0f} milliseconds"}
        )
        return writer.trigger(**trigger).foreachBatch(self._append(checkpoint, lift)).start()

    def _append(self, checkpoint: Checkpoint, lift: int) -> Any:
        def append(records: DataFrame, number: int) -> None:
            if self._is_held or self._is_changing:
                raise _HeldError
            confirm_topic(self._settings, self.topic, checkpoint)
            count = checkpoint.first_batch + number
            rows = with_coordinates(records, checkpoint.label, count + lift)
            if checkpoint.may_replay(number):
                known = sources.read_table(records.sparkSession, self._settings, self.table).select("_topic", "_partition", "_offset")
                rows = rows.join(known, on=["_topic", "_partition", "_offset"], how="left_anti")
            most = checkpoint.most_records(number)
            sinks.append_batches(rows, self._settings, self.table, additions.STREAM, count, batch=count + lift, at_most=most)
            self._batch = count + lift

        return append
