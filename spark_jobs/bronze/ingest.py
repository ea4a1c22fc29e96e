"""Bronze: every Kafka record becomes one row, bytes untouched, with its coordinates.

One application, one query a topic (stream.py), append only. A row's `_batch` is counted by the table, not by the checkpoint, so it
goes on rising when a checkpoint is lost, and after a replay or an import (additions.py); records that bronze has already are left out
by their coordinates when a checkpoint was lost.

A query that fails is started again with growing pauses, and the others go on meanwhile. Once a second the application says how it
does (heartbeat.py), and looks whether somebody wants it to end (control.py).
"""

import logging
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from pyspark.sql import SparkSession

from spark_jobs.bronze import control, upkeep
from spark_jobs.bronze.heartbeat import RUNNING, STOPPING, HeartbeatFile, identify
from spark_jobs.bronze.lag import Watcher
from spark_jobs.bronze.stream import Stream
from spark_jobs.errors import LedgerError, line_with_cause
from spark_jobs.settings import Settings
from spark_jobs.tables import Table

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_BATCH_SECONDS = 120  # how long a stop waits for the batch under way


@dataclass(frozen=True)
class Order:
    """What an application is started for. `obeyed`: the number of the last request that it need not heed (control.py)."""

    tables: tuple[Table, ...]
    available_now: bool
    starting_offsets: str | None
    obeyed: str


def run(spark: SparkSession, settings: Settings, order: Order, heart: HeartbeatFile) -> None:
    """Ingest topics until told to stop (SIGTERM, SIGINT, `run ingestion stop`), or until all that is there now was read.

    A stop ends behind the batch under way, if that takes no longer than two minutes; one that is cut short is repeated at the next
    start. With `available_now`, raises LedgerError when a query failed, after the others are done; otherwise a query that fails is
    started again until it does not.
    """
    available_now, starting = order.available_now, order.starting_offsets
    streams = [Stream(spark, settings, table, available_now=available_now, starting_offsets=starting) for table in order.tables]
    watcher = Watcher(settings.broker(), [stream.topic for stream in streams])
    watcher.start()
    heart.beat(jvm=identify(int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())))  # type: ignore[union-attr]
    reason = ": all that was there is ingested"
    with _signals() as stopping, ThreadPoolExecutor(len(streams)) as pool:
        try:
            while not all(stream.is_done for stream in streams):
                _look(streams, watcher, pool, heart, RUNNING)
                upkeep.serve(spark, settings, order.tables)
                if stopping or control.read_wanted(settings).number != order.obeyed:
                    reason = " on request"
                    _finish_batches(streams, watcher, pool, heart)
                    break
                time.sleep(_POLL_SECONDS)
        finally:
            for stream in streams:
                stream.stop()
            watcher.end()
            upkeep.finish(settings)
    if failed := [stream for stream in streams if available_now and stream.error]:
        raise LedgerError(f"ingestion stopped: {line_with_cause(failed[0].error or LedgerError())}") from failed[0].error
    log.info("bronze stopped%s", reason)


def _look(streams: Sequence[Stream], watcher: Watcher, pool: ThreadPoolExecutor, heart: HeartbeatFile, state: str) -> None:
    seen_at, ends = watcher.seen
    for stream in streams:
        stream.look(pool)
        if stream.reached is not None:
            watcher.reached(stream.topic, stream.reached)
        if stream.topic in ends and (not stream.pace.arrived or stream.pace.arrived[-1][0] < seen_at):
            stream.pace.saw(seen_at, ends[stream.topic])
    heart.beat(state=state, topics={stream.topic: stream.told(time.monotonic()) for stream in streams})


def _finish_batches(streams: Sequence[Stream], watcher: Watcher, pool: ThreadPoolExecutor, heart: HeartbeatFile) -> None:
    """Wait for the batches under way, and let no other begin."""
    log.info("asked to stop: the batches under way are finished")
    for stream in streams:
        stream.hold()
    deadline = time.monotonic() + _BATCH_SECONDS
    while not all(stream.is_idle for stream in streams) and time.monotonic() < deadline:
        _look(streams, watcher, pool, heart, STOPPING)
        time.sleep(0.1)


@contextmanager
def _signals() -> Iterator[list[int]]:
    """The signals to stop that came so far."""
    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)

    handlers = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield came
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
