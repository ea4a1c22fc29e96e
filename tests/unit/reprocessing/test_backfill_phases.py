"""A backfill says which of its phases it is in."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_jobs.control.backfills import DIMENSIONS, TRANSACTIONS, Backfill, Step
from spark_jobs.lake.tables import REBUILT
from spark_jobs.reprocessing import backfill
from spark_jobs.reprocessing.silver_range import Rebuilt
from spark_jobs.runtime import progress
from spark_jobs.runtime.settings import read_settings


def test_a_step_says_which_layer_it_rebuilds(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, str]] = []

    def note(where: str, done: Any = None) -> Any:
        def called(*_: object, **__: object) -> Any:
            said.append((where, "; ".join(phase.now for phase in progress._phases)))
            return done

        return called

    monkeypatch.setattr("spark_jobs.silver.job.finish", note("finish"))
    monkeypatch.setattr(backfill, "rebuild_silver", note("silver", Rebuilt(0, {})))
    monkeypatch.setattr("spark_jobs.gold.job.run", note("gold"))
    monkeypatch.setattr(backfill, "rebuild_gold", note("gold range"))
    work = cast(Any, object.__new__(backfill._Work))
    work.spark = work.settings = None
    work.run_id, work.record = "run", note("record")
    start, end = datetime(2024, 5, 1, tzinfo=UTC), datetime(2024, 5, 2, tzinfo=UTC)
    work.request = backfill.Request(start, end, REBUILT)
    work.do(Step(cast(Backfill, None), TRANSACTIONS, start, end), [cast(Any, None)])
    layers = [("silver", "rebuilding silver"), ("gold", "rebuilding gold"), ("gold range", "rebuilding gold")]
    assert said == [("finish", ""), *layers, ("record", "")]


def test_the_records_of_the_range_are_judged_in_a_phase(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[str] = []
    monkeypatch.setattr(backfill, "stage", lambda *_: said.append(progress._phases[-1].now))
    monkeypatch.setattr("spark_jobs.control.rule_sets.recorded", lambda *_: None)
    start, end = datetime(2024, 5, 1, tzinfo=UTC), datetime(2024, 5, 2, tzinfo=UTC)
    work = cast(Any, object.__new__(backfill._Work))
    work.spark, work.settings, work.request = None, read_settings({"LEDGER_HOME": str(tmp_path)}), backfill.Request(start, end, REBUILT)
    work.backfill = SimpleNamespace(rules=dict.fromkeys(("transactions", "customers", "accounts"), "2"))
    for part in (TRANSACTIONS, DIMENSIONS):
        work.stage(Step(cast(Backfill, None), part, start, end), "folder")
    assert said == ["judging the range's records of transactions", *2 * ["judging the range's records of customers and accounts"]]
