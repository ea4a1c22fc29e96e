"""A backfill beside the live flow: live rows are the live run's business, and gold never takes them past a closed gate."""

import shutil
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from expectations.gate import Failure, Judgement
from spark_jobs import control
from spark_jobs.control import backfills
from spark_jobs.control.backfills import Step
from spark_jobs.control.verdicts import Finding, append_under_lease, newest_verdicts
from spark_jobs.lake.tables import QUALITY_RESULTS
from spark_jobs.releases import gates
from spark_jobs.reprocessing import backfill
from spark_jobs.reprocessing.backfill import Request, _Work
from spark_jobs.runtime.errors import GateClosed
from spark_jobs.runtime.settings import Settings
from tests.support.warehouse import at, bronze, run_of, settings_of, transaction, write

START, END = datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 3, tzinfo=UTC)
LOST = "rows_not_in_one_place"


@pytest.fixture
def settings(good_release: Settings, tmp_path: Path) -> Settings:
    """Everything was judged good and released."""
    shutil.copytree(good_release.home, tmp_path / "home")
    return settings_of(tmp_path / "home")


@pytest.fixture
def rebuilt(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """The steps that were begun; what they do needs Spark."""
    steps: list[Step] = []
    monkeypatch.setattr(backfill, "_PAUSE_SECONDS", 0)
    monkeypatch.setattr(backfill, "_LIVE_GATES_SECONDS", 0)
    monkeypatch.setattr("spark_jobs.silver.job.finish", lambda *_: None)
    monkeypatch.setattr(_Work, "do", lambda _, step, __: steps.append(step))
    monkeypatch.setattr(_Work, "publish", lambda _: None)
    return steps


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Tables that gates find broken; they judge without Great Expectations."""
    names: set[str] = set()

    def judge(_folder: Path, _layer: str, tables: Collection[str], *_: object, **__: object) -> list[Judgement]:
        lost = {name: (Failure(name, LOST, "critical", "1", "at most 0"),) if name in names else () for name in tables}
        return [Judgement(name, 1, failures, None) for name, failures in lost.items()]

    monkeypatch.setattr(gates, "judge", judge)
    monkeypatch.setattr(gates, "limited", lambda _, function: nullcontext(lambda _, *arguments: function(*arguments)))
    return names


def live_batch(settings: Settings, *, lost: bool) -> None:
    """A third batch of transactions, brought to silver by a live run; of two records one is lost on the way, or none."""
    records = [bronze(at(1, 1, 3), b"T5", b"{}"), *([bronze(at(1, 2, 3), b"T6", b"{}")] if lost else [])]
    new = transaction(5, at(1, 1, 3), "Debit", "1.00", who=2, hour=12)
    run = run_of("silver", "silver.transactions", 3, 3, input=len(records), output=1)
    write(settings, {"bronze.transactions": records, "silver.transactions": [new], "control.batches": [run]})


def turn(settings: Settings, *, publish: bool, run_id: str = "backfill__1") -> None:
    order = Request(START, END, ("silver.transactions",), publish=publish)
    asked = backfills.find_or_start(settings, START, END, order.tables, {}, run_id)
    work = _Work(cast("Any", None), settings, order, asked, run_id)
    work.take_turn([(Step(asked, backfills.TRANSACTIONS, START, END), [])])


def close(settings: Settings, run_id: str, *, last_batch: int) -> None:
    """A run's gates of bronze and silver judge batches up to this one; silver's closes."""
    newest = [each for each in newest_verdicts(settings).values() if each.topic == "transactions" and each.layer != "gold"]
    moment = newest[0].judged_at + timedelta(minutes=1)
    judged = [replace(each, run_id=run_id, first_batch=1, last_batch=last_batch, judged_at=moment) for each in newest]
    append_under_lease(
        settings,
        [replace(each, success=False, findings=(Finding(LOST),)) if each.table == "silver.transactions" else each for each in judged],
    )


@pytest.mark.parametrize("publish", [True, False])
def test_nothing_is_rebuilt_and_nothing_judged_while_a_live_gate_is_closed(settings: Settings, rebuilt: list[Step], publish: bool) -> None:
    """The live run has judged its rows, and its question waits: a second verdict would be a second question."""
    live_batch(settings, lost=True)
    close(settings, "live-2", last_batch=3)
    before = control.read(settings, QUALITY_RESULTS).num_rows
    with pytest.raises(GateClosed, match=r"nothing of this step was rebuilt: live rows wait for a decision: gate silver closed") as error:
        turn(settings, publish=publish)
    assert LOST in str(error.value)
    assert rebuilt == []
    assert control.read(settings, QUALITY_RESULTS).num_rows == before


def test_live_rows_that_no_gate_has_judged_are_judged_before_a_rebuild(settings: Settings, rebuilt: list[Step], broken: set[str]) -> None:
    live_batch(settings, lost=True)
    broken.add("silver.transactions")
    with pytest.raises(GateClosed, match=LOST):
        turn(settings, publish=True)
    judged = newest_verdicts(settings)["silver.transactions"]
    assert (judged.first_batch, judged.last_batch, judged.state) == (3, 3, "closed")
    with pytest.raises(GateClosed, match="nothing of this step was rebuilt"):  # nor by the next try of the same run
        turn(settings, publish=True)
    assert rebuilt == []


@pytest.mark.usefixtures("broken")
def test_good_live_rows_stop_no_rebuild(settings: Settings, rebuilt: list[Step]) -> None:
    live_batch(settings, lost=False)
    turn(settings, publish=True)
    assert len(rebuilt) == 1
    judged = newest_verdicts(settings)["silver.transactions"]
    assert (judged.first_batch, judged.last_batch, judged.passed) == (3, 3, True)


def test_a_backfill_may_mend_what_the_gate_of_a_backfill_has_closed(settings: Settings, rebuilt: list[Step]) -> None:
    backfills.find_or_start(settings, START, END, (), {}, "backfill__0")
    close(settings, "backfill__0", last_batch=2)
    turn(settings, publish=True)
    assert len(rebuilt) == 1


def test_without_publish_damage_that_closed_a_gate_may_be_mended(settings: Settings, rebuilt: list[Step]) -> None:
    """Gold has all rows of silver already: it takes none past the gate."""
    close(settings, "live-2", last_batch=2)
    turn(settings, publish=False)
    assert len(rebuilt) == 1
