"""What happens beside the queries of an application for as long as it runs."""

import gc
import weakref

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.live.publishing import Loop
from spark_jobs.service import run_loop
from spark_jobs.service.query_loop import SupervisedQuery


class Cycle:
    """Garbage that only Python's collector finds, as what stands for the JVM's objects is."""

    def __init__(self) -> None:
        self.itself = self


class Idle(SupervisedQuery):
    """A query that never opens, and makes garbage at each look."""

    def __init__(self) -> None:
        super().__init__("idle", available_now=False)
        self.made: list[weakref.ref[Cycle]] = []

    def _open(self) -> StreamingQuery:
        raise LookupError("not here")

    def _follow(self, query: StreamingQuery) -> None:
        raise NotImplementedError

    def status(self, now: float) -> dict[str, object]:
        return {}

    def poll(self, pool: object) -> None:
        self.made.append(weakref.ref(Cycle()))


def test_what_batches_leave_behind_is_collected_while_the_application_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_loop, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(run_loop, "_COLLECT_SECONDS", 0)
    query = Idle()
    gc.disable()
    try:
        run_loop.run([query], lambda _: None, lambda: len(query.made) >= 5)
        left = [made() is not None for made in query.made]
    finally:
        gc.enable()
    assert len(left) >= 5
    assert not any(left[:4])


class Failing(Idle):
    """A query whose JVM is gone: neither a look at it nor a stop gets an answer."""

    def poll(self, pool: object) -> None:
        raise ConnectionRefusedError("its JVM is gone")

    def stop(self) -> None:
        raise ConnectionRefusedError("its JVM is gone")


def test_a_query_that_cannot_be_stopped_leaves_no_other_one_running() -> None:
    loop = Loop(lambda: None, once=False)  # of a thread that the end of the process waits for

    class Publishing(Idle):
        def stop(self) -> None:
            loop.stop()

    try:
        with pytest.raises(ConnectionRefusedError):
            run_loop.run([Failing(), Publishing()], lambda _: None, lambda: False)
        assert not loop.isActive
    finally:
        loop.stop()
