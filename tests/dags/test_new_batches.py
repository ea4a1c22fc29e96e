"""What starts medallion: work that readers lack while no run is under way, and not too often."""

import asyncio
from collections.abc import Iterator

import pytest
from airflow.triggers.base import TriggerEvent

from include.orchestration import new_batches
from include.orchestration.new_batches import NewBatchesTrigger, Pace
from include.orchestration.progress import Work


def test_a_new_release_lets_the_next_event_follow_soon_and_a_failed_run_is_repeated_later() -> None:
    pace = Pace()
    assert pace.allows(release=0, now=10)
    pace.note(release=0, now=10)
    assert [pace.allows(release=1, now=now) for now in (24, 25)] == [False, True]
    assert [pace.allows(release=0, now=now) for now in (309, 310)] == [False, True]


def test_no_event_while_a_run_is_under_way_and_one_once_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow answers a trigger only within a triggerer; the run of the real one is in tests/integration/test_decision.py."""
    active = iter([1, 1, 0])

    async def count() -> int:
        return next(active)

    monkeypatch.setattr(new_batches, "_count_active_runs", count)
    monkeypatch.setattr(new_batches, "due_work", lambda *_: Work("new rows", 7))
    monkeypatch.setattr(new_batches, "_CHECK_SECONDS", 0.0)

    async def first_event() -> TriggerEvent:
        return await anext(NewBatchesTrigger().run())

    assert asyncio.run(asyncio.wait_for(first_event(), 10)).payload == {"why": "new rows"}
    assert next(active, None) is None


def test_while_the_run_of_an_event_is_under_way_nobody_looks_for_work(monkeypatch: pytest.MonkeyPatch) -> None:
    active, asked = iter([0, 1, 1, 0, 0]), list[int]()

    async def count() -> int:
        asked.append(next(active))
        return asked[-1]

    releases = iter([7, 8])
    monkeypatch.setattr(new_batches, "_count_active_runs", count)
    monkeypatch.setattr(new_batches, "due_work", lambda *_: Work("new rows", next(releases)))  # a third look would raise
    monkeypatch.setattr(new_batches, "_CHECK_SECONDS", 0.0)
    monkeypatch.setattr(new_batches, "_LEAST_SECONDS", 0.05)

    async def two_events() -> list[TriggerEvent]:
        events = NewBatchesTrigger().run()
        return [await anext(events), await anext(events)]

    assert len(asyncio.run(asyncio.wait_for(two_events(), 10))) == 2
    assert asked == [0, 1, 1, 0, 0]


def test_what_cannot_be_read_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[object] = iter([OSError("the disk is away"), Work("new rows", 7)])

    def due(*_: object) -> object:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    async def none() -> int:
        return 0

    monkeypatch.setattr(new_batches, "due_work", due)
    monkeypatch.setattr(new_batches, "_count_active_runs", none)
    monkeypatch.setattr(new_batches, "_CHECK_SECONDS", 0.0)

    async def first_event() -> TriggerEvent:
        return await anext(NewBatchesTrigger().run())

    assert asyncio.run(asyncio.wait_for(first_event(), 10)).payload == {"why": "new rows"}
