"""Records read many at a time are those that are read one at a time, whatever is in them, and whatever was done to them."""

import random
import tracemalloc
from dataclasses import replace
from itertools import accumulate

import pytest

from spark_jobs.kafka import record_columns
from spark_jobs.kafka.record_batches import split
from tests.unit.bronze.test_record_batches import Content, batch, encoded, only

ALL = range(2**62)
PLAIN: Content = (b"k" * 20, b"v" * 20, [("h", b"x")])
SIZES = (0, 1, 2, 63, 64, 127, 128, 300, 8_191, 8_192, 20_000)


def content(random_: random.Random, most: int = 20_000) -> Content:
    def some() -> bytes | None:
        return random_.choice([None, b"", random_.randbytes(random_.choice([size for size in SIZES if size <= most]))])

    names = ["", "a", "\u00e4\u20ac", "trace" * 30]
    headers = [(random_.choice(names), some()) for _ in range(random_.choice([0, 0, 0, 1, 3, 70]))]
    return some(), some(), headers


def decoded(data: bytes) -> list[record_columns.Decoded]:
    found: list[record_columns.Decoded] = []
    for each in split(memoryview(data)):
        raw = each.decode(2**30)
        assert raw is not None
        found.append((each, raw))
    return found


def one_by_one(batches: list[record_columns.Decoded], offsets: range = ALL) -> list[dict[str, object]]:
    return [record_columns.row_of(record) for each, _ in batches for record in each.records() if record.offset in offsets]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "snappy in frames", "lz4", "zstd"])
def test_all_fields_are_those_of_the_reader_of_one_record(codec: str) -> None:
    random_ = random.Random(codec)
    firsts = accumulate([100, *(random_.choice([1, 40, 2**40]) + 60 for _ in range(7))])
    data = b"".join(
        batch(
            codec, *(content(random_) for _ in range(random_.choice([0, 1, 59]))), first=first, attributes=random_.choice([0, 0x08, 0x10])
        )
        for first in firsts
    )
    found = decoded(data)
    rows = record_columns.read(found, ALL)
    assert rows.schema == record_columns.SCHEMA
    assert rows.to_pylist() == one_by_one(found)
    rows.validate(full=True)
    offsets = range(found[1][0].first_offset + 1, found[-1][0].first_offset + 2)
    assert record_columns.read(found, offsets).to_pylist() == one_by_one(found, offsets)


def test_no_record_is_an_empty_batch() -> None:
    assert record_columns.read(decoded(batch("none")), ALL).num_rows == 0
    assert record_columns.read([], ALL).schema == record_columns.SCHEMA
    assert record_columns.read(decoded(batch("zstd", (None, None, []), first=7)), range(7)).to_pylist() == []


@pytest.mark.parametrize("seed", range(20))
def test_what_is_damaged_is_refused_or_means_the_same_to_both(seed: int) -> None:
    """Whatever byte of the records changes: never other records than the reader of one record finds, and never past the end."""
    random_ = random.Random(seed)
    whole = only(batch("none", *(content(random_, most=64) for _ in range(9)), *[PLAIN] * 9))
    refused = 0
    for _ in range(300):
        damaged = bytearray(whole.payload)
        for _ in range(random_.choice([1, 1, 3])):
            damaged[random_.randrange(len(damaged))] = random_.choice([0, 0x7F, 0x80, 0xFF, random_.randrange(256)])
        found: list[record_columns.Decoded] = [(replace(whole, payload=memoryview(damaged)), bytes(damaged))]
        try:
            rows = record_columns.read(found, ALL)
        except ValueError:
            refused += 1
            continue
        rows.validate(full=True)
        assert rows.to_pylist() == one_by_one(found)
    assert 0 < refused < 300


@pytest.mark.parametrize("size", [0, 1, 30, 59])
def test_records_that_end_too_early_or_too_late_are_refused(size: int) -> None:
    whole = b"".join(encoded(number, (b"key", b"v" * 20, [])) for number in range(2))
    (each,) = (found for found, _ in decoded(batch("none", *[(b"key", b"v" * 20, [])] * 2)))
    for raw in (whole[:size], whole + b"\0"):
        with pytest.raises(ValueError, match="end"):
            record_columns.read([(each, raw)], ALL)


def test_a_time_that_no_timestamp_has_is_refused() -> None:
    (each,) = (found for found, _ in decoded(batch("none", (b"k", b"v", []))))
    with pytest.raises(ValueError, match="out of bounds"):
        record_columns.read([(replace(each, first_millis=2**62), each.payload)], ALL)


@pytest.mark.parametrize("millis", [253_402_300_800_000, -62_135_596_800_001, -1])
def test_any_time_of_a_record_is_kept_in_both_ways(millis: int) -> None:
    (each,) = (found for found, _ in decoded(batch("none", PLAIN)))
    late = replace(each, first_millis=millis)
    for rows in (record_columns.read([(late, late.payload)], ALL), record_columns.of(late.records())):
        assert rows["_timestamp"].cast("int64").to_pylist() == [millis * 1000]
        assert rows["headers"].to_pylist() == [[{"key": "h", "value": b"x"}]]


def test_many_headers_take_little_memory() -> None:
    (each,) = (found for found, _ in decoded(batch("none", (b"k", b"v", [("", None)] * 200_000))))
    tracemalloc.start()
    rows = record_columns.read([(each, each.payload)], ALL)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(rows["headers"][0]) == 200_000
    assert most < 20 * 2**20
