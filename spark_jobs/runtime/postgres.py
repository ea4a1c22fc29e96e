"""Postgres: opened to read one snapshot, and for what hosts share."""

from typing import Any

import psycopg2

from spark_jobs.runtime.settings import Settings, read_endpoints

_ANSWER_SECONDS = 5
# Two processes that create one table at a time can both fail: so one after the other, and no lock where it exists.
_SHARED = """
    do $$ begin
        if to_regclass('ledger_documents') is null then
            perform pg_advisory_xact_lock(hashtextextended('ledger tables', 0));
            create table if not exists ledger_leases (
                warehouse text, name text, epoch bigint not null, owner text, process text, host text, since timestamptz,
                renewed_at timestamptz, is_clean boolean not null, primary key (warehouse, name));
            create table if not exists ledger_documents (
                warehouse text, name text, body text not null, written_at timestamptz not null, primary key (warehouse, name));
        end if;
    end $$
"""


def connect(settings: Settings, seconds: int) -> Any:
    """A connection to LEDGER_POSTGRES_URL whose transaction only reads, from one snapshot. The caller closes it.

    Raises SettingsError when no address is known, psycopg2.Error when the server does not answer.
    """
    connection = _connect(settings, connect_timeout=seconds)
    connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
    return connection


def connect_shared(settings: Settings, silent_seconds: int = 0) -> Any:
    """A connection whose statements each count at once, to a database with the tables that hosts share. The caller closes it.

    The server ends it, with its locks, when it was silent for `silent_seconds`, if given. Raises as `connect` does.
    """
    options = f"-c idle_session_timeout={silent_seconds * 1000} -c statement_timeout={_ANSWER_SECONDS * 1000}"
    connection = _connect(
        settings, connect_timeout=_ANSWER_SECONDS, tcp_user_timeout=_ANSWER_SECONDS * 1000, options=options, application_name="ledger"
    )
    with connection, connection.cursor() as cursor:
        cursor.execute(_SHARED)
    connection.autocommit = True
    return connection


def _connect(settings: Settings, **options: Any) -> Any:
    password = embedded_password(settings)
    return psycopg2.connect(settings.postgres(), **options, **({"password": password} if password else {}))


def embedded_password(settings: Settings) -> str | None:
    """The password of the stack's own Postgres, which is not part of its address; never sent to another one."""
    file = settings.home / "stack/postgres.password"
    is_own = settings.postgres_url is not None and read_endpoints(settings.home).get("postgres_url") == settings.postgres_url
    return file.read_text() if is_own and file.is_file() else None
