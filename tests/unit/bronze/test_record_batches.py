"""Kafka's record batches: their records, and how much they decode to, without holding it."""

import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path

import google_crc32c
import pyarrow as pa
import pytest

from spark_jobs.bronze import records
from spark_jobs.kafka.record_batches import MOST_BYTES, Headers, Record, RecordBatch, split
from spark_jobs.lake.tables import BRONZE_ACCOUNTS
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import read_settings

CODES = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
STREAMS = ("gzip", "lz4", "zstd")
Content = tuple[bytes | None, bytes | None, Headers]


def varint(number: int) -> bytes:
    rest, out = (number << 1) ^ (number >> 63), b""
    while rest > 0x7F:
        out, rest = out + bytes([rest & 0x7F | 0x80]), rest >> 7
    return out + bytes([rest])


def sized(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def encoded(number: int, content: Content) -> bytes:
    key, value, headers = content
    told = b"".join(sized(name.encode()) + sized(held) for name, held in headers)
    body = b"\0" + varint(7 * number) + varint(number) + sized(key) + sized(value) + varint(len(headers)) + told
    return varint(len(body)) + body


def compressed(codec: str, raw: bytes) -> bytes:
    if codec == "none":
        return raw
    if codec == "snappy":
        return bytes(pa.Codec("snappy").compress(raw))
    if codec == "snappy in frames":
        blocks = [pa.Codec("snappy").compress(raw[at : at + 1000]).to_pybytes() for at in range(0, len(raw), 1000)]
        return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(raw)
    return bytes(sink.getvalue())


def batch(codec: str, *contents: Content, first: int = 100, attributes: int = 0) -> bytes:
    payload = compressed(codec, b"".join(encoded(number, content) for number, content in enumerate(contents)))
    code, last, count = CODES[codec.split()[0]] | attributes, len(contents) - 1, len(contents)
    summed = struct.pack(">hiqqqhii", code, last, 1_000, 5_000, -1, -1, -1, count) + payload
    return struct.pack(">qiibI", first, 49 + len(payload), 0, 2, google_crc32c.value(summed)) + summed


def values(*sizes: int) -> list[Content]:
    return [(b"K", bytes(size), []) for size in sizes]


def only(data: bytes | bytearray) -> RecordBatch:
    (found,) = split(memoryview(data))
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "snappy in frames", "lz4", "zstd"])
def test_records_are_read_as_they_were_written(codec: str) -> None:
    contents: list[Content] = [
        (None, None, []),
        (b"", b"", []),
        (b"K" * 300, b"\x00\xff" * 400_000, [("a", b"1"), ("a", None), ("", b""), ("\u00e4", b"\xff")]),
        (b"K", b"last", []),
    ]
    found = [(record.key, record.value, record.headers or []) for record in only(batch(codec, *contents)).records()]
    assert found == contents
    assert [(record.offset, record.millis) for record in only(batch(codec, *contents)).records()] == [
        (100, 1_000),
        (101, 1_007),
        (102, 1_014),
        (103, 1_021),
    ]


def test_the_time_is_the_brokers_where_it_stamps() -> None:
    assert [record.millis for record in only(batch("zstd", *values(1, 2), attributes=0x08)).records()] == [5_000, 5_000]


def test_a_batch_that_is_cut_off_is_left_for_the_next_answer() -> None:
    data = batch("lz4", *values(5)) + batch("lz4", *values(5), first=200)
    assert [found.first_offset for found in split(memoryview(data))] == [100, 200]
    assert [found.first_offset for found in split(memoryview(data[:-1]))] == [100]


def test_an_older_format_is_refused() -> None:
    data = bytearray(batch("none", *values(5)))
    data[16] = 1
    with pytest.raises(ValueError, match="found record format 1, expected 2"):
        list(split(memoryview(data)))


@pytest.mark.parametrize("codec", STREAMS)
def test_of_a_record_that_is_too_large_no_more_than_a_piece_is_held(codec: str) -> None:
    data = batch(codec, *values(3, 4 * MOST_BYTES, 5))
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    found = [(record.offset, record.is_too_large, len(record.value or b"")) for record in only(data).records()]
    assert only(data).decode(10**6) is None
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == [(100, False, 3), (101, True, 0), (102, False, 5)]
    assert (most < MOST_BYTES / 4, pa.total_allocated_bytes() - before < MOST_BYTES / 4) == (True, True)


@pytest.mark.parametrize(("size", "is_too_large"), [(MOST_BYTES - 10, False), (MOST_BYTES - 9, True)])
def test_the_limit_is_of_the_whole_record(size: int, is_too_large: bool) -> None:
    (record,) = only(batch("zstd", (b"K", bytes(size), []))).records()
    assert (record.size, record.is_too_large) == (size + 10, is_too_large)


@pytest.mark.parametrize("place", [21, 60, 61, -1])
def test_one_bit_that_differs_is_found_by_the_checksum(place: int) -> None:
    data = bytearray(batch("none", *values(5), first=7))
    data[place] ^= 1
    with pytest.raises(ValueError, match="offset 7: the record batch is damaged, it does not have its checksum 0x"):
        only(data)


@pytest.mark.parametrize("codec", STREAMS)
def test_what_is_damaged_is_no_record(codec: str) -> None:
    found = only(batch(codec, *values(10_000, 10_000)))
    payload = bytes(found.payload)
    with pytest.raises((ValueError, OSError)):
        list(replace(found, payload=memoryview(payload[:-20][::-1] + payload[-20:])).records())


@pytest.mark.parametrize("codec", CODES)
def test_a_batch_is_decoded_whole_where_it_fits(codec: str) -> None:
    found = only(batch(codec, *values(10_000, 10_000)))
    whole = found.decode(10**6)
    assert whole is not None
    assert bytes(whole) == b"".join(encoded(*each) for each in enumerate(values(10_000, 10_000)))
    assert found.decode(len(whole)) == whole
    assert found.decode(len(whole) - 1) is None


def test_a_partition_that_has_lost_its_end_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """Spark plans such a batch, and would tell when it reads it."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path), "LEDGER_KAFKA_BOOTSTRAP": "127.0.0.1:1"})
    planned = {0: range(3, 9), 1: range(100, 50)}
    with pytest.raises(LedgerError, match="topic accounts: found that partition 1 ends at offset 50, expected at least 100"):
        next(records.read(settings, BRONZE_ACCOUNTS, "accounts", planned, may_be_there=False))


def test_the_refusal_has_the_command() -> None:
    told = str(records.refusal("customers", 0, Record(7, 600_000_000)))
    assert "a record of 600000000 bytes at offset 7 of partition 0, expected at most 33554432" in told
    assert told.endswith("run accept --topic customers --partition 0 --offset 7 --who NAME --why TEXT")
