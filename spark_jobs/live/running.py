"""The queries of the live application as they run: the intake, and the live queries that follow it."""

import json
import logging
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import Template
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs import control
from spark_jobs.control import rule_sets, scope
from spark_jobs.control.matching import find_rows
from spark_jobs.lake import few_rows, ranges, sinks, sources
from spark_jobs.lake.kept import in_memory, kept
from spark_jobs.lake.ranges import Where
from spark_jobs.lake.retention import LEAST_FILE_DAYS, MARGIN_DAYS
from spark_jobs.lake.tables import BRONZE_TRANSACTIONS, LIVE_REFUSED, LIVE_TRANSACTIONS, Table
from spark_jobs.lake.topics.transactions import TOPIC as TRANSACTIONS
from spark_jobs.lake.txn import Txn, applied
from spark_jobs.lake.versions import has_changes_from
from spark_jobs.live import checkpoints, intake, offset_logs, places
from spark_jobs.live.checkpoints import Checkpoint
from spark_jobs.live.declaration import LiveQuery, Reader
from spark_jobs.live.queries import INTAKE
from spark_jobs.runtime import session, storage
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.times import to_micros, to_text
from spark_jobs.service.query_loop import SupervisedQuery
from spark_jobs.silver import wire_schemas
from spark_jobs.silver.events import judge_whole

log = logging.getLogger(__name__)

INTAKE_SECONDS = 1.5
_SURELY_KEPT = timedelta(days=LEAST_FILE_DAYS - MARGIN_DAYS)
_COUNT_SECONDS = 5.0  # between two counts of the waiting rows, each of which reads a log
_NEWEST = Template("select max(event_at) from t where _batch <= $done")
Trigger = dict[str, Any]


class _LiveStream(SupervisedQuery):
    """What the intake and the live queries have in common: their trigger, and their status for the heartbeat."""

    def __init__(self, spark: SparkSession, settings: Settings, name: str, source: Table, seconds: float, *, available_now: bool) -> None:
        super().__init__(name, available_now=available_now)
        self._spark, self._settings, self._source, self._seconds = spark, settings, source, seconds
        self._last, self._batch, self._reached, self._watermark = ("", ""), -1, 0, ""
        self._counted_at, self._waiting = 0.0, 0

    def status(self, now: float) -> dict[str, Any]:
        """State, last batch, the watermark, and how many rows of the table that it reads wait."""
        status = self._state()
        if self._batch >= 0:
            if now - self._counted_at > _COUNT_SECONDS:
                self._counted_at, self._waiting = now, _rows_since(self._source.path(self._settings), self._reached)
            if not self._waiting:
                self._progressed = time.time()
            status |= {"batch": self._batch, "lag_records": self._waiting, "watermark": self._watermark, "dropped_rows": self.costs.dropped}
        return status | {"progressed_at": self._progressed}

    def _is_beside(self, source: str) -> bool:
        """Whether a source, as Spark describes it, is not of the table that is followed."""
        return False

    def _trigger(self) -> Trigger:
        return {"availableNow": True} if self._available_now else {"processingTime": f"{self._seconds * 1000:.0f} milliseconds"}

    def _follow(self, query: StreamingQuery) -> None:
        last = query.lastProgress
        if last is None or (last.timestamp, str(query.runId)) == self._last:  # Spark numbers a report without a batch as the batch to come
            return
        batches, dropped = self.costs.batches, self.costs.dropped
        self.costs.follow(query, last)
        if self.costs.dropped > dropped:
            log.error(
                "live %s: dropped %d rows that were accepted as in time, up to batch %d: please report",
                *(self.name, self.costs.dropped - dropped, last.batchId),
            )
        if self.costs.batches > batches or self._batch < 0:
            self._progressed = time.time()
        self._last, self._batch = (last.timestamp, str(query.runId)), last.batchId
        ends = [source.endOffset for source in last.sources if not self._is_beside(source.description)]
        self._reached = min((json.loads(end)["reservoirVersion"] for end in ends if end and end != "null"), default=self._reached)
        self._watermark = (last.eventTime or {}).get("watermark", self._watermark)
        self._recovered()


class Intake(_LiveStream):
    """bronze.transactions to gold.live_transactions and gold.live_refused, whole batches of bronze in order."""

    def __init__(self, spark: SparkSession, settings: Settings, *, available_now: bool) -> None:
        super().__init__(spark, settings, INTAKE, BRONZE_TRANSACTIONS, INTAKE_SECONDS, available_now=available_now)
        self._application = checkpoints.intake_application(settings)
        self._newest: datetime | None = None
        self._begun = 0  # the batch up to which refused rows are written

    def _open(self) -> StreamingQuery:
        done = self._done()
        self._newest = _newest(self._settings, done)
        self._begun = applied(self._settings, LIVE_REFUSED, self._application) or 0
        # The tables say where to start; what a checkpoint of an earlier start would say is the same, or wrong.
        folder = places.root(self._settings) / self.name
        storage.remove(folder)
        # Maintenance spares no commits for live, which may be stopped for any time: those that it may have removed are not read.
        start = scope.version_after(self._settings, BRONZE_TRANSACTIONS, done, since=datetime.now(UTC) - _SURELY_KEPT)
        stream = sources.stream_table(self._spark, self._settings, BRONZE_TRANSACTIONS, start, name="bronze_transactions")
        query = stream.writeStream.queryName(f"live {self.name}").option("checkpointLocation", str(folder))
        return query.trigger(**self._trigger()).foreachBatch(self._guarded(self._take)).start()

    def _done(self) -> int:
        return applied(self._settings, LIVE_TRANSACTIONS, self._application) or 0

    def _take(self, rows: DataFrame, _: int) -> None:
        """Of a micro-batch the batches of bronze after the last that was taken; those that a run which died has begun, by themselves."""
        done = self._done()
        if scope.is_rewritten(self._settings, BRONZE_TRANSACTIONS, done):  # rows that were removed may have come back by a replay
            rows = sources.read_table(rows.sparkSession, self._settings, BRONZE_TRANSACTIONS)
        rows = rows.where(F.col("_batch") > done).coalesce(sources.ALL_TASKS)  # apart, so that code is compiled without the number
        wire_schemas.learn(self._settings, TRANSACTIONS, lambda: rows)
        judged = judge_whole(rows, TRANSACTIONS, rule_sets.present(self._settings, TRANSACTIONS.name)).transform(kept)  # once
        found = intake.batches(judged)
        begun = [batch for batch in found if batch.number <= self._begun]
        if begun:
            self._end(rows.sparkSession, begun[0].number, begun[-1].number)
        if new := found[len(begun) :]:
            self._decide(judged.where(F.col("_batch") > self._begun), new)
        if found:
            log.info("%s: batches %d to %d are in", LIVE_TRANSACTIONS.name, found[0].number, found[-1].number)

    def _end(self, spark: SparkSession, first: int, last: int) -> None:
        """Take batches of which a run that died has written what it refused: that remains, whatever rules and lateness say now."""
        settings, within = self._settings, F.col("_batch").between(first, last)
        bronze, refused = (sources.read_table(spark, settings, table).where(within) for table in (BRONZE_TRANSACTIONS, LIVE_REFUSED))
        rows = intake.not_refused(bronze, refused, rule_sets.schemas(settings, TRANSACTIONS.name))
        sinks.append_batches(rows.coalesce(1), settings, LIVE_TRANSACTIONS, Txn(self._application, last))
        self._newest = _newest(settings, last)

    def _decide(self, judged: DataFrame, found: Sequence[intake.Batch]) -> None:
        settings, spark, txn = self._settings, judged.sparkSession, Txn(self._application, found[-1].number)
        marks, newest = intake.watermarks(found, self._newest, settings.allowed_lateness_seconds)
        since = marks[0][1] if marks and marks[0][0] == found[0].number else None
        accepted, refused = (_rows_after(spark, settings, table, since) for table in (LIVE_TRANSACTIONS, LIVE_REFUSED))
        known = intake.remembered(accepted, refused, found[0].number, sources.moment(since) if since else None)
        decided = intake.decide(judged, marks, known)
        # The rows of the position come last: a crash before them repeats the batch, and finds the refused ones written.
        if few_rows.are_few(sum(batch.rows for batch in found), sum(batch.size for batch in found)):
            with sinks.configured(spark, session.SMALL_PLANS):
                rows = decided.toArrow()
            is_accepted = pc.is_null(rows["reason"])
            if not pc.all(is_accepted).as_py():
                few_rows.append_batches(rows.filter(pc.invert(is_accepted)), settings, LIVE_REFUSED, txn)
            few_rows.append_batches(rows.filter(is_accepted), settings, LIVE_TRANSACTIONS, txn)
        else:
            decided = decided.transform(kept)
            sinks.append_batches(intake.refused(decided).coalesce(1), settings, LIVE_REFUSED, txn)
            sinks.append_batches(intake.accepted(decided).coalesce(1), settings, LIVE_TRANSACTIONS, txn)
        self._newest = newest
        self._watermark = to_text(marks[-1][1]) if marks else ""


class Live(_LiveStream):
    """One live query: the table that it follows to its own, each batch once."""

    def __init__(self, spark: SparkSession, settings: Settings, query: LiveQuery, before: SupervisedQuery, *, available_now: bool) -> None:
        """`before`: what writes the table that the query follows."""
        super().__init__(spark, settings, query.name, query.follows, query.seconds, available_now=available_now)
        self._live, self._before = query, before

    @property
    def is_behind(self) -> bool:
        """Whether it has yet to take what the query before it has written, or is about to: a stop leaves all live tables of one moment.

        Not where it fails: it may never get there.
        """
        if self.error is not None and self.is_idle:
            return False
        return not self._before.is_drained or has_changes_from(self._live.follows.path(self._settings), self._reached)

    def _is_beside(self, source: str) -> bool:
        beside = self._live.beside
        return beside is not None and source.endswith(f"/{beside.name.replace('.', '/')}]")

    def _open(self) -> StreamingQuery:
        frame = build(self._spark, self._settings, self._live)
        checkpoint = checkpoints.open_checkpoint(self._settings, self._live, frame)
        offset_logs.record_partitions(checkpoint.folder, self._spark.conf.get(offset_logs.PARTITIONS) or "")
        offset_logs.point_to(checkpoint.folder, checkpoint.folder)  # it may have been moved, or restored from a copy
        table, finish, beside = self._live.table, self._live.finish, self._live.beside
        if beside and checkpoint.ended == checkpoint.planned >= 0 and _is_old(checkpoint):  # maintenance may have removed what it reads
            version = beside.open(self._settings).version()
            offset_logs.take_again(checkpoint.folder, beside.name.replace(".", "_"), version)

        def append(rows: DataFrame, number: int) -> None:
            kept = rows.persist()  # one pass over the state, and all of it: Spark commits no state that was not read to its end
            try:
                count, size = kept.agg(F.count("*"), sinks.text_bytes(kept)).collect()[0]
                if count:
                    rows = finish(kept, self._settings) if finish else kept
                    rows = rows.withColumn("_live_batch", F.lit(number).cast("bigint"))  # for tables that have it
                    txn = Txn(checkpoint.application, number)
                    if few_rows.are_few(count, size):
                        found = (part.toArrow() for part in [rows.select(*table.columns)])  # only if they are not there yet
                        few_rows.append(found, self._settings, table, txn, keeps_order=True)
                    else:
                        sinks.append_once(rows.coalesce(1), self._settings, table, txn, {"upto": number})
            finally:
                kept.unpersist()

        writer = frame.writeStream.queryName(f"live {self.name}").option("checkpointLocation", str(checkpoint.folder))
        return writer.outputMode("append").trigger(**self._trigger()).foreachBatch(self._guarded(append)).start()


def stages(spark: SparkSession, settings: Settings, queries: Iterable[LiveQuery], *, available_now: bool) -> list[list[SupervisedQuery]]:
    """The intake and these queries, each in the stage after that of the table which it follows."""
    running: dict[Table, SupervisedQuery] = {LIVE_TRANSACTIONS: Intake(spark, settings, available_now=available_now)}
    found, waiting = [list(running.values())], list(queries)
    while waiting:
        ready = [query for query in waiting if query.follows in running] or waiting  # what comes before may not be asked for
        before = [running.get(query.follows, found[0][0]) for query in ready]
        lives = [Live(spark, settings, query, each, available_now=available_now) for query, each in zip(ready, before, strict=True)]
        running |= {query.table: live for query, live in zip(ready, lives, strict=True)}
        found.append([*lives])
        waiting = [query for query in waiting if query not in ready]
    return found


def build(spark: SparkSession, settings: Settings, query: LiveQuery) -> DataFrame:
    """The frame of a live query over the table that it follows, its sources named, its rows with the watermark.

    Raises SettingsError for one in SQL that cannot be such a query (live/sql_queries.py).
    """

    def read(name: str) -> DataFrame:
        rows = sources.stream_table(spark, settings, query.source(name), name=name)
        return rows.withWatermark("event_at", f"{query.lateness(settings)} seconds") if query.source(name) == query.follows else rows

    return query.build(Reader(read, settings))


def _rows_after(spark: SparkSession, settings: Settings, table: Table, time: datetime | None) -> DataFrame:
    """What tells duplicates of a table's rows whose event time is not before a time."""
    columns = [name for name in ("transaction_id", "event_at", "_batch", "reason") if name in table.columns]
    where = ranges.since("event_at", to_micros(time)) if time else Where()
    few = find_rows(settings, table, columns, None, where.datafusion, most=few_rows.MOST_ROWS)
    return sources.read_table(spark, settings, table) if few is None else in_memory(spark, few)


def _is_old(checkpoint: Checkpoint) -> bool:
    ended = (checkpoint.folder / "commits" / str(checkpoint.ended)).stat().st_mtime
    return datetime.now(UTC) - datetime.fromtimestamp(ended, UTC) > _SURELY_KEPT


def _newest(settings: Settings, done: int) -> datetime | None:
    """The largest event time of the valid rows of all batches up to `done`."""
    found = [control.value(table.open(settings), _NEWEST.substitute(done=done)) for table in (LIVE_TRANSACTIONS, LIVE_REFUSED)]
    return max((moment for moment in found if moment is not None), default=None)


def _rows_since(path: Path, version: int) -> int:
    """How many rows the commits of a table from a version on have brought."""
    delta = DeltaTable(str(path))
    commits = delta.history(delta.version() + 1 - version) if version <= delta.version() else []
    return sum(int(commit.get("operationMetrics", {}).get("numOutputRows", 1)) for commit in commits if commit["operation"] == "WRITE")
