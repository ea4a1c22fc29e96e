"""Days rebuilt as a person asks for them: by `airflow backfill create`, which does what Airflow's Backfill form does."""

import json
import subprocess
from datetime import date, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable
from psutil import Process

from include.demo.reconciliation import reconcile
from include.demo.waiting import Clock, wait_for_dags, wait_for_ingestion
from include.producer import Disturbances, generated_sources, plan_messages, publish
from include.stack.airflow_api import AirflowApi
from include.stack.processes import environment_of, find_all, find_part
from spark_jobs import control
from spark_jobs.lake.tables import BACKFILLS, DAILY_TOTALS, SILVER_TRANSACTIONS
from spark_jobs.releases.releases import has_unreleased_batches, latest_release, newest_release
from spark_jobs.runtime.settings import ROOT, Settings
from tests.support.ledger import ALL_STEPS, Ledger, await_that
from tests.support.waves import new

pytestmark = [pytest.mark.integration, pytest.mark.airflow]

DAG, LIVE = "backfill_days", ("bronze_ingestion", "medallion")
DAYS = 3


@pytest.fixture
def ledger(settings: Settings, api: AirflowApi, warm: None) -> Ledger:
    """The stack's tables with a release of some rows, and no run that is at work on them."""
    ledger = Ledger(settings.home, settings.broker().servers)
    if latest_release(settings) is None:
        assert publish(settings.broker(), plan_messages(generated_sources(500, seed=5), Disturbances(late=0.05, seed=5))).is_delivered
        ledger.run("bronze --available-now", *ALL_STEPS)
    wait_for_dags(api, DAG, *LIVE)
    return ledger


def test_days_of_a_backfill_share_applications_and_are_released(settings: Settings, api: AirflowApi, ledger: Ledger) -> None:
    first, last = busy_days(settings)
    form = {"dag_id": DAG, "from_date": f"{first}T00:00:00Z", "to_date": f"{last}T00:00:00Z", "max_active_runs": DAYS}
    offered = api._call("POST", "/backfills/dry_run", form)
    assert offered is not None
    assert [run["logical_date"][:10] for run in offered["backfills"]] == [str(first + timedelta(number)) for number in range(DAYS)]

    totals, before = ledger.rows(DAILY_TOTALS), newest_release(settings).release_id
    where = f"window_start >= arrow_cast('{first}', 'Timestamp(Microsecond, Some(\"UTC\"))')"
    assert DeltaTable(str(DAILY_TOTALS.path(settings))).delete(where)["num_deleted_rows"] > 0  # which only a rebuild brings back
    create(settings, first, last, "--dag-run-conf", json.dumps({"tables": [SILVER_TRANSACTIONS.name, DAILY_TOTALS.name]}))
    states = ended(api, first, DAYS)
    assert sorted(states["run_id"]) == [f"backfill__{first + timedelta(number)}T00:00:00+00:00" for number in range(DAYS)]
    assert states["run"] == ["success"] * DAYS
    assert states["find_days"] == states["rebuild"] == ["success"] * DAYS
    begun = [row["run_id"] for row in control.read(settings, BACKFILLS).to_pylist() if row["state"] == "started"]
    own = [run_id for run_id in states["run_id"] if run_id in begun]
    assert 0 < len(own) < DAYS, "the first run takes what is asked for by then, and the next one all the rest"
    assert [state for run_id, state in zip(states["run_id"], states["released"], strict=True) if run_id in own] == ["success"] * len(own)
    assert sorted(states["released"]) == ["skipped"] * (DAYS - len(own)) + ["success"] * len(own)
    assert by_window(ledger.rows(DAILY_TOTALS)) == by_window(totals)
    release = newest_release(settings)
    assert release.release_id > before
    assert release.versions[DAILY_TOTALS.name] == ledger.versions()[DAILY_TOTALS.name]
    assert reconcile(settings, release).differences == []


@pytest.mark.soak
def test_days_are_rebuilt_while_live_data_comes_and_an_application_is_killed(settings: Settings, api: AirflowApi, ledger: Ledger) -> None:
    first, last = busy_days(settings, days=40)
    messages = plan_messages(generated_sources(4000, seed=6), Disturbances(duplicates=0.05, late=0.05, seed=6))
    plan = [new(each, f"live{each.key.decode()}") if each.topic == "transactions" else each for each in messages]
    for dag in LIVE:
        api.unpause(dag)
    api.trigger("bronze_control", {"action": "restart"})  # whatever another test has left
    try:
        create(settings, first, last, "--reprocess-behavior", "completed")
        for part in range(0, len(plan), 1000):
            assert publish(settings.broker(), plan[part : part + 1000]).is_delivered
            wait_for_ingestion(settings, api, Clock())
            if part == 0:
                await_that(lambda: rebuilding(settings))
                for process in rebuilding(settings):
                    process.kill()
        states = ended(api, first, 40)
        assert set(states["run"]) == {"success"}
        assert set(states["rebuild"]) == {"success"}
        assert sorted(set(states["released"])) == ["skipped", "success"]
        await_that(lambda: not has_unreleased_batches(settings), 600)
    finally:
        for dag in LIVE:
            api._call("PATCH", f"/dags/{dag}", {"is_paused": True})
        assert api.wait_for_run("bronze_control", api.trigger("bronze_control", {"action": "stop"}), 300, Clock()) == "success"
    assert reconcile(settings, newest_release(settings)).differences == []


def rebuilding(settings: Settings) -> list[Process]:
    """The processes of the application that rebuilds."""
    found = find_all(settings.home, ["airflow-scheduler"])
    return [process for process in found if {"backfill", "--publish"} <= set(process.cmdline())]


def busy_days(settings: Settings, days: int = DAYS) -> tuple[date, date]:
    """The first and the last of some days in a row, of which silver has rows."""
    sql = "select distinct event_on from t order by event_on desc"
    (newest, *_) = control.query(DeltaTable(str(SILVER_TRANSACTIONS.path(settings))), sql).column("event_on").to_pylist()
    return newest - timedelta(days - 1), newest


def by_window(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["window_start"], row["type"]))


def create(settings: Settings, first: date, last: date, *more: str) -> None:
    """`airflow backfill create`, with the environment of the Airflow that runs."""
    scheduler = find_part(settings.home, "airflow-scheduler")
    assert scheduler is not None
    options = ["--dag-id", DAG, "--from-date", str(first), "--to-date", str(last), "--max-active-runs", str((last - first).days + 1), *more]
    command = [str(ROOT / ".venv/bin/airflow"), "backfill", "create", *options]
    done = subprocess.run(command, env=environment_of(scheduler), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def ended(api: AirflowApi, first: date, days: int) -> dict[str, list[Any]]:
    """Names and states of the runs from a day on, and states of their tasks, once all have ended."""
    path = f"/dags/{DAG}/dagRuns?limit=100&logical_date_gte={first}T00:00:00Z"

    def runs() -> list[dict[str, Any]]:
        return list((api._call("GET", path) or {})["dag_runs"])

    await_that(lambda: all(run["state"] in ("success", "failed") for run in runs()) and len(runs()) == days, 900)
    tasks = [api.task_states(DAG, run["dag_run_id"]) for run in runs()]
    of_runs = {"run": [run["state"] for run in runs()], "run_id": [run["dag_run_id"] for run in runs()]}
    return of_runs | {name: [each[name] for each in tasks] for name in tasks[0]}
