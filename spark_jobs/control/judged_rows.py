"""SQL over exactly the rows that a gate judges: those of some bronze batches, or of them the records that a backfill has rebuilt.

Reads Delta without Spark.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from string import Template

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from spark_jobs import control
from spark_jobs.lake import ranges, snapshots
from spark_jobs.lake.tables import BATCHES, HOLES, LAYERS, Table
from spark_jobs.lake.versions import FileChanges, file_changes
from spark_jobs.runtime import storage
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import sql_text

_BELOW = {"bronze": ("bronze",), "silver": ("silver", "bronze"), "gold": ("gold", "silver")}
_CONTROL = {table.name.replace(".", "_"): table for table in (BATCHES, HOLES)}  # that a suite may name
_VIEW = Template("create view $name as select * from $raw where $condition")
_REBUILT = Template(
    "create view $name as select r.* from $raw r left semi join rebuilt_records p "
    "on r._topic = p._topic and r._partition = p._partition and r._offset = p._offset where $condition "
    "union all select * from $raw where _batch is null"
)
_NEAR = re.compile(r"((?:written_)?(\w+))_near_(\d+)_(hours|days)")
_NEAR_OF = re.compile(r"(\w+_near_(\d+)_days)_of_(\w+)")
_NEIGHBOURS = Template(
    "create view $name as select n.* from (select $key, unnest([-1, 0, 1]) + place as place from "
    "(select distinct $key, cast(event_on as int) / $days as place from written_$silver)) j "
    "right semi join $near n on n.$key = j.$key and cast(n.day as int) / $days = j.place"
)
_FILE = Template("create external table $name stored as parquet location $place")
_ROWS = Template("select $columns from $name")
_NONE = Template("(select * from $name where false)")
_MOST_FILES = 50
_GLOB = frozenset("*?[")  # DataFusion takes them for a pattern
_FIRST_OFFSETS = Template("select distinct first_offset from written_$own where first_offset is not null")
_OFFSETS = Template(
    "select _partition, min(_offset) as first_offset, max(_offset) as last_offset from written_$own "
    "where _partition is not null and _offset is not null group by _partition"
)
_SPAN = Template("_partition = $_partition and _offset between $first_offset and $last_offset")
_HOURS = Template("select distinct date_bin(interval '1 hour', event_at) from written_$silver")
_JUDGED = Template(
    "create view judged as select $first as first_batch, $last as last_batch, "
    "arrow_cast('$now', 'Timestamp(Microsecond, Some(\"UTC\"))') as judged_at, $freshness as freshness_seconds"
)


@dataclass(frozen=True)
class Written:
    """Rows to judge: those of bronze batches first..last in one table at a version. last_batch 0: the job never had a batch.

    `rebuilt` lists the coordinates of records of these batches: then no others are judged. `at_any_time`: the job may have written rows
    at any time of the history, and not only near those of silver that are judged. `passed` is the version of the table whose rows a
    gate has let through; a table without batches is then judged by its files that came since.
    """

    table: Table
    version: int
    first_batch: int
    last_batch: int
    rebuilt: Path | None = None
    at_any_time: bool = True
    passed: int | None = None


def open_query(
    settings: Settings, written: Written, versions: Mapping[str, int], now: datetime, instead: Mapping[str, Path] | None = None
) -> Callable[[str], pa.Table]:
    """A function that answers SQL (DataFusion). The relations it knows are described in expectations/suites.py.

    `versions` are those of the tables of the judged layer, by name; those of the layer below may be among them, or are read as
    they are now. `now` is the time of the judgement. `instead` gives the folders of tables that are read in place of the stored ones.
    """
    relations = _Relations(settings, written, versions, instead or {})
    if written.rebuilt:
        relations.builder.register("rebuilt_records", DeltaTable(str(written.rebuilt)))
    judged = {"first": written.first_batch, "last": written.last_batch, "now": now.astimezone(UTC).isoformat()}
    relations.builder.execute(_JUDGED.substitute(judged, freshness=settings.freshness_seconds))

    def query(sql: str) -> pa.Table:
        relations.prepare(sql)
        return pa.table(relations.builder.execute(sql).read_all())

    return query


class _Relations:
    """The relations that queries name, each registered when the first one names it: opening a table costs more than counting its rows."""

    def __init__(self, settings: Settings, written: Written, versions: Mapping[str, int], instead: Mapping[str, Path]) -> None:
        self.builder = QueryBuilder()
        self._settings, self._written, self._versions, self._instead = settings, written, versions, instead
        layers = _BELOW[written.table.layer]
        self._tables = {table.name.replace(".", "_"): table for layer in layers for table in LAYERS[layer]}
        self._own, self._silver = written.table.name.replace(".", "_"), f"silver_{written.table.topic}"
        self._ready: set[str] = set()
        self._heads: dict[str, int] = {}  # the version of each table that is open

    def prepare(self, sql: str) -> None:
        """Register what a query names."""
        words, own = set(re.findall(r"\w+", sql)), self._own
        neighbours = [found for word in words - self._ready if (found := _NEAR_OF.fullmatch(word))]
        words |= {found[1] for found in neighbours} | ({f"written_{self._silver}"} if neighbours else set())
        for name in self._tables:
            if {name, f"written_{name}"} & words or (name == own and "written" in words):
                self._open(name)
        for near in words - self._ready:
            if (found := _NEAR.fullmatch(near)) and found[2] in self._tables:
                self._open_near(near, found[1], found[2], int(found[3]), found[4])
        for found in neighbours:
            view = _NEIGHBOURS.substitute(name=found[0], near=found[1], days=int(found[2]) + 1, key=found[3], silver=self._silver)
            self.builder.execute(view)
            self._ready.add(found[0])
        if f"{self._silver}_of_firsts" in words - self._ready:
            self._open_firsts()
        if f"{own}_at_offsets" in words - self._ready:
            self._open_at_offsets()
        if "written" in words and "written" not in self._ready:
            self._view("written", f"written_{own}", "true")
        if {f"new_{own}", f"gone_{own}", f"new_{self._silver}"} & words and f"new_{own}" not in self._ready:
            self._open_changes()
        self._open_control(words & _CONTROL.keys())

    def _open_control(self, names: set[str]) -> None:
        for name in names - self._ready:
            control.register(self.builder, name, _CONTROL[name].open(self._settings), _CONTROL[name])
            self._ready.add(name)

    def _view(self, name: str, raw: str, condition: str, view: Template = _VIEW) -> None:
        self.builder.execute(view.substitute(name=name, raw=raw, condition=condition))
        self._ready.add(name)

    def _open(self, name: str) -> None:
        """A table up to the last judged batch, and its judged batches."""
        if name in self._ready:
            return
        table, written = self._tables[name], self._written
        folder = self._instead.get(table.name, table.path(self._settings))
        declared = None if table == written.table else table  # a column that the judged table lacks closes its gate
        delta = snapshots.open_table(folder, self._versions.get(table.name))
        self._heads[name] = delta.version()
        control.register(self.builder, f"raw_{name}", delta, declared)
        follows_batches = "_batch" in table.columns and table.topic == written.table.topic
        upto, within, view = _conditions(written) if follows_batches else ("true", "true", _VIEW)
        self._view(name, f"raw_{name}", "true" if follows_batches and _holds_none_after(delta, written.last_batch) else upto)
        files = self._files.came if table == written.table and not follows_batches and self._files else []
        since = self._rows_of(name, "came", files) if files else None
        self._view(f"written_{name}", since or f"raw_{name}", within, view)

    def _open_changes(self) -> None:
        """What came to the judged table and to silver since a gate let the table through, and what went; all and none where not known."""
        own, silver, files = self._own, self._silver, self._files
        self._open(own)
        self._open(silver)
        new, gone, added = own, _NONE.substitute(name=own), silver
        if files and files.gone is not None and (came := self._come_to_silver()) is not None:
            found = [self._rows_of(*each) for each in ((own, "came", files.came), (own, "gone", files.gone), (silver, "came", came))]
            if all(found):
                new, gone, added = map(str, found)
        self._view(f"new_{own}", new, "true")
        self._view(f"gone_{own}", gone, "true")
        self._view(f"new_{silver}", added, _conditions(self._written)[0])

    @cached_property
    def _files(self) -> FileChanges | None:
        """What changed in the judged table since a gate let it through; None where that is not known."""
        table, since, upto = self._written.table, self._written.passed, self._versions.get(self._written.table.name)
        folder = table.path(self._settings)
        if since is None or upto is None or self._instead or table.partitioned_by or storage.is_remote(folder):
            return None
        return file_changes(folder, since, upto)

    def _come_to_silver(self) -> list[str] | None:
        """The files that came to silver since the version that the judged table had followed then; None where not known, or others went."""
        silver, own = self._tables[self._silver], self._written.table
        try:
            then = own.open(self._settings, self._written.passed).transaction_version(control.following(self._settings, silver))
        except DeltaError:  # it cannot be read any more
            return None
        changes = file_changes(silver.path(self._settings), then, self._heads[self._silver]) if then is not None else None
        return changes.came if changes and changes.gone == [] else None

    def _rows_of(self, name: str, kind: str, files: list[str]) -> str | None:
        """The view of a table's rows in some files; None where these are many, older than a column, or there no more."""
        view, table = f"raw_{name}_{kind}", self._tables[name]
        folder, columns = table.path(self._settings), ", ".join(table.columns)
        if view in self._ready:
            return view
        if len(files) > _MOST_FILES or _GLOB & {*str(folder)}:
            return None
        if not all((folder / file).exists() and {*table.columns} <= {*pq.read_schema(folder / file).names} for file in files):
            return None
        parts = [_ROWS.substitute(columns=columns, name=f"raw_{name} where false")]  # the types are the table's
        for number, file in enumerate(files):
            self.builder.execute(_FILE.substitute(name=f"{view}_{number}", place=sql_text(str(folder / file))))
            parts.append(_ROWS.substitute(columns=columns, name=f"{view}_{number}"))
        self._view(view, f"({' union all '.join(parts)})", "true")
        return view

    def _open_near(self, near: str, rows: str, name: str, number: int, unit: str) -> None:
        """A table's rows (`rows`: all, or those to judge) near in time to the judged ones of silver."""
        self._open(name)
        table = self._tables[name]
        is_near = "true" if self._written.at_any_time else _near(table, self._hours, number, unit)
        self._view(near, rows, is_near)

    def _open_firsts(self) -> None:
        """Silver's rows at the offsets that judged duplicates name, and a few others: files and pages are skipped by them.

        All of silver where single records are judged: another row of an id may then be none of them, and is looked for only here.
        """
        self._open(self._silver)
        self._open(self._own)
        is_named = "true"
        if not self._written.rebuilt:
            offsets = pa.table(self.builder.execute(_FIRST_OFFSETS.substitute(own=self._own)).read_all()).column(0)
            is_named = ranges.holding("_offset", offsets.to_pylist(), ranges.MOST_IN_MEMORY)
        self._view(f"{self._silver}_of_firsts", self._silver, is_named)

    def _open_at_offsets(self) -> None:
        """The judged table's rows between the first and the last judged offset of each partition: files are skipped by them."""
        self._open(self._own)
        found = pa.table(self.builder.execute(_OFFSETS.substitute(own=self._own)).read_all()).to_pylist()
        self._view(f"{self._own}_at_offsets", self._own, ranges.any_of([f"({_SPAN.substitute(span)})" for span in found]))

    @cached_property
    def _hours(self) -> pa.ChunkedArray:
        """The hours of silver's judged rows, as their starts."""
        self._open(self._silver)
        return pa.table(self.builder.execute(_HOURS.substitute(silver=self._silver)).read_all()).column(0)


def _near(table: Table, hours: pa.ChunkedArray, number: int, word: str) -> str:
    """Whether a row's time, or some of its span, lies in one of these hours (in their days), or at most so many hours (days) beside one."""
    if (time := table.time_column) is None:
        return "true"
    unit = ranges.DAY if ranges.unit_of(time) is ranges.DAY else {"hours": ranges.HOUR, "days": ranges.DAY_OF_TIME}[word]
    found = ranges.around(ranges.numbers(hours, unit), number)
    return ranges.to_datafusion(ranges.overlap(time, table.end_column or time, found, unit))


def _holds_none_after(delta: DeltaTable, batch: int) -> bool:
    """Whether a table has no rows of later batches, by its statistics: then no row need be asked for its own. In doubt it has."""
    files = pa.table(delta.get_add_actions(flatten=True))
    newest = files["max._batch"].to_pylist() if "max._batch" in files.column_names else [None] * files.num_rows
    return all(each is not None and each <= batch for each in newest)


def _conditions(written: Written) -> tuple[str, str, Template]:
    """Of a table that follows the judged batches: which rows there are, which of them are judged, and by which view.

    A row without a batch is never left out: some expectation will speak of it.
    """
    upto = f"_batch <= {written.last_batch} or _batch is null"
    if written.rebuilt:
        return upto, f"_batch <= {written.last_batch}", _REBUILT
    return upto, f"_batch between {written.first_batch} and {written.last_batch} or _batch is null", _VIEW
