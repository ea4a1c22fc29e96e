"""Bronze: every Kafka record becomes one row, bytes untouched, with its coordinates.

One application with one query for each topic (stream.py), append only. The table counts `_batch`, not the checkpoint, so it keeps rising
after a lost checkpoint, a replay or an import (additions.py). After a lost checkpoint, records that bronze already has are skipped by
their coordinates.

A query that fails is restarted with growing pauses; the others continue. Once a second the application writes its
status (service/heartbeat.py) and reads whether it is to end (service/desired_state.py).
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from spark_jobs.bronze.lag import Watcher
from spark_jobs.bronze.stream import Stream
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.errors import LedgerError, line_with_cause
from spark_jobs.runtime.identity import identify
from spark_jobs.runtime.session import jvm_of
from spark_jobs.runtime.settings import Settings
from spark_jobs.service import desired_state, run_loop
from spark_jobs.service.heartbeat import RUNNING, STOPPING, HeartbeatFile
from spark_jobs.service.services import INGESTION

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """What an application is started for. `obeyed`: the number of the last request that it need not heed (service/desired_state.py)."""

    tables: tuple[Table, ...]
    available_now: bool
    starting_offsets: str | None
    obeyed: str


def run(spark: SparkSession, settings: Settings, start: Start, heart: HeartbeatFile, maintenance: run_loop.SideWork) -> None:
    """Ingest topics until asked to stop (SIGTERM, SIGINT, `run ingestion stop`), or until all that is there now was read.

    A stop ends after the current batch, if that takes no longer than two minutes; one that is cut short is repeated at the next
    start. With `available_now`, raises LedgerError when a query failed, after the others are done; otherwise a query that fails is
    started again until it does not.
    """
    available_now, starting = start.available_now, start.starting_offsets
    streams = [Stream(spark, settings, table, available_now=available_now, starting_offsets=starting) for table in start.tables]
    watcher = Watcher(settings.broker(), [stream.topic for stream in streams])
    watcher.start()
    heart.beat(jvm=identify(jvm_of(spark)))

    def report(is_stopping: bool) -> None:
        _report(streams, watcher, heart, STOPPING if is_stopping else RUNNING)
        if not is_stopping:
            maintenance.serve()

    try:
        is_all = run_loop.run(streams, report, lambda: desired_state.must_end(settings, INGESTION, start.obeyed))
    finally:
        watcher.end()
        maintenance.finish()
    if failed := [stream for stream in streams if available_now and stream.error]:
        raise LedgerError(f"ingestion stopped: {line_with_cause(failed[0].error or LedgerError())}") from failed[0].error
    log.info("bronze stopped%s", ": all that was there is ingested" if is_all else " on request")


def _report(streams: Sequence[Stream], watcher: Watcher, heart: HeartbeatFile, state: str) -> None:
    seen_at, ends = watcher.seen
    for stream in streams:
        if stream.reached is not None:
            watcher.reached(stream.topic, stream.reached)
        if stream.topic in ends and (not stream.pace.arrived or stream.pace.arrived[-1][0] < seen_at):
            stream.pace.saw(seen_at, ends[stream.topic])
    heart.beat(state=state, topics={stream.topic: stream.status(time.monotonic()) for stream in streams})
