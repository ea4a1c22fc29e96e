"""Rows that fit into memory, without Spark, which would plan for longer than it reads or writes. Writes may be repeated, as in sinks.py."""

from collections.abc import Iterable, Mapping
from datetime import date
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import ColumnProperties, CommitProperties, DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import DeltaError

from spark_jobs.lake import ranges
from spark_jobs.lake.ddl import parse_columns
from spark_jobs.lake.layout import merge_keys, merge_time, order_of
from spark_jobs.lake.tables import Table
from spark_jobs.lake.txn import Txn, commit_properties
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings

MOST_ROWS = 100_000  # that are held in memory
MOST_BYTES = 128 * 2**20  # of the files that a merge writes again: where they have more, Spark marks rows as removed, which delta-rs cannot
_FEATURES = frozenset({"appendOnly", "invariants", "changeDataFeed", "deletionVectors"})  # that delta-rs writes, or leaves as they are
PAGE_ROWS = 1000  # a page: rows are found by pages


def are_few(rows: int, size: int) -> bool:
    """Whether so many rows, with so many bytes of texts, fit into memory."""
    return rows <= MOST_ROWS and size <= MOST_BYTES


def writer(table: Table, page_rows: int = PAGE_ROWS) -> WriterProperties:
    """As Spark writes silver and gold (layout.SMALL_PAGES).

    Of decimals no statistics: delta-rs has floats for them, by which rows could be missed.
    """
    exact = {name: ColumnProperties(statistics_enabled="NONE") for name, kind, _ in parse_columns(table.ddl) if kind.startswith("decimal")}
    return WriterProperties(compression="ZSTD", data_page_row_count_limit=page_rows, column_properties=exact)


def append(parts: Iterable[pa.Table], settings: Settings, table: Table, txn: Txn, *, keeps_order: bool = False) -> None:
    """Append rows, each part in the table's order or as it is, in one commit that is skipped when it was done before."""
    delta = table.open_to_write(settings)
    if not _is_done(delta, txn):
        order = [(name, "ascending") for name in order_of(table)]
        ordered = parts if keeps_order else (part.sort_by(order) for part in parts)
        _append(delta, ordered, table, _commit(settings, table, txn), writer(table))


def append_batches(rows: pa.Table, settings: Settings, table: Table, txn: Txn, *, page_rows: int = PAGE_ROWS) -> None:
    """Append the rows of the batches that the table does not have yet (column `_batch`), as they are ordered, in one commit."""
    delta = table.open_to_write(settings)
    if not _is_done(delta, txn):
        new = rows.filter(pc.field("_batch") > (delta.transaction_version(txn.application) or 0))
        _append(delta, [new], table, _commit(settings, table, txn, "batch"), writer(table, page_rows))


def merge(
    few: pa.Table,
    settings: Settings,
    table: Table,
    txn: Txn,
    *,
    matched: Mapping[str, str] | None = None,
    deletes_where: str | None = None,
) -> None:
    """Merge rows that `touch_few_bytes` into a table by null-safe equality of its merge keys, in one commit.

    It is skipped when it was done before. `matched` and `deletes_where` as in sinks.merge_rows, in SQL that Spark and DataFusion understand
    alike. Raises LedgerError when two rows have the same keys.
    """
    delta, keys = table.open_to_write(settings), merge_keys(table)
    if _is_done(delta, txn):
        return
    if not few.num_rows:
        note_applied(settings, table, txn)
        return
    if (distinct := few.group_by(list(keys)).aggregate([]).num_rows) != few.num_rows:
        raise LedgerError(
            f"{table.name}: found {few.num_rows} changes of {distinct} rows, expected one of each: look for damage by an audit"
        )
    kill_point(f"before {table.name}")
    is_same = " and ".join(f"(t.`{key}` is not distinct from s.`{key}`)" for key in keys)
    if time := merge_time(table):  # other files are not even opened
        unit = ranges.unit_of(time)
        is_same += f" and {ranges.to_datafusion(ranges.in_files(f't.{time}', ranges.numbers(few[time], unit), unit))}"
    merging = delta.merge(few, is_same, "s", "t", writer_properties=writer(table), commit_properties=_commit(settings, table, txn))
    if deletes_where:
        merging = merging.when_matched_delete(deletes_where)
    values = {f"`{name}`": f"s.`{name}`" for name in table.columns}
    updates = {f"`{name}`": value for name, value in matched.items()} if matched else values
    keep = f"not coalesce({deletes_where}, false)" if deletes_where else None
    merging.when_matched_update(updates).when_not_matched_insert(values, keep).execute()
    kill_point(f"after {table.name}")


def note_applied(settings: Settings, table: Table, txn: Txn) -> None:
    """Note, in a commit without rows, how far an application has brought a table that did not have to change."""
    delta = table.open_to_write(settings)
    if _is_done(delta, txn):
        return
    kill_point(f"before {table.name}")
    commit = _commit(settings, table, txn)
    delta.create_write_transaction([], "append", delta.schema(), list(table.partitioned_by), commit_properties=commit)
    kill_point(f"after {table.name}")


def changes(settings: Settings, table: Table, after: int, upto: int, most: int) -> pa.Table | None:
    """The change feed of a table after one of its versions, up to another one: its columns, _change_type and _commit_version.

    None where it has more than `most` rows, or is one that delta-rs cannot read: Spark reads it, or says why it cannot.
    """
    delta = table.open(settings)
    if "deletionVectors" in (delta.protocol().writer_features or ()):
        return None
    schema = pa.schema(delta.schema().to_arrow())
    schema = pa.schema([*schema, ("_change_type", pa.string()), ("_commit_version", pa.int64())])
    parts, count = [schema.empty_table()], 0
    try:
        for batch in delta.load_cdf(after + 1, upto, columns=schema.names):
            parts.append(pa.Table.from_batches([pa.record_batch(batch)]).cast(schema))
            count += parts[-1].num_rows
            if count > most:
                return None
    except (DeltaError, ValueError, OSError):
        return None
    return pa.concat_tables(parts)


def span(settings: Settings, table: Table, day: str = "day") -> tuple[date, date]:
    """The first and last `day` (a column of dates) that a table may have: any, where the statistics of a file do not say."""
    files = pa.table(table.open(settings).get_add_actions(flatten=True)).to_pylist()
    edges = [(file.get(f"min.{day}") or date.min, file.get(f"max.{day}") or date.max) for file in files]
    return min((first for first, _ in edges), default=date.max), max((last for _, last in edges), default=date.min)


def touch_few_bytes(few: pa.Table, settings: Settings, table: Table) -> bool:
    """Whether rows are merged into a table in memory: the files that may hold their keys have few bytes, and delta-rs can write it."""
    delta = table.open(settings)
    if not _FEATURES.issuperset(delta.protocol().writer_features or ()):
        return False
    files = pa.table(delta.get_add_actions(flatten=True))
    touched = pc.fill_null(_may_hold(files, few, merge_time(table)), True)
    return bool((pc.sum(files["size_bytes"].filter(touched)).as_py() or 0) <= MOST_BYTES)


def has_few_bytes(settings: Settings, table: Table) -> bool:
    """Whether the files of a table have at most MOST_BYTES."""
    sizes = pa.table(table.open(settings).get_add_actions()).column("size_bytes").to_pylist()
    return bool(sum(sizes) <= MOST_BYTES)


def _may_hold(files: pa.Table, few: pa.Table, time: str | None) -> pa.Array:
    """Whether each file may hold rows of the same times; null where its statistics do not say."""
    if time is None or f"min.{time}" not in files.column_names:
        return pa.array([True] * files.num_rows, pa.bool_())
    unit = ranges.unit_of(time)
    first, last = (ranges.counted(files[f"{edge}.{time}"], unit) for edge in ("min", "max"))
    found = ranges.of_files(ranges.numbers(few[time], unit))
    holds = (pc.and_(pc.less_equal(first, end), pc.greater_equal(last, start)) for start, end in found)
    return reduce(pc.or_, holds, pa.array([False] * files.num_rows, pa.bool_()))


def _is_done(delta: DeltaTable, txn: Txn) -> bool:
    done = delta.transaction_version(txn.application)
    return done is not None and bool(done >= txn.version)


def _append(delta: DeltaTable, parts: Iterable[pa.Table], table: Table, commit: CommitProperties, properties: WriterProperties) -> None:
    schema = pa.schema(table.delta_schema().to_arrow())
    batches = (batch for part in parts for batch in part.select(table.columns).cast(schema).to_batches())
    new = pa.RecordBatchReader.from_batches(schema, batches)
    kill_point(f"before {table.name}")
    write_deltalake(delta, new, mode="append", writer_properties=properties, commit_properties=commit)
    kill_point(f"after {table.name}")


def _commit(settings: Settings, table: Table, txn: Txn, name: str = "upto") -> CommitProperties:
    return commit_properties(settings, table, {"application": txn.application, name: txn.version}, [txn])
