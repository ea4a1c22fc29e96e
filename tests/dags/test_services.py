"""How Airflow keeps services running: operator, trigger, DAGs; and what heartbeats say to people."""

import asyncio
import json
import logging
import os
import socket
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from include.orchestration import services
from include.orchestration.services import KeepRunning, SupervisionTrigger, keep_running
from spark_jobs import run
from spark_jobs.runtime.identity import identify
from spark_jobs.runtime.settings import read_settings
from spark_jobs.service import desired_state, heartbeat
from spark_jobs.service.heartbeat import Heartbeat
from spark_jobs.service.services import INGESTION, LIVE, SERVICES, Service
from spark_jobs.service.supervisor import GaveUpError, Supervisor

TOPICS = ("transactions", "customers", "accounts")
NOW = 1_700_000_000.0
EACH = pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path))
    return tmp_path


def beating(**parts: dict[str, Any]) -> Heartbeat:
    """What an application says whose process is this one."""
    facts = {"application": "live", "host": socket.gethostname(), "process": identify(os.getpid()), "epoch": 3}
    return Heartbeat(facts | {"state": "running", "started_at": NOW - 999, "beat_at": NOW - 1, "error": None, "topics": parts})


def test_a_stuck_stream_is_found_by_its_waiting_records() -> None:
    part = {"state": "running", "lag_records": 7, "progressed_at": NOW - 301}
    assert beating(one=part).what_is_wrong(NOW) == "is stuck: 7 records of one wait, and no batch has ended for 301 s"
    assert beating(one=part | {"progressed_at": NOW - 299}).what_is_wrong(NOW) is None
    assert beating(one=part | {"lag_records": 0}).what_is_wrong(NOW) is None
    assert beating(one=part | {"state": "failing"}).what_is_wrong(NOW) is None


def test_a_heartbeat_is_told_with_what_it_has() -> None:
    rates = {"lag_seconds": 1.6, "arrival_rate": 50.2, "processing_rate": 51.0, "limit": 10000}
    told = desired_state.lines_of(
        beating(
            transactions={"state": "running", "pace": "keeping up", "batch": 7, "lag_records": 120, "progressed_at": NOW, **rates},
            totals={"state": "running", "batch": 4, "lag_records": 0, "progressed_at": NOW, "watermark": "2013-01-01T00:00:00Z"},
            pairs={"state": "failing", "error": "disk full", "failures": 2, "next_try_at": NOW + 4, "progressed_at": NOW},
            sessions={"state": "starting", "progressed_at": NOW},
        ),
        NOW,
    )
    assert told == [
        f"live (process {os.getpid()} on {socket.gethostname()}, epoch 3): running, last heartbeat 1 s ago",
        "transactions: keeping up; batch 7, 120 records wait, the oldest for 2 s, 50 a second come, 51 a second go, at most 10000 a batch",
        "totals: running; batch 4, 0 records wait, watermark 2013-01-01T00:00:00Z",
        "pairs: fails (2 times, next try in 4 s): disk full",
        "sessions: starting",
    ]


def test_an_application_of_the_version_before_is_found_where_it_was(home: Path) -> None:
    """Its files are not renamed by an upgrade: else a second application would be started beside it."""
    folder = home / "checkpoints" / "bronze" / ".ingestion"
    folder.mkdir(parents=True)
    (folder / "bronze.heartbeat").write_text(json.dumps(dict(beating(customers={"state": "running", "batch": 7}).facts)).ljust(999))
    (folder / "wanted.json").write_text('{"state": "stand still", "number": "n", "who": "ann", "why": "", "asked_at": "2026-01-01"}')
    found = heartbeat.read_one(read_settings(), INGESTION, "bronze")
    assert found
    assert (found.is_alive(), found.parts) == (True, {"customers": {"state": "running", "batch": 7}})
    assert desired_state.read_wanted(read_settings(), INGESTION).state == desired_state.STOPPED


@EACH
def test_its_status_is_asked_by_a_job_and_by_a_dag(dag_bag: DagBag, service: Service, caplog: pytest.LogCaptureFixture, home: Path) -> None:
    task: Any = dag_bag.dags[service.control_dag].get_task("control")
    assert task.arguments[:2] == [service.control, "{{ params.action }}"]
    caplog.set_level(logging.INFO)
    assert run.main([service.control, "status"]) == 0
    assert caplog.messages == [f"no application of {service.name} has run on {home / 'checkpoints'}"]
    assert run.main([service.control, "restart", "--who", "ann", "--wait", "0"]) == 1
    assert caplog.messages[-1] == f"{service.name} may run, and nothing has started it within 0 s: is the DAG {service.dag} on?"


@EACH
def test_a_dag_keeps_it_running(dag_bag: DagBag, service: Service) -> None:
    dag = dag_bag.dags[service.dag]
    (task,) = (cast(KeepRunning, task) for task in dag.tasks)
    assert (task.command, task.parts) == (service.command, service.parts)
    assert (dag.max_consecutive_failed_dag_runs, dag.is_paused_upon_creation) == (3, None)  # off until somebody switches it on


@pytest.mark.parametrize(
    ("value", "tries", "expected"),
    [
        (None, 1, ""),
        ("latest", 1, "--starting-offsets=latest"),
        ("latest", 2, ""),
        ("{{ 7 * 7 }}", 1, "--starting-offsets={{ 7 * 7 }}"),  # a value is never a template
    ],
)
def test_starting_offsets_count_for_the_first_try_only(dag_bag: DagBag, value: str | None, tries: int, expected: str) -> None:
    task: Any = dag_bag.dags["bronze_ingestion"].get_task("ingest")
    context = {"params": {"starting_offsets": value}, "ti": SimpleNamespace(try_number=tries)}
    assert task.render_template(task.option, context) == expected


@pytest.mark.parametrize("option", ["", "--starting-offsets=latest"])
def test_the_task_waits_in_the_triggerer(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    started: list[tuple[str, ...]] = []
    monkeypatch.setattr(Supervisor, "start", lambda _, *options: started.append(options))
    task = KeepRunning(task_id="ingest", command="bronze", parts=TOPICS, option=option)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(cast(Context, {"run_id": "run"}))
    assert started == ([(option,)] if option else [])
    name, kept = cast(SupervisionTrigger, deferred.value.trigger).serialize()
    assert json.loads(json.dumps(kept)) == {"command": "bronze", "parts": list(TOPICS), "run_id": "run", "is_started": bool(option)}
    module, _, kind = name.rpartition(".")
    assert getattr(import_module(module), kind)(**kept).serialize() == (name, kept)
    assert deferred.value.method_name == "resume"
    with pytest.raises(AirflowFailException, match=r"^why$"):
        task.resume(cast(Context, {}), {"error": "why"})


def test_the_trigger_continues_until_no_other_start_can_help(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: Iterator[list[str] | Exception] = iter([["one"], OSError("disk full"), [], GaveUpError("no use")])

    def step(_: Supervisor) -> list[str]:
        found = next(steps)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(Supervisor, "step", step)
    for name in ("_ASK_SECONDS", "_ERROR_SECONDS"):
        monkeypatch.setattr(services, name, 0)

    async def events() -> list[object]:
        return [event.payload async for event in SupervisionTrigger("live", [], "run", is_started=False).run()]

    assert asyncio.run(events()) == [{"error": "no use"}]


def test_each_topic_may_have_an_application_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_BRONZE_APPLICATIONS", "each")
    assert services.ingestions() == {f"ingest_{topic}": (topic,) for topic in TOPICS}
    assert INGESTION.application(("customers",)) == "bronze-customers"
    assert [INGESTION.application(parts) for parts in (TOPICS, TOPICS[::-1], ())] == ["bronze"] * 3


@pytest.mark.parametrize(
    ("service", "arguments"),
    [(INGESTION, ["bronze", "--only", "transactions,customers,accounts", "{{ option }}"]), (LIVE, ["live", "{{ option }}"])],
)
def test_a_cluster_keeps_its_own_driver(monkeypatch: pytest.MonkeyPatch, service: Service, arguments: list[str]) -> None:
    monkeypatch.setenv("LEDGER_SPARK_MASTER", "k8s://https://cluster:6443")
    task: Any = keep_running(service, "task", service.parts, option="{{ option }}")
    assert (type(task).__name__, task.durable, task._deploy_mode) == ("SparkJob", True, "cluster")
    assert task.application_args == arguments
