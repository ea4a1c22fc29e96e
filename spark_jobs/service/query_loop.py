"""A streaming query of a long-running application, started again when it fails, independently of the other queries."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.runtime.errors import LedgerError, first_line, line_with_cause
from spark_jobs.service.costs import Costs

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0  # seconds between two tries of a query that fails; doubled each time
_STEADY_SECONDS = 30  # a query of a quiet source that has not failed for so long has recovered
_WAIT_SECONDS = 60
_INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling sleep: java.lang.InterruptedException"  # Spark's PROXY_ERROR
Batch = Callable[[DataFrame, int], None]  # rows, number


class SupervisedQuery(ABC):
    """A query that is started again when it fails. `poll` is called about once a second, always by the same thread."""

    def __init__(self, name: str, *, available_now: bool) -> None:
        self.name = name
        self.error: Exception | None = None
        self.costs = Costs()
        self._available_now = available_now
        self._query: StreamingQuery | None = None
        self._opening: Future[StreamingQuery] | None = None
        self._has_ended = False  # seen by `poll`, with its error
        self._refused: LedgerError | None = None  # why its last batch was, in our words: Spark wraps them in its own
        self._is_paused = self._is_changing = False  # no batch begins any more; none but in a query with other options
        self._is_waiting = self._is_stopping = False  # a batch that must not begin waits for its query to be stopped; it is being stopped
        self._failures, self._next_try = 0, 0.0
        self._opened_at = self._progressed = time.time()

    @abstractmethod
    def _open(self) -> StreamingQuery:
        """Start the query, in a thread of its own. What it does with each batch is `_guarded`."""

    @abstractmethod
    def _follow(self, query: StreamingQuery) -> None:
        """Take note of the last batch that ended."""

    @abstractmethod
    def status(self, now: float) -> dict[str, Any]:
        """Its status for the heartbeat; `now` is of the monotonic clock."""

    @property
    def is_done(self) -> bool:
        """Whether all that was there was taken, or the one try of an `available_now` query has failed."""
        return self._available_now and self._opening is None and (self.error is not None or self._has_ended)

    @property
    def is_idle(self) -> bool:
        """Whether no batch is under way."""
        if self._opening is not None:
            return False
        return self._query is None or self._is_waiting or not self._query.isActive or not self._query.status["isTriggerActive"]

    def poll(self, pool: Executor) -> None:
        """Check the query; start it, or start it again, when that is due. A thread of `pool` opens it: opening may wait for others."""
        if self._opening is not None:
            if self._opening.done():
                self._opened(self._opening)
        elif self._query is None:
            if time.time() >= self._next_try and not self._is_paused and not self.is_done:
                self._is_waiting = self._is_stopping = False
                self._refused = None
                self._opening = pool.submit(self._open)
        else:
            is_active = self._query.isActive  # asked before its progress, so that the last batch is not missed
            self._follow(self._query)
            if not is_active and not self._available_now:
                self._ended(self._refused or self._query.exception() or LedgerError("its query was stopped"))
            elif not is_active:
                self.error, self._has_ended = self.error or self._refused or self._query.exception(), True
            elif self._is_changing and self.is_idle:
                self.stop()
                self._query, self._is_changing = None, False
            elif self.error is not None and time.time() - self._opened_at > _STEADY_SECONDS:
                self._recovered()

    @property
    def is_behind(self) -> bool:
        """Whether a stop should wait for it: it has yet to write what other queries of the application have written."""
        return False

    def pause(self) -> None:
        """Begin no further batch."""
        self._is_paused = True

    @property
    def is_drained(self) -> bool:
        """Whether no batch is under way, and none will begin."""
        return (self._is_paused or self.is_done) and self.is_idle

    def stop(self) -> None:
        """End the query now; a batch that is cut short is repeated at the next start."""
        if self._opening is not None:
            self._query = self._opening.result() if self._opening.exception() is None else None
        self._is_stopping = True
        if self._query is not None:
            self._query.stop()

    def _state(self) -> dict[str, Any]:
        """The part of `status` that every query has."""
        if self.error is not None:
            failing = {"state": "failing", "error": self._line(), "failures": self._failures, "next_try_at": self._next_try}
            return failing | self.costs.facts()
        return {"state": "running" if self._query is not None else "starting"} | self.costs.facts()

    def _guarded(self, take: Batch) -> Batch:
        """What a query does with each batch, kept from beginning while the query is about to be stopped.

        It waits in the JVM's thread of the query, which a stop interrupts. Spark tells that from a failure by the text of the error: by a
        pattern that overflows the stack on a long one, such as Java's own, whereupon the query never ends. So the error is a short one.
        """

        def guarded(rows: DataFrame, number: int) -> None:
            try:
                while self._is_paused or self._is_changing:
                    self._is_waiting = True
                    rows.sparkSession.sparkContext._jvm.java.lang.Thread.sleep(_WAIT_SECONDS * 1000)  # type: ignore[union-attr]
                take(rows, number)
            except Exception as error:
                if not self._is_stopping:
                    self._refused = error if isinstance(error, LedgerError) else None
                    raise
                if not self._is_waiting:
                    log.warning("%s: batch %d is cut short, and repeated at the next start: %s", self.name, number, first_line(error))
                raise InterruptedError(_INTERRUPTED) from None

        return guarded

    def _opened(self, opening: "Future[StreamingQuery]") -> None:
        self._opening = None
        error = opening.exception()
        if error is None:
            self._query = opening.result()
            self._opened_at = self._progressed = time.time()
        elif isinstance(error, Exception):
            self._ended(error)
        else:
            raise error

    def _ended(self, error: Exception) -> None:
        self._query, self._is_changing = None, False
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._failures)
        self.error, self._failures, self._next_try = error, self._failures + 1, time.time() + pause
        if not self._available_now:
            log.error("%s stopped: %s; the next try is in %.0f s", self.name, self._line(), pause)

    def _recovered(self) -> None:
        self.error, self._failures, self._next_try = None, 0, 0.0

    def _line(self) -> str:
        return line_with_cause(self.error)[:2000] if self.error else ""
