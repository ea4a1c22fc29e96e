"""The pipeline as Airflow runs it: bronze by its DAG, the rest by a run of `medallion` that the REST API triggers."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import httpx
import pytest

from include.demo.reconciliation import reconcile
from include.demo.waiting import Clock, wait_for_dags, wait_for_ingestion
from include.producer import Disturbances, generated_sources, plan_messages, publish
from include.stack import airflow
from include.stack.airflow_api import AirflowApi
from spark_jobs.releases.releases import newest_release
from spark_jobs.runtime.settings import Settings, read_endpoints
from spark_jobs.service import desired_state, heartbeat
from spark_jobs.service.heartbeat import Heartbeat
from spark_jobs.service.services import INGESTION
from tests.integration.conftest import lineage_file
from tests.support import personal
from tests.support.ledger import await_that

pytestmark = [pytest.mark.integration, pytest.mark.airflow]

DAGS = ("bronze_ingestion", "bronze_control", "medallion")
GATES = ("bronze_gate", "silver_gate", "gold_gate")
Call = Callable[..., dict[str, Any]]


@pytest.fixture
def call(stack_home: Path) -> Iterator[Call]:
    """Any other call of the REST API, as its one user; its DAGs are paused at the end."""
    with httpx.Client(base_url=read_endpoints(stack_home)["airflow_url"], timeout=30, trust_env=False) as client:
        user = {"username": airflow.USER, "password": airflow.password_file(stack_home).read_text()}
        client.headers["Authorization"] = f"Bearer {client.post('/auth/token', json=user).raise_for_status().json()['access_token']}"

        def answer(method: str, path: str, body: object = None) -> dict[str, Any]:
            return dict(client.request(method, f"/api/v2{path}", json=body).raise_for_status().json())

        yield answer
        for dag in DAGS:
            answer("PATCH", f"/dags/{dag}", {"is_paused": dag != "bronze_control"})


def test_a_run_of_medallion_ends_with_a_release(settings: Settings, api: AirflowApi, call: Call) -> None:
    wait_for_dags(api, *DAGS)
    plan = plan_messages(generated_sources(500, seed=5), Disturbances(duplicates=0.05, malformed=0.05, late=0.05, seed=5))
    assert publish(settings.broker(), [*plan, *personal.messages()]).is_delivered
    api.unpause("bronze_ingestion")
    wait_for_ingestion(settings, api, Clock())
    run = api.trigger("medallion")  # a run that is there comes before a scheduled one
    api.unpause("medallion")
    state = api.wait_for_run("medallion", run, 900, Clock())

    tasks = api.task_states("medallion", run)
    assert tasks.pop("ask_for_decision") == "skipped"  # no gate is closed
    assert (state, set(tasks.values())) == ("success", {"success"}), tasks
    release = newest_release(settings)
    assert release.release_id == 1
    assert reconcile(settings, release).differences == []
    for gate in GATES:
        told = call("GET", f"/dags/medallion/dagRuns/{run}/taskInstances/{gate}/xcomEntries/return_value?deserialize=true")["value"]
        assert told["verdict"] == "passed"
        assert (settings.quality / url2pathname(urlsplit(told["report"]).path).partition("/quality/")[2]).is_file()
    lineage_leads_from_the_run_to_its_tables(lineage_file(settings.home), run)
    bronze_outlives_its_run_and_stops_when_asked(settings, api, call)


def lineage_leads_from_the_run_to_its_tables(file: Path, run: str) -> None:
    """By the runs that events name as their parents: Airflow's run, its task, the job, the versions of tables and offsets of topics."""
    events = [json.loads(line) for line in file.read_text().splitlines()]
    first = {event["run"]["runId"]: event for event in reversed(events)}
    for task, job in (("silver", "silver"), ("gold_gate", "gate-gold"), ("release", "release")):  # with and without spark-submit
        of_job = [event for event in events if (event["job"]["name"], event["eventType"]) == (job, "COMPLETE")]
        (done,) = [event for event in of_job if run in {tag["value"] for tag in event["run"]["facets"]["tags"]["tags"]}]
        of_task = first[done["run"]["facets"]["parent"]["run"]["runId"]]
        assert (of_task["job"]["namespace"], of_task["job"]["name"]) == ("ledger", f"medallion.{task}")
        of_run = first[of_task["run"]["facets"]["parent"]["run"]["runId"]]
        assert of_run["run"]["facets"]["airflowDagRun"]["dagRun"]["run_id"] == run
        assert done["outputs"]
        assert all(each["facets"]["version"] for each in (*done["inputs"], *done["outputs"]))


def bronze_outlives_its_run_and_stops_when_asked(settings: Settings, api: AirflowApi, call: Call) -> None:
    """Marked as failed, the next run finds the same application; `bronze_control` ends it gracefully, and starts it again."""
    (run,) = api.runs("bronze_ingestion", "running")
    assert api.task_states("bronze_ingestion", run) == {"ingest": "deferred"}
    application = beat(settings).facts["process"]
    call("PATCH", f"/dags/bronze_ingestion/dagRuns/{run}", {"state": "failed"})
    await_that(
        lambda: any(api.task_states("bronze_ingestion", new) == {"ingest": "deferred"} for new in api.runs("bronze_ingestion", "running"))
    )
    assert (beat(settings).is_alive(), beat(settings).facts["process"]) == (True, application)

    stopped = api.trigger("bronze_control", {"action": "stop", "why": "new disks"})
    assert api.wait_for_run("bronze_control", stopped, 300, Clock()) == "success"
    assert (beat(settings).is_alive(), beat(settings).facts["exit_code"]) == (False, 0)
    assert desired_state.read_wanted(settings, INGESTION).origin().startswith("admin at ")
    restarted = api.trigger("bronze_control", {"action": "restart"})
    assert api.wait_for_run("bronze_control", restarted, 300, Clock()) == "success"
    assert beat(settings).is_alive()
    stopped = api.trigger("bronze_control", {"action": "stop"})
    assert api.wait_for_run("bronze_control", stopped, 300, Clock()) == "success"


def beat(settings: Settings) -> Heartbeat:
    """The last heartbeat of the application."""
    found = heartbeat.read_one(settings, INGESTION, "bronze")
    assert found
    return found
