"""What the supervision is told of a live query."""

import time
from pathlib import Path
from typing import Any

from spark_jobs.live.queries import BY_NAME
from spark_jobs.live.running import Intake, Live
from spark_jobs.runtime.settings import read_settings
from spark_jobs.service.heartbeat import RUNNING, STUCK_SECONDS, Heartbeat


def test_the_first_batch_after_a_start_may_take_long_and_a_later_one_may_not(tmp_path: Path) -> None:
    """The first one may be all of a long history."""
    settings, spark, now = read_settings({"LEDGER_HOME": str(tmp_path)}), Any, time.time()
    intake = Intake(spark, settings, available_now=False)  # type: ignore[arg-type]
    live = Live(spark, settings, BY_NAME["alerts"], intake, available_now=False)  # type: ignore[arg-type]
    live._query = object()  # type: ignore[assignment]  # it runs
    live._progressed = now - STUCK_SECONDS - 1

    def wrong() -> str | None:
        topics = {live.name: live.status(time.monotonic())}
        return Heartbeat({"state": RUNNING, "beat_at": now, "topics": topics}).what_is_wrong(now)

    assert wrong() is None
    live._batch, live._counted_at, live._waiting = 0, time.monotonic(), 5
    assert (wrong() or "").startswith("is stuck: 5 records of alerts wait, and no batch has ended for 301 s")
