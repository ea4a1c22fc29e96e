"""History in a Postgres table, as rows of texts in the order of a unique column. One snapshot, read in pieces."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
from psycopg2 import sql

from spark_jobs.bronze.imports.texts import Texts
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.postgres import connect
from spark_jobs.runtime.settings import Settings

_ROWS_AT_ONCE = 10_000
_TEXT_TYPES = (18, 19, 25, 1042, 1043)  # "char", name, text, char(n), varchar
_ANSWER_SECONDS = 15
# The texts that Postgres makes of values must not depend on settings.
_SETTINGS = "set timezone = 'UTC'; set datestyle = 'ISO'; set intervalstyle = 'iso_8601'; set extra_float_digits = 1"


class PostgresTable:
    """A table that is open for reading: its columns, and its rows."""

    def __init__(self, connection: Any, table: str, order_by: str) -> None:
        self._connection = connection
        self._table = sql.Identifier(*table.split("."))
        with connection.cursor() as cursor:
            cursor.execute(_SETTINGS)
            cursor.execute(sql.SQL("select * from {} limit 0").format(self._table))
            described = list(cursor.description)
        self.columns = [column.name for column in described]
        if order_by not in self.columns:
            raise SettingsError(f"--order-by: found no column {order_by!r} in {table}, expected one of {', '.join(self.columns)[:200]}")
        self._place = self.columns.index(order_by)
        # The order of texts of a language changes with the versions of its library; that of bytes stays.
        collate = sql.SQL(' collate "C"') if described[self._place].type_code in _TEXT_TYPES else sql.SQL("")
        self._order = sql.Identifier(order_by) + collate
        self._name = f"{table}.{order_by}"

    def rows(self) -> Iterator[Texts]:
        """Every value as Postgres writes it; raises SettingsError when a value to order by is null or there twice."""
        texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(column)) for column in self.columns)
        with self._connection.cursor(name="history") as cursor:
            cursor.itersize = _ROWS_AT_ONCE
            cursor.execute(sql.SQL("select {} from {} order by {}").format(texts, self._table, self._order))
            before = None
            for number, row in enumerate(cursor, start=1):
                at = row[self._place]
                if at is None or at == before:
                    found = "no value" if at is None else "a value that the row before has, too"
                    raise SettingsError(
                        f"--order-by: row {number} has {found} in {self._name}, expected a unique column; nothing was written"
                    )
                before = at
                yield row


@contextmanager
def open_table(settings: Settings, table: str, order_by: str) -> Iterator[PostgresTable]:
    """A table (`name` or `schema.name`) of LEDGER_POSTGRES_URL, in one transaction that only reads.

    Raises SettingsError when there is no such address, table or column, LedgerError when the server does not answer.
    """
    connection = None
    try:
        connection = connect(settings, _ANSWER_SECONDS)
        yield PostgresTable(connection, table, order_by)
    except (psycopg2.ProgrammingError, psycopg2.errors.InsufficientPrivilege) as error:
        raise SettingsError(f"--postgres {table}: cannot be read ({_line(error)}), expected a table of LEDGER_POSTGRES_URL") from None
    except psycopg2.Error as error:
        raise LedgerError(f"Postgres does not answer ({_line(error)}): is it up? nothing was written") from None
    finally:
        if connection is not None:
            connection.close()


def _line(error: psycopg2.Error) -> str:
    """What Postgres says, on one line; of an error in a row, its class only, because it may quote a value."""
    state = error.pgcode or ""
    return f"SQLSTATE {state}" if state.startswith(("22", "23")) else (str(error).splitlines() or ["no answer"])[0]
