"""The embedded Airflow: api-server, scheduler, dag-processor and triggerer with a LocalExecutor, on Postgres."""

import base64
import hashlib
import json
import os
import secrets
import shlex
from collections.abc import Callable, Mapping
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import httpx
import psycopg2

from include.airflow_roles import ADMIN, OPERATOR, VIEWER, fingerprint
from include.stack import s3
from include.stack.airflow_api import AirflowApi
from include.stack.endpoints import HOST, secret, stack_folder
from include.stack.processes import HOME_MARK, PART_MARK, Running, environment_of, find_part, start, wait_until
from include.stack.shutdown import stop_parts
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.fork_server import ONE_THREAD
from spark_jobs.runtime.settings import CLUSTER_SECRET, ROOT, Settings

USER = "admin"
USERS = {"viewer": VIEWER, "operator": OPERATOR, USER: ADMIN}  # each with its role
# --skip-serve-logs: the log servers would listen on every address, and all logs are on this machine anyway.
COMMANDS = {
    "airflow-api-server": ["api-server"],
    "airflow-scheduler": ["scheduler", "--skip-serve-logs"],
    "airflow-dag-processor": ["dag-processor"],
    "airflow-triggerer": ["triggerer", "--skip-serve-logs"],
}
MAIL_SERVER = "AIRFLOW_CONN_SMTP_DEFAULT"
MIGRATION = "airflow-migration"
TLS_FILES = {"sslrootcert": "PGSSLROOTCERT", "sslcert": "PGSSLCERT", "sslkey": "PGSSLKEY"}
PARTS = (*COMMANDS, MIGRATION)
READY_SECONDS = 240


def password_file(home: Path, user: str = USER) -> Path:
    """The file that holds the password of one of USERS and nothing else."""
    return home / f"stack/airflow/{user}.password"


def environment(settings: Settings, metadata_url: str, port: int, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of every Airflow part, and so of every task: all its configuration, nothing secret by value.

    Variables of the caller that would change Python, Airflow or Spark are left out, but for the mail server of alerts; LEDGER_* are
    passed on as they took effect.
    """
    folder = stack_folder(settings.home) / "airflow"
    python = str(ROOT / ".venv/bin/python")
    foreign = ("AIRFLOW", "_AIRFLOW", "PYTHON", "LEDGER_STACK", "SPARK_", "PYSPARK_", "HADOOP_CONF", "VIRTUAL_ENV")
    kept = {name: text for name, text in environ.items() if not name.startswith(foreign) or name == MAIL_SERVER}
    ledger = {
        "LEDGER_HOME": str(settings.home),
        "LEDGER_WAREHOUSE": str(settings.warehouse),
        "LEDGER_CHECKPOINTS": str(settings.checkpoints),
        "LEDGER_HOSTS": "several" if settings.has_several_hosts else "one",
        "LEDGER_KAFKA_BOOTSTRAP": settings.broker().servers,
        "LEDGER_SPARK_MASTER": settings.spark_master,
        "LEDGER_ALLOWED_LATENESS_SECONDS": str(settings.allowed_lateness_seconds),
        "LEDGER_LARGE_CREDIT": str(settings.large_credit),
        "LEDGER_RELEASE_DAYS": str(settings.release_days),
    }
    url = f"http://{HOST}:{port}"
    options = {
        "CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "CORE__PLUGINS_FOLDER": str(ROOT / "include/plugins"),
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__EXECUTOR": "LocalExecutor",
        "CORE__PARALLELISM": "4",
        "CORE__HOSTNAME_CALLABLE": "socket.gethostname",
        "CORE__DAGBAG_IMPORT_TIMEOUT": "60",
        "CORE__AUTH_MANAGER": "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager",
        "FAB__UPDATE_FAB_PERMS": "False",  # done with the migration: each start of the API server would do it again
        "CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "CORE__FERNET_KEY_CMD": _read_command(folder / "fernet.key", _fernet_key),
        "DATABASE__SQL_ALCHEMY_CONN_CMD": _read_command(folder / "metadata.url", lambda: _for_sqlalchemy(metadata_url), fresh=True),
        "DATABASE__SQL_ALCHEMY_CONN_ASYNC_CMD": _read_command(folder / "metadata.async.url", lambda: for_asyncpg(metadata_url), fresh=True),
        "API__BASE_URL": url,
        "API__HOST": HOST,
        "API__PORT": str(port),
        "API__WORKERS": "1",
        "API__SECRET_KEY_CMD": _read_command(folder / "api.secret"),
        "API_AUTH__JWT_SECRET_CMD": _read_command(folder / "jwt.secret"),
        "DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "DAG_PROCESSOR__REFRESH_INTERVAL": "30",  # lists the folder: a new file is found at once
        "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "120",  # parsing all files costs 4 s of processor time
        "DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "120",
        # A task that died with the Airflow before (make down, a crash) is found within the minute, not after five.
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
        "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "30",
        "WORKERS__MIN_HEARTBEAT_INTERVAL": "1",  # how long the end of a task's process may be overlooked; five seconds by default
        "OPENLINEAGE__NAMESPACE": "ledger",  # as of the jobs' own events; where to they go, the client's variables say for both
        "OPENLINEAGE__DISABLE_SOURCE_CODE": "True",
        "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",  # between the tasks of a run; each look costs 0.03 s of processor time
        "LOGGING__COLORED_CONSOLE_LOG": "False",
        # Airflow sets the modes of tasks' logs itself, and by default lets others read them.
        "LOGGING__FILE_TASK_HANDLER_NEW_FOLDER_PERMISSIONS": "0o700",
        "LOGGING__FILE_TASK_HANDLER_NEW_FILE_PERMISSIONS": "0o600",
    }
    connection = {"conn_type": "spark", "host": settings.spark_master, "extra": {"deploy-mode": "client"}}
    return {
        **kept,
        **ledger,
        **s3.environment(settings.home, settings),
        **ONE_THREAD,
        **_tls_files(metadata_url),
        "PATH": f"{ROOT / '.venv/bin'}{os.pathsep}{environ.get('PATH', os.defpath)}",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        **{name: ",".join(filter(None, [environ.get(name), HOST, "localhost"])) for name in ("NO_PROXY", "no_proxy")},
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection),
        **{f"AIRFLOW__{name}": value for name, value in options.items()},
    }


def migrate(home: Path, wanted: Mapping[str, str], metadata_url: str) -> Running | None:
    """Start to bring the metadata database, its roles and USERS up to date; None when that was done before and nothing changed since."""
    for user in USERS:
        secret(password_file(home, user))
    stamp = _stamp(metadata_url)
    if stamp and _stamp_file(home).exists() and _stamp_file(home).read_text() == stamp:
        return None
    (home / "stack/airflow/users.json").unlink(missing_ok=True)  # of an older version: a password
    users = [word for user, role in USERS.items() for word in ("--user", user, role, str(password_file(home, user)))]
    command = [str(ROOT / ".venv/bin/python"), "-m", "include.airflow_roles", *users]
    return start(home, MIGRATION, command, wanted, _log(home, MIGRATION))


def wait_for_migration(home: Path, running: Running, metadata_url: str) -> None:
    """Return when the metadata database is up to date; raises LedgerError when it could not be done."""

    def done() -> bool:
        return running.child is not None and running.child.poll() == 0

    wait_until(done, [running], READY_SECONDS)
    write_whole(_stamp_file(home), _stamp(metadata_url) or "")


def launch(home: Path, wanted: Mapping[str, str]) -> list[Running]:
    """Start every part that does not run, or runs with other settings; returns those that were started."""
    started = []
    for part, command in COMMANDS.items():
        process = find_part(home, part)
        if process and _same_settings(environment_of(process), wanted):
            continue
        stop_parts(home, [part], lambda _: None)  # also what a killed part left behind
        started.append(start(home, part, [_airflow(), *command], wanted, _log(home, part)))
    return started


def wait(home: Path, port: int) -> None:
    """Return when every part is healthy and the port answers with this home's Airflow; raises LedgerError otherwise."""
    running = [Running(part, process, _log(home, part)) for part in COMMANDS if (process := find_part(home, part))]
    if missing := set(COMMANDS) - {part.part for part in running}:
        raise LedgerError(f"{min(missing)} ended before it was ready; see {_log(home, min(missing))}")
    started = {part.part.removeprefix("airflow-").replace("-", "_"): part.process.create_time() for part in running}
    wait_until(lambda: is_healthy(home, port, started), running, READY_SECONDS)


def is_healthy(home: Path, port: int, started: Mapping[str, float]) -> bool:
    """Whether Airflow's own health page is good, every heartbeat is younger than its process, and our password is accepted."""
    api = AirflowApi(f"http://{HOST}:{port}", USER, password_file(home).read_text())
    try:
        health = api.health()
        for name in ("metadatabase", "scheduler", "triggerer", "dag_processor"):
            if health[name]["status"] != "healthy":
                return False
            beat = health[name].get(f"latest_{name}_heartbeat")
            if name in started and (beat is None or datetime.fromisoformat(beat).timestamp() < started[name]):
                return False
        api.log_in()
    except (httpx.HTTPError, LedgerError, KeyError, TypeError, ValueError):
        return False
    return True


def _same_settings(found: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    def relevant(variables: Mapping[str, str]) -> dict[str, str]:
        marks = (HOME_MARK, PART_MARK)
        of_s3 = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION")
        own = ("AIRFLOW", "LEDGER_", CLUSTER_SECRET, *of_s3)
        return {name: text for name, text in variables.items() if name.startswith(own) and name not in marks}

    return relevant(found) == relevant(wanted)


def _airflow() -> str:
    return str(ROOT / ".venv/bin/airflow")


def _log(home: Path, part: str) -> Path:
    return home / "stack/airflow" / f"{part}.log"


def _stamp_file(home: Path) -> Path:
    return home / "stack/airflow/.migrated"


def _stamp(metadata_url: str) -> str | None:
    """What a migration has to do with, as a digest: versions, schemas, roles, USERS' passwords; None before the first migration."""
    connection = psycopg2.connect(metadata_url)
    try:
        with connection, connection.cursor() as cursor:
            found = [fingerprint(), version("apache-airflow"), version("apache-airflow-providers-fab")]
            for query in ("SELECT version_num FROM alembic_version", "SELECT version_num FROM alembic_version_fab"):
                cursor.execute(query)
                found.append(str(cursor.fetchall()))
            cursor.execute("SELECT username, password FROM ab_user WHERE username = ANY(%s) ORDER BY 1", (list(USERS),))
            return hashlib.sha256(str([*found, cursor.fetchall()]).encode()).hexdigest()
    except psycopg2.errors.UndefinedTable:
        return None
    finally:
        connection.close()


def _read_command(file: Path, make: Callable[[], str] = secrets.token_hex, fresh: bool = False) -> str:
    """The command by which Airflow reads a secret from its file, so that it is in no process's environment."""
    if fresh:
        write_whole(file, make())
    else:
        secret(file, make)
    return f"cat {shlex.quote(str(file))}"


def _for_sqlalchemy(url: str) -> str:
    """The same address in SQLAlchemy's words."""
    return f"postgresql+psycopg2://{url.partition('://')[2]}"


def for_asyncpg(url: str) -> str:
    """The same address for SQLAlchemy's asynchronous driver, which takes `sslmode` as `ssl`, and the files of TLS from TLS_FILES."""
    parts = urlsplit(url)
    query = [("ssl" if name == "sslmode" else name, text) for name, text in parse_qsl(parts.query) if name not in TLS_FILES]
    return urlunsplit(parts._replace(scheme="postgresql+asyncpg", query=urlencode(query, safe="/")))


def _tls_files(url: str) -> dict[str, str]:
    """The variables by which asyncpg finds the files of TLS that an address names."""
    return {TLS_FILES[name]: text for name, text in parse_qsl(urlsplit(url).query) if name in TLS_FILES}


def _fernet_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
