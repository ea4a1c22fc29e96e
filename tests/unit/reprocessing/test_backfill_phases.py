"""A backfill says which of its phases it is in."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from spark_jobs.control.backfills import TRANSACTIONS, Backfill, Step
from spark_jobs.reprocessing import backfill
from spark_jobs.runtime import progress


def test_a_step_says_which_layer_it_rebuilds(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, str]] = []

    def note(where: str) -> Any:
        def called(*_: object) -> None:
            said.append((where, "; ".join(phase.now for phase in progress._phases)))

        return called

    monkeypatch.setattr("spark_jobs.silver.job.finish", note("finish"))
    monkeypatch.setattr(backfill, "rebuild_silver", note("silver"))
    monkeypatch.setattr("spark_jobs.gold.job.run", note("gold"))
    monkeypatch.setattr(backfill, "rebuild_gold", note("gold range"))
    work = cast(Any, object.__new__(backfill._Work))
    work.spark = work.settings = None
    work.run_id, work.record = "run", note("record")
    start, end = datetime(2024, 5, 1, tzinfo=UTC), datetime(2024, 5, 2, tzinfo=UTC)
    work.request = backfill.Request(start, end, ())
    work.do(Step(cast(Backfill, None), TRANSACTIONS, start, end), [cast(Any, None)])
    layers = [("silver", "rebuilding silver"), ("gold", "rebuilding gold"), ("gold range", "rebuilding gold")]
    assert said == [("finish", ""), *layers, ("record", "")]
