"""A real Postgres for the tests of a module, with the look-up tables."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg2

from include.stack import postgres
from include.stack.shutdown import stop_parts


@contextmanager
def running_postgres(home: Path) -> Iterator[str]:
    """The address, with its password, of a server that has the look-up tables; it is stopped behind the block."""
    try:
        start(home)
        url = postgres.own_url(home, with_password=True)
        assert url
        postgres.make_tables(url)
        yield url
    finally:
        stop_parts(home, None, lambda _: None)


def start(home: Path) -> None:
    """Start the server of a home, which had one before or not; it answers."""
    if started := postgres.launch(home):
        postgres.wait(home, started)


def execute(url: str, statement: str, rows: Iterable[tuple[Any, ...]] = ((),)) -> None:
    """Run a statement once for each row of its values."""
    connection = psycopg2.connect(url)
    try:
        with connection, connection.cursor() as cursor:
            cursor.executemany(statement, list(rows))
    finally:
        connection.close()
