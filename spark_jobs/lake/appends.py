"""Appends rows that come batch by batch, in one commit and in bounded memory, however many they are.

`write_deltalake` would hold all rows of a table with partitions, several times over: 600 MB of them took 3.9 GB. So pyarrow writes the
files here, one row group while the next one is read, and delta-rs commits them. That takes 0.3 GB.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties
from deltalake.transaction import AddAction, RemoveAction

from spark_jobs.lake.table import Table
from spark_jobs.lake.txn import COMMITTING
from spark_jobs.runtime.settings import Settings

_FILE_BYTES = 128 * 2**20
_ROWS_A_GROUP, _BYTES_A_GROUP = 100_000, 32 * 2**20  # of these, two groups are in memory
_MILLISECOND = timedelta(milliseconds=1)


def append(settings: Settings, table: Table, rows: Iterable[pa.RecordBatch], commit: CommitProperties) -> int:
    """Append rows with the table's columns, all of one partition, in one commit; returns how many.

    Raises what `rows` raises. Then nothing is committed and no file is left.
    """
    delta, count = table.open_to_write(settings), 0
    files: list[_File] = []

    def write(group: pa.Table) -> None:
        if not files or files[-1].is_full:
            files.append(_File(table.path(settings), {name: str(group[name][0]) for name in table.partitioned_by}))
        files[-1].write(group.drop_columns(list(table.partitioned_by)))

    try:
        with ThreadPoolExecutor(1) as pool:
            writing: Future[None] | None = None
            for group in _groups(rows):
                if writing:
                    writing.result()
                writing, count = pool.submit(write, group), count + len(group)
            if writing:
                writing.result()
        added: list[AddAction | RemoveAction] = [file.close() for file in files]
    except BaseException:
        for file in files:
            file.remove()
        raise
    with COMMITTING:
        delta.create_write_transaction(added, "append", delta.schema(), list(table.partitioned_by), commit_properties=commit)
    return count


def _groups(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in groups that fit into memory; none is empty."""
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in rows:
        if len(batch):
            held.append(batch)
            count, size = count + len(batch), size + batch.nbytes
        if count >= _ROWS_A_GROUP or size >= _BYTES_A_GROUP:
            yield pa.Table.from_batches(held)
            held, count, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


class _File:
    """A data file that no commit names yet, of a partition (`values`). Bytes and lists have neither a dictionary nor statistics."""

    def __init__(self, folder: Path, values: Mapping[str, str]) -> None:
        place = "/".join(f"{name}={value}" for name, value in values.items())
        (folder / place).mkdir(parents=True, exist_ok=True)
        self._values, self._name = values, f"{place}/part-00000-{uuid4()}-c000.snappy.parquet"
        self._path = folder / self._name
        self._file = self._path.open("wb")
        self._writer: pq.ParquetWriter | None = None
        self._found: list[pq.FileMetaData] = []  # once it is closed

    @property
    def is_full(self) -> bool:
        """Whether it has a good size."""
        return self._file.tell() >= _FILE_BYTES

    def write(self, rows: pa.Table) -> None:
        """Add a row group."""
        if self._writer is None:
            simple = [field.name for field in rows.schema if not (pa.types.is_binary(field.type) or pa.types.is_nested(field.type))]
            self._writer = pq.ParquetWriter(
                self._file, rows.schema, use_dictionary=simple, write_statistics=simple, store_schema=False, metadata_collector=self._found
            )
        self._writer.write_table(rows, row_group_size=len(rows))

    def close(self) -> AddAction:
        """Finish the file; what a commit says of it."""
        assert self._writer
        self._writer.close()
        size = self._file.tell()
        self._file.close()
        return AddAction(self._name, size, self._values, time.time_ns() // 10**6, True, json.dumps(_statistics(self._found[0])))

    def remove(self) -> None:
        """Remove the file, whatever became of it."""
        with suppress(Exception):  # on a full disk no file can be finished; what went wrong is known already
            if self._writer:
                self._writer.close()
        with suppress(Exception):
            self._file.close()
        with suppress(Exception):
            self._path.unlink()


def _statistics(found: pq.FileMetaData) -> dict[str, Any]:
    """Delta's statistics of a file, of the columns of which Parquet has them; not of one with a time of no year from 1 to 9999.

    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics
    """
    smallest: dict[str, Any] = {}
    largest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    unknown: set[str] = set()
    groups = [found.row_group(number) for number in range(found.num_row_groups)]
    for column in (group.column(number) for group in groups for number in range(group.num_columns)):
        if (stats := column.statistics) is None:
            continue
        name = column.path_in_schema
        nulls[name] = nulls.get(name, 0) + stats.null_count
        if not stats.has_min_max:
            continue
        try:
            smallest[name] = min(smallest.get(name, stats.min), stats.min)
            largest[name] = max(largest.get(name, stats.max), stats.max)
        except OverflowError:
            unknown.add(name)
    return {
        "numRecords": found.num_rows,
        "minValues": {name: _text(value) for name, value in smallest.items() if name not in unknown},
        "maxValues": {name: _text(value, is_largest=True) for name, value in largest.items() if name not in unknown},
        "nullCount": nulls,
    }


def _text(value: Any, *, is_largest: bool = False) -> Any:
    """A value as JSON has it. Times have milliseconds there, so the largest one is rounded up."""
    if not isinstance(value, datetime):
        return value
    up = _MILLISECOND if is_largest and value.microsecond % 1000 else timedelta()
    return (value + up).isoformat(timespec="milliseconds").replace("+00:00", "Z")
