"""Which versions of the tables are explained: those of a release, or gold as it is now and silver as gold has read it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from string import Template
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from spark_jobs import control
from spark_jobs.control import backfills
from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from spark_jobs.lake.versions import hold_same_rows
from spark_jobs.releases import archive, retention, rollback
from spark_jobs.releases.releases import Release
from spark_jobs.runtime.errors import LedgerError, SettingsError, first_line
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.values import to_rows

Row = dict[str, Any]
_RUNS = Template('select * from t where "table" in ($names) order by last_batch, finished_at')
_DECIMALS = "set datafusion.sql_parser.parse_float_as_decimal = true"  # numbers with a point are decimals, as in the tables


@dataclass(frozen=True)
class Snapshot:
    """The versions at which to open the tables; `release` is None for the newest ones."""

    settings: Settings
    release: Release | None
    versions: dict[str, int]  # of silver's tables, for now

    @classmethod
    def of_release(cls, settings: Settings, number: int) -> "Snapshot":
        """A release that readers are offered; raises SettingsError when there is none of that number."""
        return cls(settings, retention.find_asked(settings, number, "--as-of"), {})

    @classmethod
    def now(cls, settings: Settings, table: Table) -> "Snapshot":
        """A gold table as it is, with silver as it was when the table was written.

        The table's own commits say how far it follows, also while a run of gold is under way; the record of runs also names
        changes of silver that changed nothing in the table.
        """
        versions = control.versions_read_by_gold(settings)  # before the table is opened: it may follow further, never less far
        if table.exists(settings):
            gold = table.open(settings)
            followed = {source.name: gold.transaction_version(control.following(settings, source)) for source in tables.FOLLOWERS}
            versions |= {name: max(version, versions.get(name, 0)) for name, version in followed.items() if version is not None}
        return cls(settings, None, versions)

    def __str__(self) -> str:
        if self.release is None:
            return "as it is now"
        return f"in release {self.release.release_id} of {self.release.released_at:%Y-%m-%d %H:%M:%S} UTC"

    def open(self, table: Table) -> DeltaTable:
        """A table; raises SettingsError when there is none yet, or its version can no longer be read."""
        try:
            return archive.open_table(self.settings, self.release, table.name) if self.release else self._open_now(table)
        except LedgerError as error:
            raise SettingsError(str(error)) from None

    def _open_now(self, table: Table) -> DeltaTable:
        if not table.exists(self.settings):
            raise SettingsError(
                f"found no {table.name} at {table.path(self.settings)}, expected what {table.layer} writes: run {table.layer} first"
            )
        head, version = table.open(self.settings), self.versions.get(table.name)
        if version is None or version >= head.version() or hold_same_rows(self.settings, table, version, head.version()):
            return head
        try:
            return table.open(self.settings, version)
        except DeltaError as error:
            raise SettingsError(
                f"{table.name}: version {version}, from which gold was built, can no longer be read ({first_line(error)}): run gold, or "
                "name a release by --as-of"
            ) from None

    def version(self, table: Table, delta: DeltaTable) -> int:
        """The version of a table that was opened; of a release's copy, that of what was copied."""
        return self.release.versions[table.name] if self.release else delta.version()

    def batches(self, names: Iterable[str]) -> list[Row]:
        """The rows of control.batches of some tables that are part of it, in the order of their batches."""
        if not tables.BATCHES.exists(self.settings):
            return []
        sql = _RUNS.substitute(names=", ".join(f"'{name}'" for name in names))
        return self._of_release(control.query(tables.BATCHES.open(self.settings), sql, tables.BATCHES).to_pylist(), self._is_run_of_release)

    def redrives(self) -> list[Row]:
        """The rows of control.redrives that are part of it."""
        rows = control.read(self.settings, tables.REDRIVES).to_pylist()
        versions = self.release.versions if self.release else self.versions
        return [row for row in rows if row["table"] not in versions or (row["_silver_version"] or 0) <= versions[row["table"]]]

    def backfills(self) -> list[Row]:
        """The steps of backfills, done, that are part of it."""
        rows = [row for row in control.read(self.settings, tables.BACKFILLS).to_pylist() if row["state"] == "done"]
        release = self.release
        return self._of_release(rows, lambda row: release is not None and backfills.is_of_release(row, release.versions))

    def _of_release(self, rows: list[Row], is_part: Callable[[Row], bool]) -> list[Row]:
        return [row for row in rows if self.release is None or is_part(row)]

    def _is_run_of_release(self, row: Row) -> bool:
        release = self.release
        if release is None:
            return True
        batches = {table.name: release.last_batches.get(table.name, 0) for table in tables.BRONZE}
        return rollback.is_of_release(self.settings, row, release.versions, batches)


class Session:
    """SQL (DataFusion) over tables, and over tables in memory that are made of them."""

    def __init__(self, **named: DeltaTable) -> None:
        self._builder = QueryBuilder()
        self._builder.execute(_DECIMALS)
        for name, table in named.items():
            self._builder.register(name, table)

    def query(self, sql: str) -> list[Row]:
        """The answer's rows. Raises DeltaError, ArrowException or OSError when there is none."""
        return to_rows(pa.RecordBatchReader.from_stream(self._builder.execute(sql)).read_all())

    def keep(self, name: str, sql: str) -> None:
        """Keep the answer in memory as a table; one of that name is replaced."""
        self._builder.execute(f"create or replace table {name} as {sql}")

    def view(self, name: str, sql: str) -> None:
        """Give a query a name, in place of one that has it."""
        self._builder.execute(f"create or replace view {name} as {sql}")
