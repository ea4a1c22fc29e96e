"""The Postgres databases of a home, out of it and into it, by pg_dump and pg_restore."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg2
from psycopg2.extensions import parse_dsn

from include.stack import postgres
from include.stack.airflow import TLS_FILES
from include.stack.endpoints import only_one, set_outside
from include.stack.processes import find_part
from include.stack.shutdown import stop_parts
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.masking import mask_url

_LIBPQ = {"user": "PGUSER", "password": "PGPASSWORD", "host": "PGHOST", "port": "PGPORT", "dbname": "PGDATABASE", "passfile": "PGPASSFILE"}
_LIBPQ |= {"sslmode": "PGSSLMODE", **TLS_FILES}


@contextmanager
def running(home: Path, environ: Mapping[str, str] = os.environ) -> Iterator[dict[str, str]]:
    """The address, with its password, of each database by its name, while the server runs.

    An outside Postgres has one, `ledger`, which is Airflow's, too. The embedded one is started if it does not run, and stopped again.
    """
    if outside := set_outside(environ, "LEDGER_POSTGRES_URL", postgres.own_url(home)):
        yield {"ledger": outside}
        return
    with only_one(home, lambda _: None):
        was_running = find_part(home, postgres.PART) is not None
        try:
            if started := postgres.launch(home):
                postgres.wait(home, started)
            yield {name: postgres.own_url(home, name, with_password=True) or "" for name in postgres.DATABASES}
        finally:
            if not was_running:
                stop_parts(home, [postgres.PART], lambda _: None)


def dump(url: str, file: Path) -> None:
    """Write a database to a file: one moment of it. Raises LedgerError when that fails."""
    _run(["pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--file={file}"], url)


def load(url: str, file: Path) -> None:
    """Fill an empty database from a file, whole or not at all. Raises LedgerError when that fails, or the database is not empty."""
    connection = psycopg2.connect(url)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')")
            present = cursor.fetchone()[0]
    finally:
        connection.close()
    if present:
        raise LedgerError(f"{mask_url(url)}: found {present} tables, expected an empty database: name another one, or empty it")
    database = parse_dsn(url)["dbname"]
    words = ["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction", f"--dbname={database}", str(file)]
    _run(["pg_restore", *words], url)


def _run(command: list[str], url: str) -> None:
    """Run a program of Postgres on a database; the password is in no argument."""
    known = {_LIBPQ[name]: text for name, text in parse_dsn(url).items() if name in _LIBPQ}
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", **known}
    done = subprocess.run(
        [str(postgres.BINARIES / command[0]), *command[1:]], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise LedgerError(f"{command[0]} of {mask_url(url)} failed: {' | '.join(done.stderr.splitlines()[-3:])}")
