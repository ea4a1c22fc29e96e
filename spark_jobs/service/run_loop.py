"""The run loop of an application of queries: it ends when all queries are done, on request, or on a signal."""

import gc
import logging
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Protocol

from spark_jobs.service.query_loop import SupervisedQuery

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_BATCH_SECONDS = 120  # how long a stop waits for the batch under way
_COLLECT_SECONDS = 60


class SideWork(Protocol):
    """Work of an application in a thread of its own, in parallel with its queries."""

    def serve(self) -> None:
        """Start what is asked for, if anything is; returns at once. Called about twice a second."""

    def finish(self) -> None:
        """Finish the step under way and begin no other."""


def run(queries: Sequence[SupervisedQuery], report: Callable[[bool], None], must_end: Callable[[], bool]) -> bool:
    """Poll queries until all are done (true), or a signal (SIGTERM, SIGINT) or `must_end` ends them after the current batches (false).

    `report(is_stopping)` is called about twice a second, after every query was polled. A batch that takes longer than two minutes is
    cut short; it is repeated at the next start.

    Once a minute Python's garbage is collected. What a batch made in the JVM (plans, mostly) lives until Python drops the objects that
    stand for it, which are in cycles (py4j); left to itself, Python collects so rarely that the JVM's heap fills.
    """
    with _signals() as stopping, ThreadPoolExecutor(len(queries)) as pool:

        def poll_all(is_stopping: bool) -> None:
            for query in queries:
                query.poll(pool)
            report(is_stopping)

        collected_at = time.monotonic()
        try:
            while not all(query.is_done for query in queries):
                poll_all(False)
                if stopping or must_end():
                    _finish_batches(queries, poll_all)
                    return False
                if time.monotonic() - collected_at >= _COLLECT_SECONDS:
                    gc.collect()
                    collected_at = time.monotonic()
                time.sleep(_POLL_SECONDS)
            return True
        finally:
            with ExitStack() as stops:  # all of them, also where the JVM is gone: a thread of Python's would keep the process for ever
                for query in reversed(queries):
                    stops.callback(query.stop)


def _finish_batches(queries: Sequence[SupervisedQuery], poll_all: Callable[[bool], None]) -> None:
    """Wait for the batches under way, and let no other begin unless a query still has to follow another one."""
    log.info("asked to stop: the batches under way are finished")
    deadline = time.monotonic() + _BATCH_SECONDS
    while True:
        is_over = time.monotonic() >= deadline
        for query in queries:
            if is_over or not query.is_behind:
                query.pause()
        if is_over or all(query.is_drained for query in queries):
            return
        poll_all(True)
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
