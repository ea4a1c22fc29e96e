"""The embedded stack as a user meets it: its commands, real services, and what is left when something goes wrong."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest
from confluent_kafka.admin import AdminClient

from include.demo.waiting import wait_for_dags
from include.stack import airflow, cluster, lifecycle, prometheus, s3
from include.stack.airflow_api import AirflowApi
from include.stack.processes import alive, find_all, find_part, start
from spark_jobs.kafka.topics import SOURCE_TOPICS
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import ROOT
from tests.support.ledger import await_that

pytestmark = [pytest.mark.integration, pytest.mark.airflow]
PARTS = ("KAFKA", "POSTGRES", "AIRFLOW_API_SERVER", "AIRFLOW_SCHEDULER", "AIRFLOW_DAG_PROCESSOR", "AIRFLOW_TRIGGERER")
DRIVER = "import time; time.sleep(600) # spark_jobs"

MORE_THAN_A_VIEWER = """INSERT INTO ab_permission_view_role (id, permission_view_id, role_id)
    SELECT nextval('ab_permission_view_role_id_seq'), pair.id, ab_role.id FROM ab_role, ab_permission_view pair
    JOIN ab_permission ON ab_permission.id = pair.permission_id JOIN ab_view_menu ON ab_view_menu.id = pair.view_menu_id
    WHERE ab_permission.name = 'can_edit' AND ab_view_menu.name = 'DAGs' AND ab_role.name = 'Ledger viewer'"""


def stack(command: str, home: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words(command), cwd=ROOT, env=environment(home, **settings), capture_output=True, text=True, check=False)


def words(command: str) -> list[str]:
    return [sys.executable, "-m", "include.stack", command]


def environment(home: Path, **settings: str) -> dict[str, str]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("LEDGER_") or name.startswith("LEDGER_ALERT_")}
    return {**outside, "LEDGER_HOME": str(home), **settings}


def status(home: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in stack("status", home).stdout.splitlines())


@pytest.fixture
def home(stack_home: Path) -> Path:
    return stack_home


@pytest.fixture
def empty_home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    stack("down", tmp_path)
    assert find_all(tmp_path) == []


def test_all_parts_run_and_status_says_where(home: Path) -> None:
    told = status(home)
    assert {part: told[part] for part in PARTS} == dict.fromkeys(PARTS, "running")
    assert told["LEDGER_HOME"] == str(home)
    assert set(AdminClient({"bootstrap.servers": told["LEDGER_KAFKA_BOOTSTRAP"]}).list_topics(timeout=10).topics) >= {
        topic.name for topic in SOURCE_TOPICS
    }


def test_no_secret_is_shown(home: Path) -> None:
    told = status(home)
    shown = "\n".join(told.values()) + (home / "stack/endpoints.json").read_text()
    for file in (told["AIRFLOW_PASSWORD_FILE"], told["POSTGRES_PASSWORD_FILE"]):
        assert Path(file).read_text() not in shown
        assert Path(file).stat().st_mode & 0o777 == 0o600


def test_postgres_wants_its_password(home: Path) -> None:
    told = status(home)
    password = Path(told["POSTGRES_PASSWORD_FILE"]).read_text()
    with pytest.raises(psycopg2.OperationalError):
        psycopg2.connect(told["LEDGER_POSTGRES_URL"], password="wrong")
    connection = psycopg2.connect(told["LEDGER_POSTGRES_URL"], password=password)
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM accounts")
        assert cursor.fetchone() == (0,)
    connection.close()


def users(home: Path) -> dict[str, AirflowApi]:
    """Airflow as each of its users, with the password of the user's file."""
    told = status(home)
    file = Path(told["AIRFLOW_PASSWORD_FILE"])
    names = told["AIRFLOW_USERS"].split(",")
    return {name: AirflowApi(told["AIRFLOW_URL"], name, file.with_name(f"{name}.password").read_text()) for name in names}


def test_airflow_answers_its_users(home: Path) -> None:
    answering = users(home)
    assert list(answering) == ["viewer", "operator", "admin"]
    for api in answering.values():
        assert api.import_errors() == []
        assert not api.has_dag("no_such_dag")
    wait_for_dags(answering["admin"], "release_watch")
    answering["operator"].unpause("release_watch")
    with pytest.raises(LedgerError, match="answered 403 to PATCH"):
        answering["viewer"].unpause("release_watch")


def test_up_again_changes_nothing(home: Path) -> None:
    before = {part: find_part(home, part) for part in lifecycle.PARTS}
    assert {part for part, process in before.items() if process} == set(lifecycle.PARTS) - {
        *prometheus.PARTS,
        *cluster.PARTS,
        s3.PART,
    }  # these only on request
    assert stack("up", home).returncode == 0
    assert {part: find_part(home, part) for part in lifecycle.PARTS} == before


def test_up_makes_users_roles_and_passwords_again_that_a_home_lacks(home: Path) -> None:
    """As in a home of an older version, which had one user, in a file, and as after a password that somebody has changed."""
    (home / "stack/airflow/users.json").write_text("{}")
    url = (home / "stack/airflow/metadata.url").read_text().replace("postgresql+psycopg2", "postgresql")
    with closing(psycopg2.connect(url)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("DELETE FROM ab_user_role WHERE user_id IN (SELECT id FROM ab_user WHERE username = 'viewer')")
        cursor.execute("DELETE FROM ab_user WHERE username = 'viewer'")
        cursor.execute("UPDATE ab_user SET password = (SELECT password FROM ab_user WHERE username = 'admin') WHERE username = 'operator'")
        cursor.execute(MORE_THAN_A_VIEWER)
        assert cursor.rowcount == 1
    assert stack("up", home).returncode == 0
    assert not (home / "stack/airflow/users.json").exists()
    test_airflow_answers_its_users(home)


def test_up_restarts_what_died_on_its_old_port(home: Path) -> None:
    before = status(home)
    for part in ("kafka", "airflow-scheduler"):
        process = find_part(home, part)
        assert process
        process.kill()
        process.wait(timeout=20)
    assert status(home)["KAFKA"] == "stopped"
    up = stack("up", home)
    assert up.returncode == 0, up.stderr
    assert status(home) == before


def test_outside_services_are_used_and_not_stopped(home: Path, empty_home: Path) -> None:
    told = status(home)
    url = told["LEDGER_POSTGRES_URL"].replace("ledger@", f"ledger:{Path(told['POSTGRES_PASSWORD_FILE']).read_text()}@")
    outside = {"LEDGER_KAFKA_BOOTSTRAP": told["LEDGER_KAFKA_BOOTSTRAP"], "LEDGER_POSTGRES_URL": url}
    up = stack("up", empty_home, **outside)
    assert up.returncode == 0, up.stderr
    assert url not in up.stdout + up.stderr
    assert not (empty_home / "stack/kafka").exists()
    assert not (empty_home / "stack/postgres").exists()
    assert stack("down", empty_home).returncode == 0
    assert status(home)["KAFKA"] == "running"


def test_down_stops_drivers_too_and_may_be_repeated(home: Path) -> None:
    driver = start(home, "airflow-scheduler", [sys.executable, "-c", DRIVER], dict(os.environ), home / "driver.log").process
    down = stack("down", home, LEDGER_AIRFLOW_PORT="not a port")  # whatever the settings say
    assert down.returncode == 0, down.stderr
    assert not alive(driver)
    assert find_all(home) == []
    assert not (home / "stack/endpoints.json").exists()
    assert stack("down", home).returncode == 0
    assert {status(home)[part] for part in PARTS} == {"stopped"}


def test_a_taken_port_is_one_line_and_starts_nothing(empty_home: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        up = stack("up", empty_home, LEDGER_AIRFLOW_PORT=str(port))
    assert (up.returncode, up.stderr.count("\n")) == (1, 1)
    assert f"port {port} (LEDGER_AIRFLOW_PORT) is taken" in up.stderr
    assert find_all(empty_home) == []


def test_a_bad_setting_is_one_line_and_exit_code_2(empty_home: Path) -> None:
    up = stack("up", empty_home, LEDGER_AIRFLOW_PORT="many")
    assert (up.returncode, up.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("setting", ["LEDGER_KAFKA_BOOTSTRAP=127.0.0.1:9", "LEDGER_POSTGRES_URL=postgresql://a:s3cret@127.0.0.1:9/x"])
def test_an_outside_service_that_is_away_is_one_line_and_leaves_nothing(empty_home: Path, setting: str) -> None:
    name, value = setting.split("=", 1)
    up = stack("up", empty_home, **{name: value})
    assert (up.returncode, up.stderr.count("\n")) == (1, 1)
    assert name in up.stderr
    assert "s3cret" not in up.stderr
    assert find_all(empty_home) == []


@pytest.mark.parametrize(("number", "left"), [(signal.SIGINT, False), (signal.SIGKILL, True)], ids=["interrupted", "killed"])
def test_an_up_that_is_ended_leaves_nothing_after_down(empty_home: Path, number: signal.Signals, left: bool) -> None:
    up = subprocess.Popen(
        words("up"),
        cwd=ROOT,
        env=environment(empty_home),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it, and so would its children
    )
    await_that(lambda: find_part(empty_home, "kafka") and find_part(empty_home, "postgres"))
    up.send_signal(number)
    up.wait(timeout=60)
    assert bool(find_all(empty_home)) is left
    assert stack("down", empty_home).returncode == 0


def test_the_migration_is_a_part_that_down_knows() -> None:
    assert airflow.MIGRATION in airflow.PARTS
