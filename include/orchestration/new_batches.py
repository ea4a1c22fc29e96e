"""What starts the DAG medallion: an asset whose watcher, in the triggerer, sees that bronze holds batches that readers lack.

Events, not the clock: a run starts within seconds of a new batch, or as soon as the run before has ended, and none starts to find nothing.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any

from airflow.sdk import Asset, AssetWatcher
from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from include.orchestration.defaults import PIPELINE_DAG, RELEASE_TASK
from include.orchestration.progress import Look, Work
from spark_jobs.runtime.settings import read_settings

_CHECK_SECONDS = 1.0
_LEAST_SECONDS = 15.0  # from one event to the next: each run that succeeds makes a release, and each release keeps its files
_RETRY_SECONDS = 300.0  # after a run that left the newest release as it was: it failed
_ACTIVE = ["queued", "running"]


class Pace:
    """When the next event is due. What it remembers is lost with the triggerer, which costs one run that finds nothing at most."""

    def __init__(self) -> None:
        self._at, self._release = float("-inf"), -1

    def rests(self, now: float) -> bool:
        """Whether, at a time in seconds, no event may follow yet, whatever is due."""
        return now - self._at < _LEAST_SECONDS

    def allows(self, work: Work, now: float) -> bool:
        """Whether an event may follow the last one, at a time in seconds: soon after a run that made a release, later after another."""
        return not self.rests(now) and (work.release != self._release or now - self._at >= _RETRY_SECONDS)

    def note(self, work: Work, now: float) -> None:
        """An event for this work goes out."""
        self._at, self._release = now, work.release


class NewBatchesTrigger(BaseEventTrigger):
    """Sends an event whenever a run of medallion is due and none is queued or running, or one that runs has come to its last task.

    Airflow starts the run of an event when no other runs. A closed gate that waits for a person sends none. Airflow runs the trigger while
    medallion is switched on, and learns that when it parses the DAG's file.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What another triggerer needs to continue."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check once a second, for ever."""
        pace, look = Pace(), Look()
        while True:
            try:
                if not pace.rests(time.monotonic()) and (stage := await _stage()) is not Stage.UNDER_WAY:
                    work = await asyncio.to_thread(look.due_work, read_settings(), datetime.now(UTC), is_ending=stage is Stage.ENDING)
                    if work and pace.allows(work, time.monotonic()):
                        pace.note(work, time.monotonic())
                        yield TriggerEvent({"why": work.why})  # type: ignore[no-untyped-call]
            except Exception:  # a full disk, an unreadable file: log it and try again
                self.log.exception("cannot find out whether a run of %s is due", PIPELINE_DAG)
            await asyncio.sleep(_CHECK_SECONDS)


class Stage(Enum):
    """How far the run of medallion has come, if there is one."""

    NONE = auto()
    UNDER_WAY = auto()
    ENDING = auto()


async def _stage() -> Stage:
    """What Airflow tells triggers of the runs and tasks that are queued or running."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    runs, tasks = sync_to_async(RuntimeTaskInstance.get_dr_count), sync_to_async(RuntimeTaskInstance.get_ti_count)
    if not await runs(dag_id=PIPELINE_DAG, states=_ACTIVE):
        return Stage.NONE
    return Stage.ENDING if await tasks(dag_id=PIPELINE_DAG, task_ids=[RELEASE_TASK], states=_ACTIVE) else Stage.UNDER_WAY


NEW_BATCHES = Asset(
    name="new_batches",
    uri="ledger://bronze/new_batches",
    group="bronze",
    watchers=[AssetWatcher(name="new_batches", trigger=NewBatchesTrigger())],
)
