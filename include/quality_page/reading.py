"""Reading Delta for the page: small answers to SQL, without Spark, and a line of text in place of an error."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from string import Template
from typing import Any

from expectations.wire_format import WireSchema
from spark_jobs.control.verdicts import without_row
from spark_jobs.lake.tables import REGISTRY_SCHEMAS, Table
from spark_jobs.runtime.errors import first_line
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import sql_text

log = logging.getLogger(__name__)

Row = dict[str, Any]

_SCHEMAS = "select * from t where topic = $topic"


@dataclass
class Warehouse:
    """The tables of one home. What cannot be read is named in `unreadable`, with words in `problems`, and has no rows.

    Without `shows_values`, verdicts and audits name no row.
    """

    settings: Settings
    shows_values: bool = True
    problems: list[str] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)

    def select(self, table: Table, sql: str, **words: object) -> list[Row]:
        """The answer to DataFusion SQL about a table, which it calls `t`; nothing where the table does not exist yet.

        `$name` in the text stands for a literal out of `words`: numbers as they are, text in quotes.
        """
        from deltalake import DeltaTable  # both take their time, and Airflow starts without them

        from spark_jobs import control
        from spark_jobs.runtime.values import to_rows

        text = Template(sql).substitute({name: _literal(value) for name, value in words.items()})
        path = str(table.path(self.settings))
        try:
            rows = to_rows(control.query(DeltaTable(path), text, table)) if DeltaTable.is_deltatable(path) else []
            return rows if self.shows_values else list(map(_without_values, rows))
        except Exception as error:  # whatever is wrong with one table, the page shows the others
            log.warning("%s cannot be read: %s: %s", table.name, type(error).__name__, first_line(error))
            log.debug("", exc_info=True)
            self.unreadable.add(table.name)
            problem = f"{table.name} cannot be read ({type(error).__name__}), expected a Delta table at {path}: see the API server's log"
            if problem not in self.problems:
                self.problems.append(problem)
            return []

    def newest(self, table: Table, column: str) -> datetime | None:
        """The largest time of a column, by the statistics of the table's files; None where there is no row, or it cannot be read."""
        import pyarrow as pa
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        path = str(table.path(self.settings))
        try:
            files = pa.table(DeltaTable(path).get_add_actions(flatten=True)) if DeltaTable.is_deltatable(path) else None
            found = files[f"max.{column}"].to_pylist() if files is not None and files.num_rows else []
        except (DeltaError, pa.ArrowException, OSError, KeyError) as error:  # `select` of the same table names it on the page
            log.warning("%s cannot be read: %s: %s", table.name, type(error).__name__, first_line(error))
            return None
        return max((at.replace(tzinfo=at.tzinfo or UTC) for at in found if at), default=None)

    def sizes(self, table: Table, versions: Iterable[int]) -> dict[int, int]:
        """The bytes of a table's files at some versions, by its log alone; versions whose log is gone are left out."""
        import pyarrow as pa
        from deltalake.exceptions import DeltaError

        found: dict[int, int] = {}
        for version in versions:
            try:
                files = pa.table(table.open(self.settings, version).get_add_actions(flatten=True))
                found[version] = sum(files["size_bytes"].to_pylist())
            except (DeltaError, OSError) as error:
                log.debug("%s version %d: %s", table.name, version, first_line(error))
        return found


def schemas_of(warehouse: Warehouse, topic: str) -> dict[int, WireSchema]:
    """The schemas by which values of a topic are read, by their ids."""
    rows = warehouse.select(REGISTRY_SCHEMAS, _SCHEMAS, topic=topic)
    return {row["schema_id"]: WireSchema(row["schema_id"], row["kind"], row["schema"], tuple(row["references"])) for row in rows}


def _without_values(row: Row) -> Row:
    """A row of a control table without the rows that it quotes: those that a gate names after what it found, and an audit's examples."""
    found = {"_found": [text and without_row(text) for text in row["_found"]]} if row.get("_found") else {}
    return row | found | ({"examples": []} if "examples" in row else {})


def _literal(value: object) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(_literal, value)) or "null"
    return sql_text(str(value))
