"""What starts medallion: work that readers lack while no run is under way, or the run has come to its last task; and not too often."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag

from include.orchestration import new_batches, progress
from include.orchestration.decisions import AskForDecision
from include.orchestration.defaults import RELEASE_TASK
from include.orchestration.new_batches import NewBatchesTrigger, Pace, Stage
from include.orchestration.progress import Look, Work
from spark_jobs.lake.log_files import log_times
from spark_jobs.lake.tables import BATCHES, LAYERS, RELEASES, SILVER_TRANSACTIONS, ensure_tables
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.warehouse import at, bronze, write

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path / "home"))
    return read_settings()


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> "Events":
    return Events(monkeypatch)


class Events:
    """What the trigger sends in a world of these stages and this work, one of each a look. Airflow answers a trigger only within a
    triggerer; the run of the real one is in tests/integration/test_decision.py.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.asked: list[bool] = []
        monkeypatch.setattr(new_batches, "_CHECK_SECONDS", 0.0)
        monkeypatch.setattr(new_batches, "_LEAST_SECONDS", 0.05)

    def of(self, stages: Iterable[Stage], works: Iterable[Work | Exception | None]) -> list[str]:
        stage, work = iter(stages), iter(works)

        async def next_stage() -> Stage:
            if (found := next(stage, None)) is None:
                raise asyncio.CancelledError
            return found

        def due_work(*_: object, is_ending: bool) -> Work | None:
            self.asked.append(is_ending)
            if isinstance(found := next(work), Exception):
                raise found
            return found

        self._patch.setattr(new_batches, "_stage", next_stage)
        self._patch.setattr(progress, "due_work", due_work)
        self._patch.setattr(progress, "log_times", lambda _: [len(self.asked)])
        return asyncio.run(asyncio.wait_for(self._collect(), 30))

    async def _collect(self) -> list[str]:
        sent: list[str] = []
        with suppress(asyncio.CancelledError):
            async for event in NewBatchesTrigger().run():
                sent.append(event.payload["why"])
        return sent


def test_a_new_release_lets_the_next_event_follow_soon_and_a_failed_run_is_repeated_later() -> None:
    pace, zero, one = Pace(), Work("new rows", 0), Work("new rows", 1)
    assert pace.allows(zero, now=10)
    pace.note(zero, now=10)
    assert [pace.allows(one, now=now) for now in (24, 25)] == [False, True]
    assert [pace.allows(zero, now=now) for now in (309, 310)] == [False, True]


def test_no_event_while_a_run_is_under_way_and_one_once_it_has_ended(events: Events) -> None:
    assert events.of([Stage.UNDER_WAY, Stage.UNDER_WAY, Stage.NONE], [Work("new rows", 7)]) == ["new rows"]
    assert events.asked == [False]  # before that, nobody looks


def test_a_run_that_has_come_to_its_last_task_lets_the_next_event_go_out(events: Events) -> None:
    stages = [Stage.NONE, Stage.UNDER_WAY, Stage.ENDING, Stage.ENDING, Stage.UNDER_WAY]
    sent = events.of(stages, [Work("first", 0), None, Work("second", 1)])
    assert (sent, events.asked) == (["first", "second"], [False, True, True])


def test_events_rest_in_between_and_meanwhile_nobody_looks(events: Events) -> None:
    works = [Work("one", 7), Work("two", 8), Work("three", 9)]
    assert events.of([Stage.NONE] * 3, works) == ["one", "two", "three"]
    assert len(events.asked) == 3


def test_what_cannot_be_read_is_tried_again(events: Events) -> None:
    assert events.of([Stage.NONE] * 2, [OSError("the disk is away"), Work("new rows", 7)]) == ["new rows"]


def test_as_long_as_no_table_changes_the_last_answer_holds_for_a_minute(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    ensure_tables(settings, [SILVER_TRANSACTIONS])
    answers = iter([None, Work("new rows", 1), Work("the next ones", 2), Work("stale", 2)])
    monkeypatch.setattr(progress, "due_work", lambda *_, **__: next(answers))
    look = Look()
    assert [look.due_work(settings, NOW) for _ in range(3)] == [None] * 3
    write(settings, {"bronze.transactions": [bronze(at(0, 0, 1), b"T1", b"{}")]})
    assert [look.due_work(settings, NOW) for _ in range(3)] == [Work("new rows", 1)] * 3
    assert [look.due_work(settings, NOW, is_ending=True) for _ in range(2)] == [Work("the next ones", 2)] * 2
    assert look.due_work(settings, NOW + timedelta(minutes=1), is_ending=True) == Work("stale", 2)


def test_a_commit_changes_the_times_of_the_logs_and_nothing_else_does(settings: Settings) -> None:
    before = log_times(settings)
    ensure_tables(settings, [SILVER_TRANSACTIONS])
    made = log_times(settings)
    assert sum(one != other for one, other in zip(before, made, strict=True)) == 1
    assert log_times(settings) == made
    SILVER_TRANSACTIONS.open(settings).alter.set_table_properties({"delta.appendOnly": "false"})
    assert log_times(settings) != made


def test_while_a_run_ends_only_what_silver_has_not_read_is_due(settings: Settings) -> None:
    def bring(batch: int) -> None:
        write(settings, {"bronze.transactions": [bronze(at(0, batch, batch), b"T%d" % batch, b"{}")]})

    def read(batch: int) -> None:
        run = {"job": "silver", "table": "silver.transactions", "first_batch": batch, "last_batch": batch, "rows": 1, "finished_at": NOW}
        write(settings, {BATCHES.name: [run]})

    def publish(batch: int) -> None:
        names = (table.name for layer in LAYERS.values() for table in layer)
        facts = {"release_id": batch, "released_at": NOW, "version": 1}
        write(settings, {RELEASES.name: [facts | {"table": name, "last_batch": batch} for name in names]})

    due = [partial(progress.due_work, settings, NOW, is_ending=is_ending) for is_ending in (False, True)]
    bring(1)
    read(1)
    assert [ask() for ask in due] == [Work("Bronze holds batches that the newest release lacks.", 0), None]
    bring(2)
    assert due[1]() == Work("Bronze holds batches that silver has not read.", 1)
    publish(1)  # by the same run, which makes the catalogue then
    assert due[1]() == Work("Bronze holds batches that silver has not read.", 1)
    read(2)
    bring(3)
    assert due[1]() == Work("Bronze holds batches that silver has not read.", 2)


def test_the_release_is_the_last_task_of_a_run(dag_bag: DagBag) -> None:
    leaves = {task for task in dag_bag.dags["medallion"].leaves if not isinstance(task, AskForDecision)}
    assert {task.task_id for task in leaves} == {RELEASE_TASK}
