"""What starts the DAG medallion: an asset whose watcher, in the triggerer, sees that bronze holds batches that readers lack.

Events, not the clock: a run starts within seconds of a new batch, and none starts to find nothing.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Asset, AssetWatcher
from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from include.orchestration.defaults import PIPELINE_DAG
from include.orchestration.progress import due_work
from spark_jobs.runtime.settings import read_settings

_CHECK_SECONDS = 1.0
_LEAST_SECONDS = 15.0  # from one event to the next: each run that succeeds makes a release, and each release keeps its files
_RETRY_SECONDS = 300.0  # after a run that left the newest release as it was: it failed


class Pace:
    """When the next event is due. What it remembers is lost with the triggerer, which costs one run that finds nothing at most."""

    def __init__(self) -> None:
        self._at, self._release = float("-inf"), -1

    def rests(self, now: float) -> bool:
        """Whether, at a time in seconds, no event may follow yet, whatever is due."""
        return now - self._at < _LEAST_SECONDS

    def allows(self, release: int, now: float) -> bool:
        """Whether an event may follow the last one, at a time in seconds: soon after a new release, later without one."""
        return not self.rests(now) and (release != self._release or now - self._at >= _RETRY_SECONDS)

    def note(self, release: int, now: float) -> None:
        """An event goes out while this release is the newest one."""
        self._at, self._release = now, release


class NewBatchesTrigger(BaseEventTrigger):
    """Sends an event whenever a run of medallion is due and none is queued or running. A closed gate that waits for a person sends none.

    Airflow runs it while medallion is switched on, and learns that when it parses the DAG's file.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What another triggerer needs to continue."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check once a second, for ever; while the run of the last event is under way, only whether it still is."""
        pace, is_under_way = Pace(), False
        while True:
            try:
                if is_under_way and not pace.rests(time.monotonic()):
                    is_under_way = bool(await _count_active_runs())
                work = None if is_under_way else await asyncio.to_thread(due_work, read_settings(), datetime.now(UTC))
                if work and pace.allows(work.release, time.monotonic()) and not await _count_active_runs():
                    pace.note(work.release, time.monotonic())
                    is_under_way = True  # Airflow makes the run a moment later
                    yield TriggerEvent({"why": work.why})  # type: ignore[no-untyped-call]
            except Exception:  # a full disk, an unreadable file: log it and try again
                self.log.exception("cannot find out whether a run of %s is due", PIPELINE_DAG)
            await asyncio.sleep(_CHECK_SECONDS)


async def _count_active_runs() -> int:
    """How many runs of medallion are queued or running, by what Airflow offers to triggers."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    return await sync_to_async(RuntimeTaskInstance.get_dr_count)(dag_id=PIPELINE_DAG, states=["queued", "running"])


NEW_BATCHES = Asset(
    name="new_batches",
    uri="ledger://bronze/new_batches",
    group="bronze",
    watchers=[AssetWatcher(name="new_batches", trigger=NewBatchesTrigger())],
)
