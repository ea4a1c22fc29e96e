"""The one environment that all of Airflow runs in."""

import json
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml

from include import airflow_roles
from include.stack import airflow
from include.stack.endpoints import secret
from spark_jobs.runtime.settings import ROOT, read_settings

URL = "postgresql://ledger:s3cret-word@127.0.0.1:15432/airflow"


@pytest.fixture
def wanted(tmp_path: Path) -> dict[str, str]:
    caller = {"LEDGER_HOME": str(tmp_path / "my home"), "LEDGER_KAFKA_BOOTSTRAP": "127.0.0.1:19092", "PATH": "/usr/bin", "TZ": "Asia/Tokyo"}
    foreign = {"PYTHONPATH": "/elsewhere", "SPARK_HOME": "/opt/spark", "AIRFLOW__CORE__DAGS_FOLDER": "/x", "LEDGER_STACK": "/x"}
    return airflow.environment(read_settings(caller), URL, 18080, {**caller, **foreign})


def test_no_secret_is_in_the_environment(wanted: dict[str, str], tmp_path: Path) -> None:
    files = [file for file in (tmp_path / "my home/stack").rglob("*") if file.is_file()]
    secrets = {file.read_text() for file in files}
    assert len(secrets) >= 4
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    assert not [name for name, value in wanted.items() if "s3cret-word" in value or value in secrets]


def test_every_part_knows_the_real_port(wanted: dict[str, str]) -> None:
    assert wanted["AIRFLOW__API__BASE_URL"] == "http://127.0.0.1:18080"
    assert wanted["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == "http://127.0.0.1:18080/execution/"
    assert (wanted["AIRFLOW__API__HOST"], wanted["AIRFLOW__API__PORT"]) == ("127.0.0.1", "18080")


def test_jobs_run_with_this_checkout_and_its_interpreter(wanted: dict[str, str]) -> None:
    assert wanted["PYTHONPATH"] == str(ROOT)
    assert wanted["PATH"] == f"{ROOT}/.venv/bin:/usr/bin"
    assert wanted["PYSPARK_PYTHON"] == wanted["PYSPARK_DRIVER_PYTHON"] == f"{ROOT}/.venv/bin/python"
    assert not {"SPARK_HOME", "LEDGER_STACK"} & set(wanted)
    assert wanted["AIRFLOW__CORE__DAGS_FOLDER"] == f"{ROOT}/dags"
    assert wanted["AIRFLOW__CORE__PLUGINS_FOLDER"] == f"{ROOT}/include/plugins"
    assert json.loads(wanted["AIRFLOW_CONN_SPARK_DEFAULT"])["host"] == wanted["LEDGER_SPARK_MASTER"]


def test_settings_are_passed_on_as_they_took_effect(wanted: dict[str, str], tmp_path: Path) -> None:
    again = read_settings(wanted)
    assert again.home == tmp_path / "my home"
    assert (again.warehouse, again.checkpoints) == (again.home / "warehouse", again.home / "checkpoints")
    assert again.kafka_bootstrap == "127.0.0.1:19092"


def test_each_role_has_a_user_with_a_password_of_its_own(tmp_path: Path) -> None:
    files = [airflow.password_file(tmp_path, user) for user in ("viewer", "operator", "admin")]
    assert len({secret(file) for file in files}) == 3
    assert [len(file.read_text()) >= 32 for file in files] == [True] * 3
    assert [airflow.USERS[file.stem] for file in files] == ["Ledger viewer", "Ledger operator", "Admin"]


def test_an_operator_may_all_that_a_viewer_may_and_neither_may_delete_or_administrate() -> None:
    viewer, operator = airflow_roles.ROLES[airflow_roles.VIEWER], airflow_roles.ROLES[airflow_roles.OPERATOR]
    assert viewer < operator
    assert {action for action, _ in viewer} == {"can_read", "menu_access"}
    assert "can_delete" not in {action for action, _ in operator}
    closed = {"Connections", "Variables", "Configurations", "Users", "Roles", "Audit Logs", "Passwords", "Admin"}
    assert closed.isdisjoint(resource for _, resource in operator)


def test_where_alerts_go_is_passed_on(tmp_path: Path) -> None:
    alerts = {
        "LEDGER_ALERT_WEBHOOK": "https://example.org/hook",
        "LEDGER_ALERT_MAIL": "a@example.org",
        "AIRFLOW_CONN_SMTP_DEFAULT": "smtp://m",
    }
    caller = {"LEDGER_HOME": str(tmp_path), "LEDGER_KAFKA_BOOTSTRAP": "127.0.0.1:19092", "AIRFLOW_CONN_OTHER": "http://x", **alerts}
    wanted = airflow.environment(read_settings(caller), URL, 18080, caller)
    assert {name: wanted.get(name) for name in alerts} == alerts
    assert "AIRFLOW_CONN_OTHER" not in wanted


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL", "120"),  # DAG files are parsed every two minutes
        ("SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME", "0.5"),
        ("WORKERS__MIN_HEARTBEAT_INTERVAL", "1"),
    ],
)
def test_all_stacks_have_the_same_pace(wanted: dict[str, str], option: str, value: str) -> None:
    name = f"AIRFLOW__{option}"
    compose = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
    kubernetes = yaml.safe_load((ROOT / "include/kubernetes/airflow-values.yaml").read_text())["env"]
    assert wanted[name] == compose["x-airflow"]["environment"][name] == value
    assert {"name": name, "value": value} in kubernetes


def test_a_supervisor_looks_for_the_end_of_its_process_as_often_as_it_may_send_a_heartbeat() -> None:
    """Why the interval is short: a supervisor that misses the end of its task's process waits this long for the next look."""
    source = Path(str(distribution("apache-airflow-task-sdk").locate_file("airflow/sdk/execution_time/supervisor.py"))).read_text()
    waiting = source[source.index("max_wait_time = ") :].partition("self._service_subprocess(")[0]
    assert "MIN_HEARTBEAT_INTERVAL" in waiting, "Airflow waits by another option now: set that one in both stacks"


def test_what_airflow_imports_at_its_start_starts_no_thread_and_is_nothing_of_ours(wanted: dict[str, str]) -> None:
    """Its tasks are forks."""
    code = """
import os, sys
import airflow_local_settings
found = set(sys.modules)
print(len(os.listdir("/proc/self/task")), {"spark_jobs", "include", "airflow", "pyspark"} & found)
print({"deltalake", "openlineage.client.client", "aiosmtplib"} - found)
"""
    environment = wanted | {"PYTHONPATH": wanted["AIRFLOW__CORE__PLUGINS_FOLDER"]}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "1 set()\nset()\n"), done.stderr


def test_the_asynchronous_driver_gets_an_address_in_its_own_words() -> None:
    url = "postgresql://u:p%40x@db:5/d?sslmode=verify-full&sslrootcert=/ca.pem&passfile=/p"
    assert airflow.for_asyncpg(url) == "postgresql+asyncpg://u:p%40x@db:5/d?ssl=verify-full&passfile=/p"
    assert airflow._tls_files(url) == {"PGSSLROOTCERT": "/ca.pem"}
    assert airflow.for_asyncpg("postgresql://u:p@db:5/d") == "postgresql+asyncpg://u:p@db:5/d"
