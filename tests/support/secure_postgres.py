"""A real Postgres with TLS, of a certificate made for it. The stack's own binaries have no TLS: those of the system are taken."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg2
import pytest

from include.stack import postgres
from include.stack.endpoints import ports_of
from tests.support.certificates import Authority
from tests.support.databases import running_postgres

SYSTEM = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


@dataclass(frozen=True)
class SecurePostgres:
    """Where it listens, and the certificates of its authority and of a stranger."""

    port: int
    password: str
    authority: Path
    stranger: Path

    def url(self, host: str = "localhost", password: str | None = None, authority: Path | None = None) -> str:
        """An address that asks for the whole check of the certificate; without a password where it is empty."""
        word = self.password if password is None else password
        user = f"{postgres.USER}:{quote(word, safe='')}" if word else postgres.USER
        return f"postgresql://{user}@{host}:{self.port}/ledger?sslmode=verify-full&sslrootcert={authority or self.authority}"


@contextmanager
def secure_postgres(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SecurePostgres]:
    """The server while it runs, with the look-up tables; it refuses others than TLS. Skips the test where none is installed."""
    if not SYSTEM:
        pytest.skip("no Postgres with TLS in /usr/lib/postgresql: apt-get install postgresql")
    monkeypatch.setattr(postgres, "BINARIES", SYSTEM[-1].parent)
    folder = home.parent / "certificates"
    authority, stranger = Authority(folder, "authority"), Authority(folder, "stranger")
    with running_postgres(home) as url:
        data = home / "stack/postgres/data"
        owner = data.stat()
        for name, text in {
            "server.pem": authority.issue("localhost", host="localhost").read_text(),
            "pg_hba.conf": "hostssl all all all scram-sha-256\n",
        }.items():
            (data / name).write_text(text)
            os.chown(data / name, owner.st_uid, owner.st_gid)
            (data / name).chmod(0o600)
        connection = psycopg2.connect(url)
        connection.autocommit = True
        with connection.cursor() as cursor:
            for name, text in {"ssl_cert_file": "server.pem", "ssl_key_file": "server.pem", "ssl": "on"}.items():
                cursor.execute(f"alter system set {name} = %s", (text,))
            cursor.execute("select pg_reload_conf()")
        connection.close()
        yield SecurePostgres(ports_of(home)["postgres"], postgres.password_file(home).read_text(), authority.file, stranger.file)
