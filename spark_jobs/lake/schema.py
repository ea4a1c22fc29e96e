"""The schema of a warehouse: its version, and its tables, which are created here and changed by additions only.

The version is a number in the file `schema_version` of the warehouse: it belongs to all tables at once, anybody can read it without
Delta, and it is copied with the tables. It says which code has last changed a table's columns; code that knows an older one refuses.
"""

import json
import logging
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import deltalake

from spark_jobs.lake import leases
from spark_jobs.lake.ddl import delta_struct, parse_columns
from spark_jobs.lake.leases import WAIT_SECONDS
from spark_jobs.lake.retention import properties_of
from spark_jobs.lake.table import Table
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

SCHEMA_VERSION = 4  # raise it with every change of a table's columns
_TO_DO = "use the version of the project that wrote it, or set LEDGER_WAREHOUSE to another folder"


def version_file(settings: Settings) -> Path:
    """The file that holds the schema version of a warehouse; an older warehouse has none."""
    return settings.warehouse / "schema_version"


def refuse_newer(settings: Settings) -> int:
    """The schema version of the warehouse, 0 if there is none; raises LedgerError if it is newer than this code knows."""
    file = version_file(settings)
    try:
        text = file.read_text(encoding="utf-8", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise LedgerError(f"{file}: found {text[:50]!r}, expected the schema version of the warehouse, a whole number: restore it")
    if int(text) > SCHEMA_VERSION:
        raise LedgerError(
            f"the warehouse {settings.warehouse} has schema version {text}, expected at most {SCHEMA_VERSION}, "
            f"the newest that this code knows: {_TO_DO}"
        )
    return int(text)


def bring_up(settings: Settings, tables: Iterable[Table]) -> None:
    """`ensure_tables` for those of the declared tables that exist, if the warehouse is older than this code.

    The caller holds no lease. Opens no table where the schema version is that of this code.
    """
    if refuse_newer(settings) < SCHEMA_VERSION and settings.warehouse.exists():
        ensure_tables(settings, [table for table in tables if table.exists(settings)])
        write_whole(version_file(settings), f"{SCHEMA_VERSION}\n")


def ensure_tables(settings: Settings, tables: Iterable[Table], *, has_lease: bool = False) -> None:
    """Create the tables that do not exist yet, and add missing columns to the others; existing rows have null there.

    Columns are added under the table's lease, unless the caller holds it (`has_lease`). Raises LedgerError, and changes nothing, where
    the warehouse is newer than this code, or some table cannot be brought up by additions.
    """
    tables = list(tables)
    refuse_newer(settings)
    existing = [table for table in tables if table.exists(settings)]
    found = {table: table.open(settings) for table in existing}
    if differences := [each for table, delta in found.items() for each in _differences(table, delta)]:
        raise LedgerError(f"found tables in {settings.warehouse} that this code cannot write: {'; '.join(differences)}: {_TO_DO}")
    for table in tables:
        if table not in found:
            _create(settings, table)
        elif lacking(table, found[table]):
            with nullcontext() if has_lease else leases.hold(settings, [table], f"new columns of {table.name}", WAIT_SECONDS):
                _add_columns(settings, table)


def lacking(table: Table, delta: deltalake.DeltaTable) -> list[str]:
    """The declared columns that a table lacks, because an older version of the project created it."""
    present = {field.name for field in delta.schema().fields}
    return [name for name in table.columns if name not in present]


def _create(settings: Settings, table: Table) -> None:
    deltalake.DeltaTable.create(
        str(table.path(settings)),
        schema=table.delta_schema(),
        mode="ignore",
        partition_by=list(table.partitioned_by),
        name=table.name,
        configuration=table.properties | properties_of(settings, table),
    )


def _add_columns(settings: Settings, table: Table) -> None:
    delta = table.open_to_write(settings)
    if names := lacking(table, delta):  # otherwise another process was faster
        delta.alter.add_columns([field for field in table.delta_schema().fields if field.name in names])
        log.info("%s: added %s, null in the rows that were there", table.name, ", ".join(names))


def _differences(table: Table, delta: deltalake.DeltaTable) -> list[str]:
    """The differences that additions cannot repair, as text."""
    present = {field["name"]: _bare(field["type"]) for field in json.loads(delta.schema().to_json())["fields"]}
    wanted = {field["name"]: _bare(field["type"]) for field in delta_struct(table.ddl)["fields"]}
    nullable = {name for name, _, is_nullable in parse_columns(table.ddl) if is_nullable}
    partitions = tuple(delta.metadata().partition_columns)
    differences = [
        f"{table.name} has column {name} of type {_text(kind)}, expected {_text(wanted[name])}"
        for name, kind in present.items()
        if name in wanted and kind != wanted[name]
    ]
    differences += [f"{table.name} has column {name}, expected none of that name" for name in present if name not in wanted]
    differences += [
        f"{table.name} has no column {name}, which is never null" for name in wanted if name not in present and name not in nullable
    ]
    if partitions != table.partitioned_by:
        differences.append(f"{table.name} is partitioned by {list(partitions)}, expected {list(table.partitioned_by)}")
    return differences


def _bare(kind: Any) -> Any:
    """A type in Delta's words, without its metadata."""
    if isinstance(kind, dict):
        return {name: _bare(value) for name, value in kind.items() if name not in ("metadata", "nullable", "containsNull")}
    return [_bare(each) for each in kind] if isinstance(kind, list) else kind


def _text(kind: Any) -> str:
    return kind if isinstance(kind, str) else json.dumps(kind)
