"""Reads from Kafka the records of a batch that Spark has planned. No client library does it in bounded memory.

A few compressed bytes can decode to a very large record, and a client decodes a record batch in one piece. Here a record batch is decoded
piece by piece. Those that stay small are read many at a time, as columns; of another one, one record at a time. A record that is
itself too large is refused until an operator gives it up.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from spark_jobs.bronze import gaps
from spark_jobs.bronze.additions import bronze_columns
from spark_jobs.bronze.coverage import Coverage
from spark_jobs.kafka import record_columns
from spark_jobs.kafka.fetches import Fetches
from spark_jobs.kafka.record_batches import MOST_BYTES, Record, RecordBatch
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings

_MOST_DECODED, _MOST_RECORDS = 16 * 2**20, 100_000  # bytes and records of a record batch that is read as columns
_AT_ONCE = 4 * 2**20  # bytes of the records that are read together
Planned = Mapping[int, range]  # the offsets of a batch, by partition


def read(settings: Settings, table: Table, label: str, planned: Planned, *, may_be_there: bool) -> Iterator[pa.RecordBatch]:
    """The records of these offsets in order, with bronze's columns (without batch); with `may_be_there` only those that bronze lacks.

    Without those given up in control.holes. Raises LedgerError, with the command that gives it up, at another one that is too large;
    where records cannot be decoded; and where Spark plans to go back, because a partition has lost its end.
    """
    for number, offsets in planned.items():
        if offsets.stop < offsets.start:
            raise LedgerError(
                f"topic {table.topic}: found that partition {number} ends at offset {offsets.stop}, expected at least {offsets.start}, "
                "up to where it was read: the broker has lost records"
            )
    coverage, now = Coverage(settings, table, label) if may_be_there else None, datetime.now(UTC)
    with Fetches(settings.broker(), table.topic) as fetches:
        for number, offsets in sorted(planned.items()):
            missing = coverage.missing(number, offsets.start, offsets.stop) if coverage else None
            for found in _read(settings, table, label, fetches, number, offsets):
                rows = found if missing is None else found.filter(pa.array(np.isin(found["_offset"], missing)))
                yield bronze_columns(table, rows, label, number, now)


def records(fetches: Fetches, partition: int, offsets: range, *, are_all_there: bool = True) -> Iterator[Record]:
    """The records at these offsets, in order. Raises LedgerError where they cannot be decoded, or Kafka's log does not reach the last.

    Without `are_all_there` it ends where Kafka's log does.
    """
    for batch in fetches.batches(partition, offsets.start, offsets.stop if are_all_there else None):
        if batch.first_offset >= offsets.stop:
            return
        yield from _one_by_one(partition, batch, offsets)


def refusal(topic: str, partition: int, record: Record) -> LedgerError:
    """The refusal of a record, with the command that gives it up."""
    command = f".venv/bin/python -m spark_jobs.run accept --topic {topic} --partition {partition} --offset {record.offset}"
    return LedgerError(
        f"topic {topic}: found a record of {record.size} bytes at offset {record.offset} of partition {partition}, "
        f"expected at most {MOST_BYTES}; to do without it and resume: {command} --who NAME --why TEXT"
    )


def _read(settings: Settings, table: Table, label: str, fetches: Fetches, partition: int, offsets: range) -> Iterator[pa.RecordBatch]:
    held: list[record_columns.Decoded] = []
    size = count = 0
    for batch in fetches.batches(partition, offsets.start, offsets.stop):
        with _decoding(partition, batch.first_offset, batch.last_offset):
            raw = batch.decode(_MOST_DECODED) if batch.count <= _MOST_RECORDS else None
        if raw is not None:
            held.append((batch, raw))
            size, count = size + len(raw), count + batch.count
        if held and (raw is None or size >= _AT_ONCE or count >= _MOST_RECORDS):
            yield _columns(partition, held, offsets)
            held, size, count = [], 0, 0
        if raw is None:
            yield from _large(settings, table, label, partition, _one_by_one(partition, batch, offsets))
    if held:
        yield _columns(partition, held, offsets)


def _large(settings: Settings, table: Table, label: str, partition: int, found: Iterable[Record]) -> Iterator[pa.RecordBatch]:
    """The records of a batch that decodes to much, without those that were given up."""
    held: list[Record] = []
    size = 0
    for record in found:
        if not record.is_too_large:
            held.append(record)
            size += record.size
        elif not gaps.covers(gaps.recorded(settings, table, label), partition, record.offset):
            raise refusal(table.topic, partition, record)
        if size >= _AT_ONCE or len(held) >= _MOST_RECORDS:
            yield _as_columns(partition, held)
            held, size = [], 0
    if held:
        yield _as_columns(partition, held)


def _as_columns(partition: int, found: list[Record]) -> pa.RecordBatch:
    with _decoding(partition, found[0].offset, found[-1].offset):
        return record_columns.of(found)


def _columns(partition: int, batches: list[record_columns.Decoded], offsets: range) -> pa.RecordBatch:
    with _decoding(partition, batches[0][0].first_offset, batches[-1][0].last_offset):
        return record_columns.read(batches, offsets)


def _one_by_one(partition: int, batch: RecordBatch, offsets: range) -> Iterator[Record]:
    with _decoding(partition, batch.first_offset, batch.last_offset):
        yield from (record for record in batch.records() if record.offset in offsets)


@contextmanager
def _decoding(partition: int, first: int, last: int) -> Iterator[None]:
    try:
        yield
    except (ValueError, OSError) as error:
        raise LedgerError(f"offsets {first} to {last} of partition {partition} cannot be decoded: {error}") from None
