"""What a Delta table of the pipeline is: a name, columns, keys, layout. tables.py lists them all."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import deltalake

from spark_jobs.lake import snapshots
from spark_jobs.lake.ddl import delta_struct, parse_columns
from spark_jobs.runtime.settings import Settings

LAYERED = ("bronze", "silver", "gold")


@dataclass(frozen=True)
class Table:
    """One table.

    - `keys` are unique in it; a merge finds rows by `merge_keys`, where those are others: of rows that have one time for good, that time
      too, so that no other files are read.
    - `properties` are Delta table properties.
    - `time_column` is the time of a row, a timestamp or a date; None where it is known by its bronze record only. `end_column` is where
      a row ends that begins then.
    - `deletion_vectors`: rows change one here, one there, and Delta marks them as removed instead of writing their files again.
    - `topic` is the one whose batches the table follows (control tables follow none).
    - `follows` are the silver tables whose changes a gold table takes over.
    - `query` is the SELECT of a gold table that is declared in SQL, and `description` says what it is for.
    - `texts` say what columns mean that do not mean the same in every table (column_texts.py).
    """

    name: str
    ddl: str
    keys: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict, hash=False)
    time_column: str | None = None
    end_column: str | None = None
    merge_keys: tuple[str, ...] = ()
    deletion_vectors: bool = False
    topic: str = ""
    follows: "tuple[Table, ...]" = ()
    query: str = ""
    description: str = ""
    texts: dict[str, str] = field(default_factory=dict, hash=False, compare=False)

    @property
    def layer(self) -> str:
        """bronze, silver, gold or control."""
        return self.name.split(".")[0]

    @property
    def columns(self) -> tuple[str, ...]:
        """The column names, in order."""
        return tuple(name for name, _, _ in parse_columns(self.ddl))

    def path(self, settings: Settings) -> Path:
        """The folder of the table."""
        layer, table = self.name.split(".")
        return settings.warehouse / layer / table

    def exists(self, settings: Settings) -> bool:
        """Whether the table was created already."""
        return deltalake.DeltaTable.is_deltatable(str(self.path(settings)))

    def open(self, settings: Settings, version: int | None = None) -> deltalake.DeltaTable:
        """The table as it is now, or as it was at a version, without Spark; for reading (snapshots.py)."""
        return snapshots.open_table(self.path(settings), version)

    def open_to_write(self, settings: Settings) -> deltalake.DeltaTable:
        """The table as it is now, for the one who writes by it, without Spark: it follows what it writes."""
        return deltalake.DeltaTable(str(self.path(settings)))

    def delta_schema(self) -> deltalake.Schema:
        """The schema for readers and writers that need no Spark."""
        return deltalake.Schema.from_json(json.dumps(delta_struct(self.ddl)))
