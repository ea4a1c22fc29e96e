"""Jobs are counted by how they end, also those that are killed, and no job ever fails because it cannot be counted."""

import logging
import os
import signal
import subprocess
import sys
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from spark_jobs import run
from spark_jobs.runtime import job_counts
from spark_jobs.runtime.job_counts import KILLED, JobCounts, counted, read_all
from spark_jobs.runtime.settings import ROOT, Settings, read_settings

SLEEPER = """
import sys, time
from spark_jobs.runtime.job_counts import counted
from spark_jobs.runtime.settings import read_settings
with counted(read_settings(), "gold"):
    print("begun", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"LEDGER_HOME": str(tmp_path)})


def only(settings: Settings) -> JobCounts:
    (counts,) = read_all(settings)
    return counts


def do(settings: Settings, *codes: int) -> None:
    for code in codes:
        with counted(settings, "gold") as ending:
            ending.exit_code = code


def test_a_job_is_counted_by_its_exit_code(settings: Settings) -> None:
    do(settings, 0, 3, 1)
    counts = only(settings)
    assert (counts.job, counts.started, counts.ended, counts.running) == ("gold", 3, {"0": 1, "3": 1, "1": 1}, [])
    assert counts.seconds >= 0
    assert counts.last_ended_at > 0


def test_a_job_that_is_refused_makes_no_home_and_the_first_that_makes_one_is_counted(tmp_path: Path) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path / "home")})
    do(settings, 2)
    assert not settings.home.exists()
    with counted(settings, "gold") as ending:
        settings.home.mkdir()
        ending.exit_code = 0
    assert (only(settings).started, only(settings).ended) == (1, {"0": 1})


def test_failures_in_a_row_end_with_a_success_and_a_closed_gate_is_none(settings: Settings) -> None:
    do(settings, 1, 5)
    assert only(settings).failures_in_a_row == 2
    do(settings, 3)
    assert only(settings).failures_in_a_row == 0


def test_a_job_that_raises_has_failed(settings: Settings) -> None:
    with pytest.raises(LookupError), counted(settings, "gold"):
        raise LookupError("not here")
    assert only(settings).ended == {"1": 1}


def test_a_job_that_is_killed_counts_once_its_process_is_gone(settings: Settings) -> None:
    environment = os.environ | {"LEDGER_HOME": str(settings.home), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", SLEEPER], env=environment, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout
        assert job.stdout.readline() == "begun\n"
        assert (only(settings).ended, len(only(settings).running)) == ({}, 1)
        job.send_signal(signal.SIGKILL)
    assert (only(settings).ended, only(settings).failures_in_a_row) == ({KILLED: 1}, 1)
    do(settings, 0)  # the next one writes it down
    assert (only(settings).ended, only(settings).failures_in_a_row) == ({KILLED: 1, "0": 1}, 0)


def test_two_that_run_at_a_time_are_both_counted(settings: Settings) -> None:
    environment = os.environ | {"LEDGER_HOME": str(settings.home), "PYTHONPATH": str(ROOT)}
    script = SLEEPER.replace("time.sleep(60)", "sys.stdin.read()")
    jobs = [
        subprocess.Popen([sys.executable, "-c", script], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [job.stdout.readline() for job in jobs if job.stdout] == ["begun\n"] * 3
    assert len(only(settings).running) == 3
    for job in jobs:
        job.communicate()
    assert (only(settings).ended, only(settings).running) == ({"1": 3}, [])  # none said that it succeeded


def test_what_cannot_be_counted_does_not_stop_the_job(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    settings.checkpoints.mkdir()
    (settings.checkpoints / "jobs").write_text("a file where a folder should be")
    with caplog.at_level(logging.WARNING), counted(settings, "gold") as ending:
        ending.exit_code = 0
    assert [line.partition(":")[0] for line in caplog.messages] == ["gold is not counted for the metrics"] * 2


def test_a_file_that_is_damaged_counts_from_zero_again(settings: Settings) -> None:
    do(settings, 0, 0)
    file = settings.checkpoints / "jobs/gold.json"
    file.write_text(file.read_text()[:20])
    do(settings, 0)
    assert only(settings).ended == {"0": 1}


def test_a_file_that_another_process_holds_is_not_waited_for(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_counts, "_LOCK_SECONDS", 0.1)
    do(settings, 0)
    with open(settings.checkpoints / "jobs/gold.json") as held:
        flock(held, LOCK_EX)
        do(settings, 0)
    assert only(settings).started == 1


def test_every_command_is_counted_and_a_gate_by_its_layer(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_HOME", str(settings.home))
    assert run.main(["release"]) == 3  # no gate has judged anything
    assert run.main(["gate", "bronze"]) != 2
    assert [(counts.job, counts.started, len(counts.running)) for counts in read_all(settings)] == [
        ("gate-bronze", 1, 0),
        ("release", 1, 0),
    ]
    assert read_all(settings)[1].ended == {"3": 1}
