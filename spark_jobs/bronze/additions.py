"""Rows that come to bronze, by the stream, a replay or an import: their batch number, and the one commit that appends them.

The table counts `_batch`, not its writer. The stream's own transaction identifier (`STREAM`) says how many batches it has written. Batches
that others add raise the numbers of its later batches (`batch_offset`), so numbers never fall. A batch that the stream has planned and not
yet written takes the next free number when it is written.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from tempfile import TemporaryFile
from typing import IO, Any

import pyarrow as pa

from spark_jobs import control
from spark_jobs.control.scope import newest_batch
from spark_jobs.kafka.record_batches import Record
from spark_jobs.kafka.record_columns import row_of
from spark_jobs.lake import appends
from spark_jobs.lake.tables import Table
from spark_jobs.lake.txn import Txn, applied, commit_properties
from spark_jobs.runtime import storage
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings

STREAM = "bronze"  # the transaction identifiers (txnAppId) under which bronze is written
_APPLICATION = "bronze additions"
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 10_000, 32 * 2**20


def bronze_row(record: Record, topic: str, partition: int) -> dict[str, Any]:
    """A record of Kafka as bronze has it (without batch), bytes as they came."""
    return {**row_of(record), "_topic": topic, "_partition": partition}


def bronze_columns(table: Table, found: pa.RecordBatch, topic: str, partition: int, now: datetime) -> pa.RecordBatch:
    """Records of a partition (kafka/record_columns.py) as bronze has them, without batch; `now` is for information."""
    same = {"_topic": topic, "_partition": partition, "_batch": None, "_ingested_at": now, "_ingested_on": now.date()}
    schema = pa.schema(table.delta_schema().to_arrow())
    columns = [
        pa.repeat(pa.scalar(same[field.name], field.type), len(found)) if field.name in same else found[field.name].cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def last_number(settings: Settings, table: Table) -> int:
    """The largest batch number in a bronze table or in the silver tables made from it; 0 if there is none."""
    written = (applied(settings, table, each) or 0 for each in (STREAM, _APPLICATION))
    return max(control.silver_batch(settings, table.topic), newest_batch(settings, table), *written)


def count_written(settings: Settings, table: Table) -> int:
    """How many batches the stream has written."""
    return applied(settings, table, STREAM) or 0


def batch_offset(settings: Settings, table: Table) -> int:
    """What must be added to the stream's own count to get a number that was not used yet."""
    return last_number(settings, table) - count_written(settings, table)


@contextmanager
def open_spool(settings: Settings, table: Table) -> Iterator["Spool"]:
    """A spool that leaves no file on the disk, however the process ends."""
    with TemporaryFile(dir=settings.home if storage.is_remote(settings.warehouse) else settings.warehouse) as file:
        yield Spool(file, table)


class Spool:
    """Rows on their way to a bronze table, in a temporary file: their source is read once, in bounded memory.

    A row has bronze's columns; those that say when it was ingested are added here. `_batch` is None where it is to be the new batch.
    """

    def __init__(self, file: IO[bytes], table: Table) -> None:
        self._schema = pa.schema(table.delta_schema().to_arrow())
        now = datetime.now(UTC)
        self._times = {"_ingested_at": now, "_ingested_on": now.date()}
        self._file = file
        self._writer = pa.ipc.new_stream(self._file, self._schema)
        self._waiting: list[Mapping[str, Any]] = []
        self._waiting_bytes = 0
        self.rows = 0
        self.new_rows = 0  # those of the new batch

    def add(self, row: Mapping[str, Any]) -> None:
        """Add one row."""
        self._waiting.append({**row, **self._times})
        self.rows += 1
        self.new_rows += row["_batch"] is None
        self._waiting_bytes += len(row["value"] or b"")
        if len(self._waiting) == _ROWS_AT_ONCE or self._waiting_bytes >= _BYTES_AT_ONCE:
            self._flush()

    def read(self) -> Iterator[pa.RecordBatch]:
        """All rows, in the order in which they came; nothing can be added afterwards."""
        self._flush()
        self._writer.close()
        self._file.seek(0)
        yield from pa.ipc.open_stream(self._file)

    def _flush(self) -> None:
        self._writer.write_table(pa.Table.from_pylist(self._waiting, self._schema))
        self._waiting, self._waiting_bytes = [], 0


def append(settings: Settings, table: Table, spool: Spool, application: str) -> int | None:
    """Append all rows of a spool in one commit, under the table's lease, which the caller holds.

    Returns the number of the new batch; None where every row has the number that it had before.
    """
    if not spool.rows:
        return None
    number = last_number(settings, table) + 1 if spool.new_rows else None
    # A commit without a new batch belongs to the batches before it (`written.version_upto`).
    metadata = {"application": application, **({"batch": number} if number else {})}
    _commit(settings, table, spool.read(), number, metadata, Txn(_APPLICATION, number) if number else None)
    return number


def append_planned(settings: Settings, table: Table, rows: Iterable[pa.RecordBatch], upto: int, number: int) -> None:
    """Append what the stream's batch `upto`, by its own count, brings: as the table's batch `number`. For the stream itself.

    Raises what `rows` raises; then nothing is committed.
    """
    _commit(settings, table, rows, number, {"application": STREAM, "batch": number}, Txn(STREAM, upto))


def _commit(
    settings: Settings, table: Table, batches: Iterable[pa.RecordBatch], number: int | None, metadata: Mapping[str, Any], txn: Txn | None
) -> None:
    properties = commit_properties(settings, table, metadata, [txn] if txn else [])
    kill_point(f"before {table.name}")
    appends.append(settings, table, _numbered(batches, number), properties)
    kill_point(f"after {table.name}")


def _numbered(batches: Iterable[pa.RecordBatch], number: int | None) -> Iterator[pa.RecordBatch]:
    """The rows with the number of the new batch where they have none."""
    for batch in batches:
        place = batch.schema.get_field_index("_batch")
        yield batch if number is None else batch.set_column(place, batch.schema.field(place), batch["_batch"].fill_null(number))
