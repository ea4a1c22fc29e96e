"""Postgres, opened to read one snapshot."""

from typing import Any

import psycopg2

from spark_jobs.runtime.settings import Settings, read_endpoints


def connect(settings: Settings, seconds: int) -> Any:
    """A connection to LEDGER_POSTGRES_URL whose transaction only reads, from one snapshot. The caller closes it.

    Raises SettingsError when no address is known, psycopg2.Error when the server does not answer.
    """
    password = embedded_password(settings)
    connection = psycopg2.connect(settings.postgres(), connect_timeout=seconds, **({"password": password} if password else {}))
    connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
    return connection


def embedded_password(settings: Settings) -> str | None:
    """The password of the stack's own Postgres, which is not part of its address; never sent to another one."""
    file = settings.home / "stack/postgres.password"
    is_own = settings.postgres_url is not None and read_endpoints(settings.home).get("postgres_url") == settings.postgres_url
    return file.read_text() if is_own and file.is_file() else None
