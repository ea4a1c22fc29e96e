"""Live tables that are declared in SQL: a file `NAME.sql` with a header and one SELECT (include/docs/sql-products.md).

The file becomes a table and a live query like the others. What can be wrong in the text is refused here, without Spark; what needs
Spark, in sql_queries.py.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.lake.sql_files import SECONDS, SqlFile, cut, read_files
from spark_jobs.lake.table import Table
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import Settings

_REQUIRED, _OPTIONAL = ("keys", "time", "columns", "watermark"), ("lateness", "description")
_UNITS = {"second": 1, **SECONDS}
_WATERMARK = "event_at"  # the only time of {transactions}
_OTHERS = ("gold.live_topics",)  # `topics` is a part of the live application


@dataclass(frozen=True, kw_only=True)
class SqlLiveTable(Table):
    """A live table in SQL. Its SELECT begins in `line` of its file.

    `lateness_seconds` is None where the header says nothing; else it stands in line `lateness_line`.
    """

    file: str
    line: int
    lateness_seconds: int | None
    lateness_line: int

    def lateness(self, settings: Settings) -> int:
        """By how many seconds its watermark stays behind the newest event.

        Raises SettingsError where that is less than what the intake accepts: Spark would drop accepted rows.
        """
        least = settings.allowed_lateness_seconds
        if self.lateness_seconds is None:
            return least
        if self.lateness_seconds < least:
            raise SettingsError(
                f"{self.file}:{self.lateness_line}: found lateness: {self.lateness_seconds} seconds, expected at least {least} seconds "
                "(LEDGER_ALLOWED_LATENESS_SECONDS), or no such line: rows that late are accepted, and the table would lack them"
            )
        return self.lateness_seconds


def find_tables(folder: Path, known: Collection[str]) -> tuple[list[SqlLiveTable], dict[str, str]]:
    """The tables of all `.sql` files in a folder and below it, and why others are none, by their queries; `known` names are taken."""
    found, refused = list[SqlLiveTable](), dict[str, str]()
    for file, text in read_files(folder):
        try:
            found.append(load(file, text, {*known, *(table.name for table in found)}))
        except SettingsError as error:
            refused[file.stem] = str(error)
    return found, refused


def load(file: Path, text: str, known: Collection[str]) -> SqlLiveTable:
    """The table that a file declares. Raises SettingsError, with file and line, for a header or a SELECT that cannot be right."""
    given = cut(file, text, _REQUIRED, _OPTIONAL)
    name = f"gold.live_{file.stem}"
    given.check_name(name, {*known, *_OTHERS}, "a new name in snake_case")
    columns = given.columns()
    keys, time = given.keys(columns), given.time(columns)
    if (watermark := given.fields["watermark"].value) != _WATERMARK:
        given.refuse_field("watermark", watermark, f"{_WATERMARK}, the time of a transaction")
    return SqlLiveTable(
        name,
        ", ".join(f"{column} {kind}" for column, kind in columns.items()),
        keys=keys,
        time_column=time,
        query=_query(given),
        description=given.description,
        file=str(file),
        line=given.line,
        lateness_seconds=_lateness(given),
        lateness_line=given.fields["lateness"].line if "lateness" in given.fields else 0,
    )


def _lateness(given: SqlFile) -> int | None:
    if "lateness" not in given.fields:
        return None
    lateness = given.fields["lateness"].value
    length = re.fullmatch(rf"([1-9]\d{{0,5}}) ({'|'.join(_UNITS)})s?", lateness)
    if not length:
        given.refuse_field("lateness", lateness, "`N seconds`, `minutes`, `hours` or `days`")
    return int(length[1]) * _UNITS[length[2]]


def _query(given: SqlFile) -> str:
    query = given.one_select()
    is_fed = False
    for name, found in given.placeholders(query):
        if name != "transactions":
            given.refuse_at(found.start(), found[0], "{transactions}, the only table that a live table reads; a brace is {{ or }}")
        if is_fed:
            given.refuse_at(found.start(), "{transactions} a second time", "it once: a live table in SQL has no joins of transactions")
        is_fed = True
    if not is_fed:
        given.refuse(given.line, "a SELECT without {transactions}", "{transactions}")
    return query
