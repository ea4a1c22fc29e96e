"""Supervision: with a real process in the application's place, which beats, hangs or ends as the test wants."""

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest

from spark_jobs.runtime.identity import identify
from spark_jobs.runtime.settings import Settings, read_settings
from spark_jobs.service import desired_state, heartbeat, supervisor as supervision
from spark_jobs.service.services import INGESTION, SERVICES, Service
from spark_jobs.service.supervisor import GaveUpError, Supervisor

APPLICATION = """
import pathlib, sys, time
from spark_jobs.service import desired_state as control, heartbeat
from spark_jobs.service.services import SERVICES
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import read_settings
settings, service = read_settings(), SERVICES[sys.argv[3]]
plan = pathlib.Path(settings.home, "plan").read_text().split()
with open(settings.home / "starts", "a") as starts:
    print(*sys.argv[1:], file=starts)
if plan[0] == "fails":
    print("2026-01-01T00:00:00Z ERROR broker: found nothing, expected one", file=sys.stderr)
    sys.exit(int(plan[1]))
time.sleep(float(plan[1]) if plan[0] == "slow" else 0)
wanted = sys.argv[-1].removeprefix("--obeying=")
if plan[0] == "lingers":
    try:
        with heartbeat.beating(settings, service, service.command, ("one", "other"), "test", 1):
            raise SettingsError("broker: found nothing, expected one")
    finally:
        time.sleep(float(plan[1]))
with heartbeat.beating(settings, service, service.command, ("one", "other"), "test", 1) as heart:
    while control.read_wanted(settings, service).number == wanted:
        if plan[0] != "silent":
            topics = {"one": {"state": "running", "batch": 7 if plan[0] == "writes" else 0, "progressed_at": time.time()}}
            heart.beat(state="running", topics=topics)
        time.sleep(0.05)
"""


@dataclass(frozen=True)
class Stage:
    """A service whose applications do as planned."""

    settings: Settings
    service: Service

    def supervisor(self) -> Supervisor:
        return Supervisor(self.settings, self.service, self.service.parts, "run", command=(sys.executable, "-c", APPLICATION))

    def plan(self, words: str) -> None:
        """What the next application does: `beats`, `writes`, is `silent` after its first heartbeat, is `slow SECONDS` to
        begin, `fails CODE`, or says that it fails and `lingers SECONDS`."""
        (self.settings.home / "plan").write_text(words)

    def starts(self) -> list[str]:
        file = self.settings.home / "starts"
        return file.read_text().splitlines() if file.exists() else []

    def beat(self) -> heartbeat.Heartbeat | None:
        return heartbeat.read_one(self.settings, self.service, self.service.command)

    def runs(self) -> psutil.Process | None:
        """The application, once it runs."""
        beat = self.beat()
        processes = beat.processes() if beat and beat.is_alive() and beat.state == "running" else []
        return processes[-1] if processes else None

    def process(self) -> psutil.Process:
        found = self.runs()
        assert found
        return found

    def is_replaced(self, killed: psutil.Process) -> bool:
        return self.runs() not in (None, killed)

    def ask(self, action: str, why: str = "") -> None:
        desired_state.run(self.settings, self.service, action, "ann", why, 20)


@pytest.fixture
def stage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Of ingestion, where a test does not say otherwise."""
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path))
    monkeypatch.setenv("LEDGER_KAFKA_BOOTSTRAP", "127.0.0.1:9")
    monkeypatch.setattr(supervision, "_PAUSES", (0, 0.2, 0.4))
    made = Stage(read_settings(), getattr(request, "param", INGESTION))
    made.plan("beats")
    yield made
    for service in SERVICES.values():
        for beat in heartbeat.read(made.settings, service):
            heartbeat.kill(beat.processes())


@pytest.fixture
def supervisor(stage: Stage) -> Supervisor:
    return stage.supervisor()


COMMANDS = {"bronze": "bronze --only transactions,customers,accounts", "live": "live", "engine": "engine"}
EACH = pytest.mark.parametrize("stage", SERVICES.values(), indirect=True, ids=SERVICES)


def step_until(supervisor: Supervisor, condition: Callable[[], object], seconds: float = 20) -> list[str]:
    """Step until the condition holds; returns what was told meanwhile."""
    told, deadline, pause = supervisor.step(), time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, told
        pause.wait(0.05)
        told += supervisor.step()
    return told


@EACH
def test_it_is_started_once_and_found_again_by_whoever_comes_next(stage: Stage, supervisor: Supervisor) -> None:
    told = step_until(supervisor, stage.runs)
    assert told[0].startswith(f"started {stage.service.command}; its output goes to ")
    application = stage.process()
    assert os.getsid(application.pid) != os.getsid(0)
    assert psutil.Process() not in application.parents()  # nothing that happens to this process happens to it
    told = step_until(stage.supervisor(), lambda: True)
    assert told[0] == f"{stage.service.command} is running (process {application.pid} on {os.uname().nodename})"
    assert stage.starts() == [f"--run-id run {COMMANDS[stage.service.command]} --obeying="]
    assert [supervisor.step() for _ in range(2)][1] == []  # what is known is not told again


def test_how_an_earlier_application_ended_is_not_said_of_one_that_somebody_started_by_hand(stage: Stage, supervisor: Supervisor) -> None:
    step_until(supervisor, stage.runs)
    exit_file = stage.service.folder(stage.settings) / f"{stage.service.command}.exit"
    exit_file.write_text("2")
    stage.supervisor().step()
    assert not exit_file.exists()


@EACH
def test_one_that_dies_is_started_again(stage: Stage, supervisor: Supervisor) -> None:
    step_until(supervisor, stage.runs)
    killed = stage.process()
    killed.kill()
    told = step_until(supervisor, lambda: stage.is_replaced(killed))
    assert told[0].startswith(f"{stage.service.command} has ended: exit code 137: ")
    assert len(stage.starts()) == 2


@EACH
def test_one_that_hangs_is_killed_and_replaced(stage: Stage, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "STALE_SECONDS", 1.0)
    step_until(supervisor, stage.runs)
    hung = stage.process()
    hung.suspend()
    told = step_until(supervisor, lambda: stage.is_replaced(hung))
    assert any(re.search(r"hangs: no heartbeat for \d+ s, expected one a second: killed, to be replaced", line) for line in told)
    assert not hung.is_running()


def test_one_that_never_comes_up_is_replaced(stage: Stage, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "STARTING_SECONDS", 1.0)
    stage.plan("silent")
    step_until(supervisor, stage.starts)
    stage.plan("beats")
    told = step_until(supervisor, stage.runs)
    assert any(re.search(r"has been starting for \d+ s, expected at most 1.0 s: killed", line) for line in told)


def test_failed_starts_are_repeated_with_growing_pauses_and_told(stage: Stage, supervisor: Supervisor) -> None:
    stage.plan("fails 1")
    told = step_until(supervisor, lambda: len(stage.starts()) == 4)
    ends = [line.rsplit("; ", 1) for line in told if "has ended" in line]
    assert {how for how, _ in ends} == {"bronze has ended: exit code 1: broker: found nothing, expected one"}
    assert [pause for _, pause in ends[:3]] == [f"the next start is in {seconds} s" for seconds in (0, 0.2, 0.4)]


def test_one_that_has_written_is_started_again_without_a_pause_however_often_it_dies(stage: Stage, supervisor: Supervisor) -> None:
    stage.plan("writes")
    told = step_until(supervisor, stage.runs)
    for _ in range(3):
        step_until(supervisor, lambda: True)
        killed = stage.process()
        killed.kill()
        told += step_until(supervisor, partial(stage.is_replaced, killed))
    assert len([line for line in told if line.endswith("; the next start is in 0 s")]) == 3


@EACH
def test_a_setting_that_cannot_be_used_is_final(stage: Stage, supervisor: Supervisor) -> None:
    stage.plan("fails 2")
    with pytest.raises(
        GaveUpError, match=r"^(bronze|live|engine): exit code 2: broker: found nothing, expected one \(1 starts in a row failed\)$"
    ):
        step_until(supervisor, lambda: False)


def test_one_whose_process_takes_long_to_end_ends_as_it_said(stage: Stage, supervisor: Supervisor) -> None:
    stage.plan("lingers 30")
    with pytest.raises(GaveUpError, match=r"^bronze: exit code 2: broker: found nothing, expected one \(1 starts in a row failed\)$"):
        step_until(supervisor, lambda: False)
    assert len(stage.starts()) == 1


@EACH
def test_one_whose_tables_another_process_writes_is_tried_until_they_are_free(stage: Stage, supervisor: Supervisor) -> None:
    stage.plan("fails 5")
    told = step_until(supervisor, lambda: len(stage.starts()) == 2)
    assert any("has ended: exit code 5: " in line for line in told)
    stage.plan("beats")
    step_until(supervisor, stage.runs)


def test_after_many_failed_starts_it_gives_up(stage: Stage, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "MOST_FAILURES", 2)
    stage.plan("fails 5")
    with pytest.raises(GaveUpError, match="exit code 5"):
        step_until(supervisor, lambda: False)
    assert len(stage.starts()) == 2


@EACH
def test_it_stays_stopped_for_as_long_as_somebody_wants_it_to(stage: Stage, supervisor: Supervisor) -> None:
    step_until(supervisor, stage.runs)
    stage.ask("stop", "new disks")
    told = step_until(supervisor, lambda: not stage.runs())
    assert any(
        "is stopped: requested by ann at 20" in line and f": new disks; trigger {stage.service.control_dag} with" in line for line in told
    )
    others = [service for service in SERVICES.values() if service != stage.service]
    assert [desired_state.read_wanted(stage.settings, service) for service in others] == [desired_state.Wanted()] * len(others)
    fresh = stage.supervisor()  # also after Airflow was started again
    assert [len(fresh.step()) for _ in range(2)] == [1, 0]
    assert len(stage.starts()) == 1
    restart(stage, fresh)
    assert len(stage.starts()) == 2


def test_a_stop_is_heeded_by_one_that_was_just_being_started(stage: Stage, supervisor: Supervisor) -> None:
    stage.plan("slow 1")
    step_until(supervisor, stage.starts)
    desired_state.ask(stage.settings, stage.service, desired_state.STOPPED, "ann", "")
    told = step_until(supervisor, lambda: (beat := stage.beat()) and beat.state == heartbeat.ENDED)
    step_until(supervisor, lambda: True)
    assert len(stage.starts()) == 1, told


def test_a_restart_waits_for_the_application_that_takes_over(stage: Stage, supervisor: Supervisor) -> None:
    step_until(supervisor, stage.runs)
    before = stage.process()
    restart(stage, supervisor)
    assert stage.process() != before


def restart(stage: Stage, supervisor: Supervisor) -> None:
    """Ask for a restart, which ends when the supervisor has started an application."""
    asking = threading.Thread(target=stage.ask, args=("restart",))
    asking.start()
    step_until(supervisor, lambda: not asking.is_alive() and stage.runs())


def test_a_process_that_has_the_number_of_a_dead_one_is_not_taken_for_it(stage: Stage, supervisor: Supervisor) -> None:
    step_until(supervisor, stage.runs)
    beat = stage.beat()
    assert beat
    other = dict(beat.facts) | {"process": identify(os.getpid()) | {"started": 1.0}}
    assert not heartbeat.Heartbeat(other).is_alive()
