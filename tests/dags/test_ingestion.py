"""Supervision of ingestion: with a real process in the application's place, which beats, hangs or ends as the test wants."""

import asyncio
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from include.orchestration import ingestion, supervision
from include.orchestration.ingestion import TOPICS, Ingestion, IngestionTrigger
from include.orchestration.supervision import GaveUpError, Supervisor
from spark_jobs.bronze import control, heartbeat
from spark_jobs.settings import Settings, read_settings

APPLICATION = """
import pathlib, sys, time
from spark_jobs.bronze import control, heartbeat
from spark_jobs.settings import read_settings
settings = read_settings()
plan = pathlib.Path(settings.home, "plan").read_text().split()
with open(settings.home / "starts", "a") as starts:
    print(*sys.argv[1:], file=starts)
if plan[0] == "fails":
    print("2026-01-01T00:00:00Z ERROR broker: found nothing, expected one", file=sys.stderr)
    sys.exit(int(plan[1]))
time.sleep(float(plan[1]) if plan[0] == "slow" else 0)
wanted = sys.argv[-1].removeprefix("--obeying=")
with heartbeat.beating(settings, "bronze", ("transactions", "customers", "accounts"), "test", 1) as heart:
    while control.read_wanted(settings).number == wanted:
        if plan[0] != "silent":
            topics = {"customers": {"state": "running", "batch": 7 if plan[0] == "writes" else 0, "progressed_at": time.time()}}
            heart.beat(state="running", topics=topics)
        time.sleep(0.05)
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path))
    monkeypatch.setenv("LEDGER_KAFKA_BOOTSTRAP", "127.0.0.1:9")
    monkeypatch.setattr(supervision, "_PAUSES", (0, 0.2, 0.4))
    made = read_settings()
    plan(made, "beats")
    yield made
    for beat in heartbeat.read(made):
        heartbeat.kill(beat.processes())


@pytest.fixture
def supervisor(settings: Settings) -> Supervisor:
    return made(settings)


def made(settings: Settings) -> Supervisor:
    return Supervisor(settings, TOPICS, "run", command=(sys.executable, "-c", APPLICATION))


def plan(settings: Settings, words: str) -> None:
    """What the next application does: `beats`, `writes`, is `silent` after its first heartbeat, is `slow SECONDS` to
    begin, or `fails CODE`."""
    (settings.home / "plan").write_text(words)


def starts(settings: Settings) -> list[str]:
    file = settings.home / "starts"
    return file.read_text().splitlines() if file.exists() else []


def step_until(supervisor: Supervisor, condition: Callable[[], object], seconds: float = 20) -> list[str]:
    """Step until the condition holds; returns what was told meanwhile."""
    told, deadline, pause = supervisor.step(), time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, told
        pause.wait(0.05)
        told += supervisor.step()
    return told


def runs(settings: Settings) -> psutil.Process | None:
    """The application, once it runs."""
    beat = heartbeat.read_one(settings, "bronze")
    return beat.processes()[-1] if beat and beat.is_alive() and beat.state == "running" else None


def is_replaced(settings: Settings, killed: psutil.Process) -> bool:
    return runs(settings) not in (None, killed)


def process(settings: Settings) -> psutil.Process:
    found = runs(settings)
    assert found
    return found


def test_it_is_started_once_and_found_again_by_whoever_comes_next(settings: Settings, supervisor: Supervisor) -> None:
    told = step_until(supervisor, lambda: runs(settings))
    assert told[0].startswith("started bronze; its output goes to ")
    application = process(settings)
    assert os.getsid(application.pid) != os.getsid(0)
    assert psutil.Process() not in application.parents()  # nothing that happens to this process happens to it
    told = step_until(made(settings), lambda: True)
    assert told[0] == f"bronze is running (process {application.pid} on {os.uname().nodename})"
    assert starts(settings) == ["--run-id run bronze --only transactions,customers,accounts --obeying="]
    assert [supervisor.step() for _ in range(2)][1] == []  # what is known is not told again


def test_one_that_dies_is_started_again(settings: Settings, supervisor: Supervisor) -> None:
    step_until(supervisor, lambda: runs(settings))
    killed = process(settings)
    killed.kill()
    told = step_until(supervisor, lambda: (found := runs(settings)) and found != killed)
    assert told[0].startswith("bronze has ended: exit code 137: ")
    assert len(starts(settings)) == 2


@pytest.mark.parametrize("how", ["stopped", "silent"])
def test_one_that_hangs_is_killed_and_replaced(
    settings: Settings, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(heartbeat, "STALE_SECONDS", 1.0)
    step_until(supervisor, lambda: runs(settings))
    hung = process(settings)
    hung.suspend()
    told = step_until(supervisor, lambda: (found := runs(settings)) and found != hung)
    assert any(re.search(r"hangs: no heartbeat for \d+ s, expected one a second: killed, to be replaced", line) for line in told)
    assert not hung.is_running()


def test_one_that_never_comes_up_is_replaced(settings: Settings, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "STARTING_SECONDS", 1.0)
    plan(settings, "silent")
    step_until(supervisor, lambda: starts(settings))
    plan(settings, "beats")
    told = step_until(supervisor, lambda: runs(settings))
    assert any(re.search(r"has been starting for \d+ s, expected at most 1.0 s: killed", line) for line in told)


def test_failed_starts_are_repeated_with_growing_pauses_and_told(settings: Settings, supervisor: Supervisor) -> None:
    plan(settings, "fails 1")
    told = step_until(supervisor, lambda: len(starts(settings)) == 4)
    ends = [line.rsplit("; ", 1) for line in told if "has ended" in line]
    assert {how for how, _ in ends} == {"bronze has ended: exit code 1: broker: found nothing, expected one"}
    assert [pause for _, pause in ends[:3]] == [f"the next start is in {seconds} s" for seconds in (0, 0.2, 0.4)]


def test_one_that_has_written_is_started_again_without_a_pause_however_often_it_dies(settings: Settings, supervisor: Supervisor) -> None:
    plan(settings, "writes")
    told = step_until(supervisor, lambda: runs(settings))
    for _ in range(3):
        step_until(supervisor, lambda: True)
        killed = process(settings)
        killed.kill()
        told += step_until(supervisor, partial(is_replaced, settings, killed))
    assert len([line for line in told if line.endswith("; the next start is in 0 s")]) == 3


def test_a_setting_that_cannot_be_used_is_final(settings: Settings, supervisor: Supervisor) -> None:
    plan(settings, "fails 2")
    with pytest.raises(GaveUpError, match=r"^bronze: exit code 2: broker: found nothing, expected one \(1 starts in a row failed\)$"):
        step_until(supervisor, lambda: False)


def test_after_many_failed_starts_it_gives_up(settings: Settings, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "MOST_FAILURES", 2)
    plan(settings, "fails 5")
    with pytest.raises(GaveUpError, match="exit code 5"):
        step_until(supervisor, lambda: False)
    assert len(starts(settings)) == 2


def test_it_stands_still_for_as_long_as_somebody_wants_it_to(settings: Settings, supervisor: Supervisor) -> None:
    step_until(supervisor, lambda: runs(settings))
    control.run(settings, "stop", "ann", "new disks", 20)
    told = step_until(supervisor, lambda: not runs(settings))
    assert any("stands still: asked for by ann at 20" in line and ": new disks; trigger bronze_control" in line for line in told)
    fresh = made(settings)  # also after Airflow was started again
    assert [len(fresh.step()) for _ in range(2)] == [1, 0]
    assert len(starts(settings)) == 1
    restart(settings, fresh)
    assert len(starts(settings)) == 2


def test_a_stop_is_heeded_by_one_that_was_just_being_started(settings: Settings, supervisor: Supervisor) -> None:
    plan(settings, "slow 1")
    step_until(supervisor, lambda: starts(settings))
    control.ask(settings, control.STAND_STILL, "ann", "")
    told = step_until(supervisor, lambda: (beat := heartbeat.read_one(settings, "bronze")) and beat.state == heartbeat.ENDED)
    step_until(supervisor, lambda: True)
    assert len(starts(settings)) == 1, told


def test_a_restart_waits_for_the_application_that_takes_over(settings: Settings, supervisor: Supervisor) -> None:
    step_until(supervisor, lambda: runs(settings))
    before = process(settings)
    restart(settings, supervisor)
    assert process(settings) != before


def restart(settings: Settings, supervisor: Supervisor) -> None:
    """Ask for a restart, which ends when the supervisor has started an application."""
    asking = threading.Thread(target=control.run, args=(settings, "restart", "ann", "", 20))
    asking.start()
    step_until(supervisor, lambda: not asking.is_alive() and runs(settings))


def test_a_process_that_has_the_number_of_a_dead_one_is_not_taken_for_it(settings: Settings, supervisor: Supervisor) -> None:
    step_until(supervisor, lambda: runs(settings))
    beat = heartbeat.read_one(settings, "bronze")
    assert beat
    other = dict(beat.facts) | {"process": heartbeat.identify(os.getpid()) | {"started": 1.0}}
    assert not heartbeat.Heartbeat(other).is_alive()


def test_a_stuck_stream_is_found_by_its_waiting_records() -> None:
    now = time.time()
    facts: dict[str, Any] = {"state": "running", "beat_at": now, "started_at": now - 999}
    topic = {"state": "running", "lag_records": 7, "progressed_at": now - 301}
    beat = heartbeat.Heartbeat(facts | {"topics": {"customers": topic}})
    assert beat.what_is_wrong(now) == "is stuck: 7 records of customers wait, and no batch has ended for 301 s"
    assert heartbeat.Heartbeat(facts | {"topics": {"customers": topic | {"lag_records": 0}}}).what_is_wrong(now) is None
    assert heartbeat.Heartbeat(facts | {"topics": {"customers": topic | {"state": "failing"}}}).what_is_wrong(now) is None


@pytest.mark.parametrize(
    ("value", "tries", "expected"),
    [(None, 1, ""), ("latest", 1, "latest"), ("latest", 2, ""), ("{{ 7 * 7 }}", 1, "{{ 7 * 7 }}")],  # a value is never a template
)
def test_starting_offsets_count_for_the_first_try_only(dag_bag: DagBag, value: str | None, tries: int, expected: str) -> None:
    task: Any = dag_bag.dags["bronze_ingestion"].get_task("ingest")
    context = {"params": {"starting_offsets": value}, "ti": SimpleNamespace(try_number=tries)}
    assert task.render_template(task.starting_offsets, context) == expected


def test_the_task_waits_in_the_triggerer(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, ...]] = []
    monkeypatch.setattr(Supervisor, "start", lambda _, *options: started.append(options))
    for offsets, expected in (("", []), ("latest", [("--starting-offsets", "latest")])):
        with pytest.raises(TaskDeferred) as deferred:
            Ingestion(task_id="ingest", topics=TOPICS, starting_offsets=offsets).execute(cast(Context, {"run_id": "run"}))
        _, kept = cast(IngestionTrigger, deferred.value.trigger).serialize()
        assert (started, kept) == (expected, {"topics": list(TOPICS), "run_id": "run", "is_started": bool(offsets)})
        assert json.dumps(kept)
    assert deferred.value.method_name == "resume"
    with pytest.raises(AirflowFailException, match=r"^why$"):
        Ingestion(task_id="ingest", topics=TOPICS).resume(cast(Context, {}), {"error": "why"})


def test_the_trigger_goes_on_until_no_other_start_can_help(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: Iterator[list[str] | Exception] = iter([["one"], OSError("disk full"), [], GaveUpError("no use")])

    def step(_: Supervisor) -> list[str]:
        found = next(steps)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(Supervisor, "step", step)
    for name in ("_LOOK_SECONDS", "_ERROR_SECONDS"):
        monkeypatch.setattr(ingestion, name, 0)

    async def events() -> list[object]:
        return [event.payload async for event in IngestionTrigger(list(TOPICS), "run", is_started=False).run()]

    assert asyncio.run(events()) == [{"error": "no use"}]


def test_each_topic_may_have_an_application_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_BRONZE_APPLICATIONS", "each")
    assert ingestion.applications() == {f"ingest_{topic}": (topic,) for topic in TOPICS}
    assert heartbeat.application(("customers",)) == "bronze-customers"


def test_a_cluster_keeps_its_own_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_SPARK_MASTER", "k8s://https://cluster:6443")
    task: Any = ingestion.ingestion("ingest", TOPICS, "params.x")
    assert (type(task).__name__, task.durable, task._deploy_mode) == ("SparkJob", True, "cluster")
