"""The outbox as a part of the live application: supervised like its queries, but a loop of Python's, which has nothing to plan."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event
from typing import Any

from spark_jobs.live.outbox import Outbox
from spark_jobs.live.publications import TRANSACTIONS, Publication
from spark_jobs.runtime.settings import Settings
from spark_jobs.service.query_loop import SupervisedQuery

_SECONDS = 1.0


class Loop:
    """Calls a function again and again in a thread, until it fails or is stopped; with `once`, one time. Answers as a query of Spark's."""

    def __init__(self, step: Callable[[], None], *, once: bool) -> None:
        self._step, self._once, self._stopped, self._is_busy = step, once, Event(), True
        pool = ThreadPoolExecutor(1, thread_name_prefix="publishing")
        self._run = pool.submit(self._repeat)
        pool.shutdown(wait=False)  # the thread ends with the loop

    @property
    def isActive(self) -> bool:  # noqa: N802 - as Spark calls it
        """Whether it still runs."""
        return not self._run.done()

    @property
    def status(self) -> dict[str, Any]:
        """Whether a step is under way."""
        return {"isTriggerActive": self._is_busy and self.isActive}

    def exception(self) -> BaseException | None:
        """Why it has ended, if it has failed."""
        return self._run.exception()

    def stop(self) -> None:
        """End it, after the step under way."""
        self._stopped.set()
        wait([self._run])

    def _repeat(self) -> None:
        while not self._stopped.is_set():
            self._is_busy = True
            self._step()
            self._is_busy = False
            if self._once:
                return
            self._stopped.wait(_SECONDS)


class Publishing(SupervisedQuery):
    """A live table to its topics, as soon as a batch of it is complete."""

    def __init__(self, settings: Settings, of: Publication = TRANSACTIONS, *, available_now: bool) -> None:
        super().__init__(of.name, available_now=available_now)
        self._settings, self._of, self._published = settings, of, 0
        self._batch: int | None = None

    def status(self, now: float) -> dict[str, Any]:
        """State, the batch up to which all is published, and the rows since the start."""
        return self._state() | {"batch": self._batch, "published_rows": self._published, "progressed_at": self._progressed}

    def _open(self) -> Any:
        outbox = Outbox(self._settings, self._of)

        def step() -> None:
            upto = self._of.ready(self._settings)
            if not self._is_paused and upto is not None and (self._batch is None or upto > self._batch):
                self._published += outbox.publish(upto)
                self._batch, self._progressed = upto, time.time()

        self._batch = None  # the outbox knows better
        return Loop(step, once=self._available_now)

    def _follow(self, query: Any) -> None:
        if query.isActive and self._batch is not None:
            self._recovered()
