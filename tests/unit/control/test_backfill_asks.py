"""What runs of the DAG backfill_days ask for: one run rebuilds neighbouring days for all that ask; played to the end with deaths."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spark_jobs import control
from spark_jobs.control import backfills
from spark_jobs.control.backfills import Backfill
from spark_jobs.lake import tables
from spark_jobs.lake.tables import BACKFILLS
from spark_jobs.runtime.settings import Settings, read_settings

FIRST = datetime(2024, 5, 1, tzinfo=UTC)
DAY = timedelta(days=1)
TABLES = ("gold.daily_totals",)
RULES = {"transactions": "1"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"LEDGER_HOME": str(tmp_path)})


def ask(settings: Settings, *days: int, wanted: tuple[str, ...] = TABLES) -> None:
    for day in days:
        backfills.ask(settings, FIRST + day * DAY, FIRST + (day + 1) * DAY, wanted, f"run {day}")


def begin(settings: Settings, day: int, run_id: str | None = None, rules: dict[str, str] = RULES) -> Backfill:
    return backfills.find_or_start(settings, FIRST + day * DAY, FIRST + (day + 1) * DAY, TABLES, rules, run_id or f"run {day}")


def days_of(backfill: Backfill) -> list[int]:
    return [day for day in range(30) if backfill.start <= FIRST + day * DAY < backfill.end]


def test_whoever_begins_takes_in_the_days_that_touch_its_own(settings: Settings) -> None:
    ask(settings, 0, 1, 3, 4, 6)
    ask(settings, 5, wanted=("gold.debit_share",))
    begun = begin(settings, 3)
    assert days_of(begun) == [3, 4]
    assert days_of(begin(settings, 0)) == [0, 1]
    backfills.finish(settings, begun, "run 3")
    assert [backfills.done_by(settings, f"run {day}") for day in (3, 4, 0, 5, 6)] == [None, "run 3", None, None, None]


def test_only_for_a_run_that_has_asked(settings: Settings) -> None:
    """A command takes just what its line says, and no run counts on it."""
    ask(settings, 1, 2)
    begun = begin(settings, 1, "by hand")
    assert days_of(begun) == [1]
    backfills.finish(settings, begun, "by hand")
    assert backfills.done_by(settings, "run 1") is None
    assert days_of(begin(settings, 1)) == [1, 2]


def test_what_was_asked_for_after_it_began_is_not_done(settings: Settings) -> None:
    ask(settings, 1, 2)
    begun = begin(settings, 1)
    ask(settings, 2, 3)
    backfills.finish(settings, begun, "run 1")
    assert backfills.done_by(settings, "run 2") is None
    assert days_of(begin(settings, 3)) == [2, 3]


def test_after_a_death_the_next_run_continues_for_all_by_the_same_rules(settings: Settings) -> None:
    ask(settings, 1, 2)
    begun = begin(settings, 1)
    ask(settings, 3)
    assert begin(settings, 2) == begun
    assert days_of(begin(settings, 2, rules={"transactions": "2"})) == [1, 2, 3]
    assert begin(settings, 1, "by hand") != begun


def test_what_was_asked_for_long_ago_is_forgotten(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run was cancelled; if it was not, it takes its own day."""
    ask(settings, 1, 2)
    monkeypatch.setattr(backfills, "_FORGOTTEN_AFTER", timedelta(0))
    assert days_of(begin(settings, 1)) == [1]


@pytest.mark.parametrize("seed", range(8))
def test_each_day_is_rebuilt_after_it_was_asked_for_whoever_dies(settings: Settings, seed: int) -> None:
    chance = random.Random(seed)
    tables.ensure_tables(settings, [BACKFILLS])
    days = sorted(chance.sample(range(12), 8))
    waiting = chance.sample(days, len(days))
    asked, ended, begun = list[int](), list[int](), 0
    while waiting or asked:
        while waiting and (not asked or chance.random() < 0.6):
            asked.append(waiting.pop())
            ask(settings, asked[-1])
        day = chance.choice(asked)
        if backfills.done_by(settings, f"run {day}") is None:
            backfill = begin(settings, day)
            begun += 1
            assert day in days_of(backfill)
            assert set(days_of(backfill)) <= {*asked, *ended}, "no day that nobody asked for"
            if chance.random() < 0.3:
                continue
            backfills.finish(settings, backfill, f"run {day}")
        asked.remove(day)
        ended.append(day)
    rows = control.read(settings, BACKFILLS).to_pylist()
    finished = {row["backfill_id"] for row in rows if row["state"] == "finished"}
    for row in rows:
        if row["state"] == "asked":
            later = [
                each for each in rows if each["state"] == "started" and each["backfill_id"] in finished and each["number"] > row["number"]
            ]
            assert any(each["range_start"] <= row["range_start"] and row["range_end"] <= each["range_end"] for each in later)
    assert len(finished) <= len(days)
