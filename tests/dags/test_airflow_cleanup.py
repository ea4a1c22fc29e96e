"""Airflow's database and task logs: what is old goes, but for what has not ended. With a database of its own (SQLite)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from include import airflow_cleanup
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import ROOT, read_settings

# Runs in processes of their own: Airflow reads its settings while it is imported.
FILL = """
from datetime import UTC, datetime, timedelta
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.log import Log
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunType
from sqlalchemy import text
now = datetime.now(UTC)
with create_session() as session:
    session.add(DagBundleModel(name="dags-folder"))
    session.flush()
    for dag_id in ("medallion", "bronze_ingestion"):
        session.add(DagModel(dag_id=dag_id, bundle_name="dags-folder", fileloc="x.py"))
    session.flush()
    def add(dag_id, days, state, kind=DagRunType.SCHEDULED):
        at = now - timedelta(days=days)
        run = DagRun(dag_id=dag_id, run_id=f"{dag_id}.{days}", run_type=kind, state=state, start_date=at, logical_date=at, run_after=at)
        session.add(run)
    for day in reversed(range(90)):
        add("medallion", day, DagRunState.SUCCESS)
    add("bronze_ingestion", 85, DagRunState.FAILED)
    add("bronze_ingestion", 80, DagRunState.FAILED)
    add("bronze_ingestion", 70, DagRunState.RUNNING, DagRunType.MANUAL)
    for day in range(90):
        entry = Log(event="x", dag_id="medallion")
        entry.dttm = now - timedelta(days=day)
        session.add(entry)
        login = {"id": f"login {day}", "ended": str((now - timedelta(days=day)).replace(tzinfo=None))}
        session.execute(text("insert into session (session_id, expiry) values (:id, :ended)"), login)
"""
COUNT = """
from sqlalchemy import text
from airflow.utils.session import create_session
with create_session() as session:
    for sql in ("select count(*) from dag_run where dag_id = 'medallion'", "select count(*) from log where event = 'x'",
                "select count(*) from session",
                "select count(*) from dag_run where dag_id = 'bronze_ingestion'",
                "select count(*) from sqlite_master where name like '_airflow_deleted%'"):
        print(session.execute(text(sql)).scalar())
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    url = f"sqlite:///{tmp_path}/airflow.db"
    own = {"AIRFLOW_HOME": str(tmp_path), "LEDGER_HOME": str(tmp_path / "home"), "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD": f"echo {url}"}
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("AIRFLOW", "LEDGER"))}
    users = "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager"  # keeps logins in the database
    return kept | own | {"AIRFLOW__CORE__AUTH_MANAGER": users, "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "PYTHONPATH": str(ROOT)}


def process(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr


@pytest.mark.soak
def test_old_runs_go_but_for_those_that_have_not_ended(environment: dict[str, str], tmp_path: Path) -> None:
    process(environment, "-m", "include.airflow_roles")
    process(environment, "-c", FILL)
    log = tmp_path / "logs/dag_id=medallion/run_id=r/task_id=t/attempt=1.log"
    log.parent.mkdir(parents=True)
    log.write_text("old")
    os.utime(log, (0, 0))
    names = ("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "AIRFLOW__CORE__SQL_ALCHEMY_CONN")
    blocked = dict.fromkeys(names, "airflow-db-not-allowed:///")  # what a task finds
    said = process(environment | blocked, "-m", "include.airflow_cleanup")
    assert "database cleaned, 1 log files (0.0 MB) removed; stay, because they have not ended: dag_id=bronze_ingestion/run_id=" in said
    assert process(environment, "-c", COUNT).split()[-5:] == ["30", "30", "30", "2", "0"]  # the newest that nobody triggered stays, too
    assert list((tmp_path / "logs").iterdir()) == []
    process(environment | blocked, "-m", "include.airflow_cleanup")  # once more changes nothing
    assert process(environment, "-c", COUNT).split()[-5:] == ["30", "30", "30", "2", "0"]


def test_without_airflow_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (airflow_cleanup.DATABASE, f"{airflow_cleanup.DATABASE}_CMD"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(LedgerError, match="found no settings of Airflow"):
        airflow_cleanup.use_environment(read_settings({"LEDGER_HOME": str(tmp_path)}))
