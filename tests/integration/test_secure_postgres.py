"""Every client of Postgres against a real server with TLS: the certificate is verified whole, and no secret is shown."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from include.stack import airflow
from spark_jobs.live.products.lookup_client import Limits, Source, postgres as open_pool
from spark_jobs.runtime.postgres import connect
from spark_jobs.runtime.settings import read_settings
from tests.support.databases import execute
from tests.support.ledger import Ledger, await_that
from tests.support.secure_postgres import SecurePostgres, secure_postgres

pytestmark = pytest.mark.integration

IS_TLS = "select ssl from pg_stat_ssl where pid = pg_backend_pid()"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecurePostgres]:
    with pytest.MonkeyPatch.context() as patch, secure_postgres(tmp_path_factory.mktemp("secure") / "home", patch) as server:
        await_that(lambda: answers(server.url()), 20)  # the settings of a reload hold a moment later
        execute(server.url(), "insert into accounts values ('A1', 1, 'monthly', '2020-01-01', now())")
        yield server


def answers(url: str) -> bool:
    try:
        psycopg2.connect(url).close()
    except psycopg2.Error:
        return False
    return True


def test_a_connection_without_tls_is_refused(secure: SecurePostgres) -> None:
    with pytest.raises(psycopg2.OperationalError, match="no encryption"):
        psycopg2.connect(secure.url().replace("verify-full", "disable"))


def test_jobs_connect_with_tls_and_a_password_from_a_file(secure: SecurePostgres, tmp_path: Path) -> None:
    file = tmp_path / "pgpass"
    file.write_text(f"localhost:{secure.port}:*:ledger:{secure.password}\n")
    file.chmod(0o600)
    url = f"{secure.url(password='')}&passfile={file}"
    assert secure.password not in url
    connection = connect(read_settings({"LEDGER_HOME": str(tmp_path), "LEDGER_POSTGRES_URL": url}), 10)
    with connection.cursor() as cursor:
        cursor.execute(IS_TLS)
        assert cursor.fetchall() == [(True,)]
    assert connection.info.password == secure.password  # what exports give to Spark
    connection.close()

    async def look_up() -> object:
        async with open_pool(Source("select ssl, $1::text from pg_stat_ssl where pid = pg_backend_pid()", url, None), Limits()) as ask:
            return await ask("A1")

    assert asyncio.run(look_up()) == (True, "A1")


def test_both_of_airflows_drivers_connect_with_tls(secure: SecurePostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    with create_engine(airflow._for_sqlalchemy(secure.url())).connect() as connection:
        assert connection.execute(text(IS_TLS)).scalar() is True
    url = airflow.for_asyncpg(secure.url())
    for name, value in airflow._tls_files(secure.url()).items():
        monkeypatch.setenv(name, value)

    async def ask(address: str) -> object:
        engine = create_async_engine(address)
        try:
            async with engine.connect() as connection:
                return (await connection.execute(text(IS_TLS))).scalar()
        finally:
            await engine.dispose()

    assert asyncio.run(ask(url)) is True
    monkeypatch.setenv("PGSSLROOTCERT", str(secure.stranger))
    with pytest.raises(OSError, match="certificate verify failed"):
        asyncio.run(ask(url))


def test_an_export_reads_with_tls(secure: SecurePostgres, tmp_path: Path) -> None:
    ledger, target = Ledger(tmp_path / "home"), tmp_path / "out"
    command = f"--engine none export --postgres public.accounts --to {target}"
    done = ledger.try_run(command, LEDGER_POSTGRES_URL=secure.url())
    assert done.returncode == 0, done.stderr
    assert list(target.rglob("*.parquet"))
    written = [path for path in tmp_path.rglob("*") if path.is_file() and secure.password.encode() in path.read_bytes()]
    assert written == []
    assert secure.password not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("case", "expected"),
    [("authority", "certificate verify failed"), ("host", 'does not match host name "127.0.0.1"'), ("password", "authentication failed")],
)
def test_what_is_wrong_is_said_in_one_line(secure: SecurePostgres, tmp_path: Path, case: str, expected: str) -> None:
    url = {
        "authority": secure.url(authority=secure.stranger),
        "host": secure.url(host="127.0.0.1"),
        "password": secure.url(password="canary-not-the-one"),
    }[case]
    done = Ledger(tmp_path / "home").try_run(f"export --postgres public.accounts --to {tmp_path / 'out'}", LEDGER_POSTGRES_URL=url)
    assert done.returncode == 1, done.stderr
    errors = [line for line in done.stderr.splitlines() if " ERROR " in line or line.startswith("ERROR")]
    assert len(errors) == 1, done.stderr
    assert expected in errors[0]
    assert "check LEDGER_POSTGRES_URL" in errors[0]
    assert all(secret not in done.stdout + done.stderr for secret in (secure.password, "canary-not-the-one"))
