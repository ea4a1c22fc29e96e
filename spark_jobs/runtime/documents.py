"""Small texts that processes leave for one another: heartbeats, and requests to long-running applications.

Each is a file below the run folder (Settings.run_folder), or, where several hosts share the warehouse (LEDGER_HOSTS), a row of Postgres
under the name that the file would have.
"""

import os
import threading
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from spark_jobs.runtime import storage
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.errors import LedgerError, first_line
from spark_jobs.runtime.settings import Settings

_READ = """
    select name, body, extract(epoch from clock_timestamp() - written_at)::float from ledger_documents
    where warehouse = %(warehouse)s and starts_with(name, %(start)s)
"""
_WRITE = """
    insert into ledger_documents values (%(warehouse)s, %(name)s, %(body)s, clock_timestamp())
    on conflict (warehouse, name) do update set (body, written_at) = (excluded.body, excluded.written_at)
"""
_REMOVE = "delete from ledger_documents where warehouse = %(warehouse)s and name = %(name)s"
_using = threading.Lock()
_identities: dict[str, str] = {}
_connections: dict[tuple[int, str], Any] = {}  # by process, since a fork shares none, and address


class NoAnswer(LedgerError):
    """Postgres, which has the documents, does not answer."""


@dataclass(frozen=True)
class Document:
    """A text and its age in seconds, by the clock of Postgres; None where one host has one clock."""

    text: str
    age: float | None = None


def read(settings: Settings, file: Path) -> Document:
    """What was written last. Raises FileNotFoundError where nothing was, NoAnswer where Postgres does not answer."""
    if not settings.has_several_hosts:
        return Document(file.read_text())
    name = _name(settings, file)
    for found, text, age in _execute(settings, _READ, start=name):
        if found == name:
            return Document(text, age)
    raise FileNotFoundError(file)


def find(settings: Settings, folder: Path, pattern: str) -> list[Path]:
    """The documents of a folder whose names match a pattern, in the order of their names. Raises NoAnswer as `read` does."""
    if not settings.has_several_hosts:
        return sorted(folder.glob(pattern))
    start = f"{_name(settings, folder)}/"
    names = sorted(name.removeprefix(start) for name, *_ in _execute(settings, _READ, start=start))
    return [folder / name for name in names if "/" not in name and fnmatch(name, pattern)]


def write(settings: Settings, file: Path, text: str) -> None:
    """Replace a document, whole or not at all. Raises NoAnswer as `read` does."""
    if settings.has_several_hosts:
        _execute(settings, _WRITE, name=_name(settings, file), body=text)
    else:
        write_whole(file, text)


def remove(settings: Settings, file: Path) -> None:
    """Remove a document, if it is there. Raises NoAnswer as `read` does."""
    if settings.has_several_hosts:
        _execute(settings, _REMOVE, name=_name(settings, file))
    else:
        file.unlink(missing_ok=True)


def identity_file(settings: Settings) -> Path:
    """The file that says under which name Postgres knows this warehouse, once several hosts have shared it."""
    return settings.warehouse / ".leases" / "several_hosts"


def identity(settings: Settings) -> str:
    """Under which name Postgres knows this warehouse: hosts may reach it by different paths."""
    file = identity_file(settings)
    if str(file) not in _identities:  # it never changes; a lease is renewed while the object storage does not answer
        if not file.exists():
            storage.create(file, f"{uuid.uuid4()}\n")
        _identities[str(file)] = file.read_text().strip()
    return _identities[str(file)]


def _name(settings: Settings, file: Path) -> str:
    return file.relative_to(settings.run_folder).as_posix()


def _execute(settings: Settings, sql: str, **values: Any) -> Iterable[Any]:
    import psycopg2  # most processes need no client of Postgres

    from spark_jobs.runtime.postgres import connect_shared

    key = os.getpid(), settings.postgres()
    with _using:
        for is_last in (False, True):  # a connection of before may have ended since
            try:
                if key not in _connections:
                    _connections[key] = connect_shared(settings)
                with _connections[key].cursor() as cursor:
                    cursor.execute(sql, {"warehouse": identity(settings), **values})
                    return list(cursor.fetchall()) if cursor.description else []
            except psycopg2.Error as error:
                if connection := _connections.pop(key, None):
                    connection.close()
                if is_last:
                    raise NoAnswer(
                        f"heartbeats and requests are in Postgres, which does not answer ({first_line(error)}): start it, or correct "
                        "LEDGER_POSTGRES_URL"
                    ) from None
    return []
