"""The records of many of Kafka's record batches at once, as Arrow columns: what record_batches.py reads one record at a time.

Only where each record begins is found step by step. Its fields are read by numpy, all first ones, all second ones, and so on; Arrow
copies keys and values. The format: https://kafka.apache.org/42/implementation/message-format/
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_jobs.kafka.messages import EPOCH, MILLISECOND
from spark_jobs.kafka.record_batches import Record, RecordBatch, read_headers

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", "UTC")),
    ]
)
Numbers = NDArray[np.int64]
Decoded = tuple[RecordBatch, bytes | memoryview]  # a batch, and what its records decode to


def read(batches: Sequence[Decoded], offsets: range) -> pa.RecordBatch:
    """Their records at these offsets, in order, in the columns of SCHEMA. `headers` is null where a record has none.

    Raises ValueError where they are not what the batches say: damaged, or of a time that no timestamp has.
    """
    if not any(batch.count for batch, _ in batches):
        return of([])
    data = b"".join(raw for _, raw in batches)
    starts: list[int] = []
    ends: list[int] = []
    at = 0
    try:
        for batch, raw in batches:
            _find(data, at, batch.count, starts, ends)
            at += len(raw)
            if (ends[-1] if batch.count else at) != at:
                raise ValueError(f"the records from offset {batch.first_offset} on do not end where their batch does")
        return _columns(data, np.array(starts, np.int64), np.array(ends, np.int64), [batch for batch, _ in batches], offsets)
    except IndexError:
        raise ValueError("a record ends too early") from None


def of(records: Iterable[Record]) -> pa.RecordBatch:
    """Records that were read one at a time, in the columns of SCHEMA. Raises ValueError at a time that no timestamp has."""
    found = list(records)
    headers = [record.headers or [] for record in found]
    names = [name for each in headers for name, _ in each]
    contents = [content for each in headers for _, content in each]
    columns = [
        pa.array([record.key for record in found], pa.binary()),
        pa.array([record.value for record in found], pa.binary()),
        _header_lists(np.array([len(each) for each in headers], np.int64), names, contents),
        pa.array([record.offset for record in found], pa.int64()),
        _timestamps([record.millis for record in found]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def row_of(record: Record) -> dict[str, Any]:
    """A record by the names of SCHEMA's columns."""
    return {
        "key": record.key,
        "value": record.value,
        "headers": [{"key": name, "value": content} for name, content in record.headers or ()] or None,
        "_offset": record.offset,
        "_timestamp": EPOCH + record.millis * MILLISECOND,
    }


def _find(data: bytes, at: int, count: int, starts: list[int], ends: list[int]) -> None:
    """Add where each record begins, after its size, and where it ends."""
    for _ in range(count):
        byte = data[at]
        size, shift, at = byte & 0x7F, 7, at + 1
        while byte > 0x7F:
            byte = data[at]
            size, shift, at = size | (byte & 0x7F) << shift, shift + 7, at + 1
        starts.append(at)
        at += size >> 1
        ends.append(at)


def _columns(data: bytes, starts: Numbers, ends: Numbers, batches: Sequence[RecordBatch], offsets: range) -> pa.RecordBatch:
    raw = np.frombuffer(data, np.uint8)
    after, at = _varints(raw, starts + 1)  # the byte before it has no meaning
    delta, at = _varints(raw, at)
    key, at = _contents(raw, at, ends)
    value, at = _contents(raw, at, ends)
    counts, at = _varints(raw, at)
    if (counts < 0).any() or (at > ends).any() or (at[counts == 0] != ends[counts == 0]).any():
        raise ValueError("a record does not end where its size says")
    batch_of = np.repeat(np.arange(len(batches)), [batch.count for batch in batches])
    firsts, times, lasts, are_stamped = (
        np.array([getattr(batch, name) for batch in batches])[batch_of]
        for name in ("first_offset", "first_millis", "last_millis", "is_stamped")
    )
    offset = firsts + delta
    wanted = np.flatnonzero((offset >= offsets.start) & (offset < offsets.stop))
    millis = np.where(are_stamped, lasts, times + after)[wanted]
    # One array has all: key, what lies between, value, what lies between, of one record after the other.
    bounds = np.append(np.stack([*key.bounds, *value.bounds], axis=1).ravel(), ends[-1:]).astype(np.int32)
    pieces = pa.BinaryArray.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    columns = [
        pieces.take(pa.array(4 * wanted, mask=key.is_null[wanted])),
        pieces.take(pa.array(4 * wanted + 2, mask=value.is_null[wanted])),
        _headers(data, at[wanted], ends[wanted], counts[wanted]),
        pa.array(offset[wanted]),
        _timestamps(millis),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class _Contents(NamedTuple):
    """The keys, or the values, of all records: where each begins and ends, and whether there is none."""

    bounds: tuple[Numbers, Numbers]
    is_null: NDArray[np.bool_]


def _contents(raw: NDArray[np.uint8], at: Numbers, ends: Numbers) -> tuple[_Contents, Numbers]:
    """What stands at these places behind its length, and the places after it. None of it lies outside of its record."""
    length, at = _varints(raw, at)
    if ((length < -1) | (length > ends - at)).any():
        raise ValueError("a record is shorter than what it holds")
    after = at + np.maximum(length, 0)
    return _Contents((at, after), length < 0), after


def _headers(data: bytes, at: Numbers, ends: Numbers, counts: Numbers) -> pa.Array:
    """The headers at these places, so many each; null where there are none."""
    if not counts.any():
        return pa.nulls(len(counts), _HEADERS)
    names: list[str] = []
    contents: list[bytes | None] = []
    for place, end, count in zip(at.tolist(), ends.tolist(), counts.tolist(), strict=True):
        if read_headers(data, place, count, names, contents) != end:
            raise ValueError("a record does not end where its size says")
    return _header_lists(counts, names, contents)


def _header_lists(counts: Numbers, names: Sequence[str], contents: Sequence[bytes | None]) -> pa.Array:
    """So many headers for each record; null where it has none."""
    bounds = np.concatenate([[0], np.cumsum(counts)])
    offsets = pa.array(bounds.astype(np.int32), mask=np.append(counts == 0, False))
    pairs = pa.StructArray.from_arrays([pa.array(names, pa.string()), pa.array(contents, pa.binary())], fields=list(_HEADERS.value_type))
    return pa.ListArray.from_arrays(offsets, pairs, type=_HEADERS)


def _timestamps(millis: Sequence[int] | Numbers) -> pa.Array:
    return pa.array(millis, pa.timestamp("ms", "UTC")).cast(SCHEMA.field("_timestamp").type)


def _varints(raw: NDArray[np.uint8], at: Numbers) -> tuple[Numbers, Numbers]:
    """Kafka's numbers at these places, and the places after them. Raises IndexError past the end."""
    byte = raw[at]
    number, at, shift = (byte & 0x7F).astype(np.uint64), at + 1, 7
    more = np.flatnonzero(byte > 0x7F)
    while len(more):
        if shift > 63:
            raise ValueError("a number is longer than any of Kafka's")
        byte = raw[at[more]]
        number[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        at[more] += 1
        more, shift = more[byte > 0x7F], shift + 7
    return (number >> np.uint64(1)).astype(np.int64) ^ -(number & np.uint64(1)).astype(np.int64), at
