"""What a long job says of how far it has come: in its log, and in a file for Airflow and the pages."""

import json
import logging
import os
import threading
import time
from pathlib import Path

import pytest

from spark_jobs.runtime import progress
from spark_jobs.runtime.progress import Phase
from spark_jobs.runtime.settings import Settings, read_settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.05)
    return read_settings({"LEDGER_HOME": str(tmp_path)})


def wait_for_a_word(settings: Settings) -> str:
    """What the only job says, once it has said something."""
    for _ in range(200):
        if found := progress.of_jobs(settings):
            return found[0].says
        time.sleep(0.02)
    raise AssertionError("nothing was said within 4 s")


def test_a_phase_says_how_much_is_done_and_how_long_the_rest_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 130.0, 160.0, 220.0])
    monkeypatch.setattr("spark_jobs.runtime.progress.time.monotonic", lambda: next(clock))
    phase = Phase("0 of 31 days", 20_000, "rows", began=next(clock))
    assert str(phase) == "0 of 31 days, 0 of 20,000 rows in 0:00:30"
    phase.reach(10_000, "10 of 31 days")
    assert str(phase) == "10 of 31 days, 10,000 of 20,000 rows in 0:01:00, about 0:01:00 left"
    phase.reach(20_000, "31 of 31 days")
    assert str(phase) == "31 of 31 days, 20,000 of 20,000 rows in 0:02:00"


def test_a_job_says_its_phases_while_it_runs_and_nothing_afterwards(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with progress.shown(settings, "backfill", "manual__1"):
        time.sleep(0.2)
        assert not progress.of_jobs(settings)  # it is in no phase
        with progress.phase("3 of 10 days", 40, "rows"), progress.phase("gold.daily_totals", 16, "tables") as tables:
            tables.reach(4, "gold.daily_totals")
            says = wait_for_a_word(settings)
            assert [found.run_id for found in progress.of_jobs(settings)] == ["manual__1"]
    assert says.startswith("3 of 10 days, 0 of 40 rows in 0:00:00; gold.daily_totals, 4 of 16 tables in 0:00:00, about ")
    assert f"backfill: {says}" in caplog.messages
    assert not progress.of_jobs(settings)
    assert not list(settings.checkpoints.glob("progress/*"))


def test_the_words_end_with_a_job_that_fails(settings: Settings) -> None:
    def fail() -> None:
        with progress.shown(settings, "gold", "r"), progress.phase("gold.daily_totals"):
            wait_for_a_word(settings)
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        fail()
    assert not progress.of_jobs(settings)
    assert "progress" not in [thread.name for thread in threading.enumerate()]


def test_what_a_killed_job_left_and_files_of_others_count_for_nothing(settings: Settings) -> None:
    folder = settings.checkpoints / "progress"
    folder.mkdir(parents=True)
    facts = {"job": "gold", "run_id": "r", "says": "gold.daily_totals", "said_at": time.time() - 31}
    (folder / "gold-1.json").write_text(json.dumps(facts))
    (folder / "gold-2.json").write_text("{")
    (folder / "gold-3.json").write_text(json.dumps({"job": "gold"}))
    assert not progress.of_jobs(settings)
    (folder / "gold-4.json").write_text(json.dumps(facts | {"said_at": time.time()}))
    assert [found.says for found in progress.of_jobs(settings)] == ["gold.daily_totals"]


def test_what_killed_jobs_left_a_day_ago_goes_with_the_next_job(settings: Settings) -> None:
    folder = settings.checkpoints / "progress"
    folder.mkdir(parents=True)
    for name, hours in (("old", 25), ("young", 23)):
        (folder / f"{name}.json").write_text("{}")
        os.utime(folder / f"{name}.json", times=(0, time.time() - hours * 3600))
    with progress.shown(settings, "gold", "r"):
        assert [file.name for file in folder.iterdir()] == ["young.json"]


def test_a_full_disk_stops_the_file_and_not_the_job(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    settings.checkpoints.mkdir(parents=True)
    (settings.checkpoints / "progress").write_text("")  # no folder can be made
    with progress.shown(settings, "silver", "r"), progress.phase("silver.transactions"):
        for _ in range(200):
            if len(caplog.messages) > 1:
                break
            time.sleep(0.02)
    assert caplog.messages[0].startswith("silver: silver.transactions in 0:00:00")
    assert len(caplog.messages) > 1
