"""What a Delta table of the pipeline is: a name, columns, keys, layout. tables.py declares each."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import deltalake

from spark_jobs.lake.ddl import delta_struct, parse_columns
from spark_jobs.runtime.settings import Settings

LAYERED = ("bronze", "silver", "gold")
# Of a table's columns the first of these is the time of its rows.
_TIMES = ("event_at", "window_start", "session_start", "day", "minute", "valid_from", "debit_at", "last_event_at", "_timestamp")


@dataclass(frozen=True)
class Table:
    """One table. `keys` are unique in it; `properties` are Delta table properties."""

    name: str
    ddl: str
    keys: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def layer(self) -> str:
        """bronze, silver, gold or control."""
        return self.name.split(".")[0]

    @property
    def topic(self) -> str:
        """Of a bronze table, the topic that it holds."""
        return self.name.removeprefix("bronze.")

    @property
    def columns(self) -> tuple[str, ...]:
        """The column names, in order."""
        return tuple(name for name, _, _ in parse_columns(self.ddl))

    @property
    def time_column(self) -> str | None:
        """The column that tells the time of a row, a timestamp or a date; None where it is known by its bronze record only."""
        return next((name for name in _TIMES if name in self.columns), None)

    def path(self, settings: Settings) -> Path:
        """The folder of the table."""
        layer, table = self.name.split(".")
        return settings.warehouse / layer / table

    def delta_schema(self) -> deltalake.Schema:
        """The schema for readers and writers that need no Spark."""
        return deltalake.Schema.from_json(json.dumps(delta_struct(self.ddl)))
