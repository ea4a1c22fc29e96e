"""Jobs that run in this process as processes of their own would: they die where a test says, and two of them take turns.

A job reaches a point at every `kill_point` and with every lease that it gets. Only one job runs at a time; it gives the turn away at
the point that the test names, where it waits for a lease, and when it is done. What a job does side by side is done one after the
other: its threads would wait for each other's leases, which is no deadlock. So an order of commands always runs the same way.
"""

import importlib
import pkgutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import spark_jobs
from spark_jobs.lake import leases, side_by_side
from spark_jobs.lake.file_leases import FileLeases
from spark_jobs.maintenance import job as maintenance
from spark_jobs.reprocessing import backfill
from tests.support import kill_points

_LONGEST_TURN = 600
_MOST_FAILURES = 3  # one job fails, the other one fails, and the first one once more: neither can go on

Point = str | int  # the name of a point, or its number among those that a job reaches


class Killed(BaseException):
    """In place of the end of the process: no job catches it."""


class KilledInBatch(Exception):
    """`Killed` in a thread of Spark, which passes on no other kind."""


class Deadlock(Exception):
    """Two jobs wait for each other's leases."""


@dataclass
class Actor:
    """A job, and how far it has come."""

    work: Callable[[], None]
    session: SparkSession
    dies_at: Point | None = None
    yields_at: Point | None = None
    reached: list[str] = field(default_factory=list)
    died_at: str | None = None
    is_done: bool = False
    error: BaseException | None = None
    thread: threading.Thread | None = None

    def ended_by(self, _: object, error: BaseException | None, __: object) -> bool:
        """Keep what has ended the job; nobody else is told."""
        self.error = error
        return True


class Stage:
    """Runs one job, or two by turns."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._actors: list[Actor] = []
        self._turn: Actor | None = None
        self._failures = 0

    @property
    def session(self) -> SparkSession:
        """The Spark session of the job whose turn it is."""
        assert self._turn
        return self._turn.session

    def play(self, *actors: Actor) -> None:
        """Run jobs to their ends; the first one begins. What ended each is in its `error`."""
        self._actors, self._turn, self._failures = list(actors), actors[0], 0
        for actor in actors:
            actor.thread = threading.Thread(target=self._run, args=(actor,), daemon=True)
            actor.thread.start()
        for actor in actors:
            assert actor.thread
            actor.thread.join(_LONGEST_TURN)
            assert actor.is_done, f"a job does not end; it has reached {actor.reached[-3:]}"
        self._turn = None

    def reach(self, point: str) -> None:
        """A job has come to a point: it dies there, gives its turn away or goes on."""
        actor = self._turn
        if actor is None:
            return
        actor.reached.append(point)
        here = (point, len(actor.reached))
        if actor.died_at or actor.dies_at in here:
            actor.died_at = actor.died_at or point
            self.refuse_the_dead()
        if actor.yields_at in here:
            actor.yields_at = None
            self._give_turn(actor)

    def refuse_the_dead(self) -> None:
        """End a job that has died, whichever of its threads this is."""
        actor = self._turn
        if actor and actor.died_at:
            raise (Killed if threading.current_thread() is actor.thread else KilledInBatch)(actor.died_at)

    def lease(self, name: str, *, is_held: bool) -> None:
        """A job has asked for a lease: who does not get it gives the turn away."""
        if not is_held:
            self._wait_for_lease()
            return
        self._failures = 0
        self.reach(f"holding {name}")

    def _wait_for_lease(self) -> None:
        actor = self._turn
        if actor is None:
            return
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            raise Deadlock(f"two jobs wait for each other: {[each.reached[-1:] for each in self._actors]}")
        self._give_turn(actor)

    def _give_turn(self, actor: Actor) -> None:
        others = [each for each in self._actors if each is not actor and not each.is_done]
        if not others:
            return
        with self._changed:
            self._turn = others[0]
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._turn is actor, _LONGEST_TURN), "the other job does not end"

    def _run(self, actor: Actor) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn is actor, _LONGEST_TURN)
        with ExitStack() as stack:
            stack.push(actor.ended_by)
            actor.work()
        with self._changed:
            actor.is_done = True
            self._failures = 0
            self._turn = next((each for each in self._actors if not each.is_done), None)
            self._changed.notify_all()


@contextmanager
def set_up() -> Iterator[Stage]:
    """A stage on which every job of spark_jobs reaches points, for as long as this lasts."""
    stage = Stage()
    for found in pkgutil.walk_packages(spark_jobs.__path__, "spark_jobs."):
        importlib.import_module(found.name)
    start, try_take = DataStreamWriter.start, FileLeases.try_take

    def start_and_wait(writer: DataStreamWriter, *arguments: Any, **options: Any) -> StreamingQuery:
        """Queries run one after the other, in the same order every time."""
        stage.refuse_the_dead()
        query = start(writer, *arguments, **options)
        with suppress(StreamingQueryException):  # whoever started it waits for it too, and is told then
            query.awaitTermination()
        return query

    def take(held: FileLeases, name: str) -> int | None:
        epoch = try_take(held, name)
        stage.lease(name, is_held=epoch is not None)
        return epoch

    def sleep(_: float) -> None:
        stage.reach("a pause")

    with pytest.MonkeyPatch.context() as patch:
        kill_points.reach(patch, stage.reach)
        clock = {"monotonic": time.monotonic}
        patch.setattr(FileLeases, "try_take", take)
        patch.setattr(side_by_side, "ThreadPoolExecutor", lambda _, **options: ThreadPoolExecutor(1, **options))
        patch.setattr(leases, "time", SimpleNamespace(sleep=lambda _: None, **clock))
        patch.setattr(backfill, "time", SimpleNamespace(sleep=sleep, **clock))
        patch.setattr(maintenance, "time", SimpleNamespace(sleep=sleep, **clock))
        patch.setattr(DataStreamWriter, "start", start_and_wait)
        yield stage
