"""How silver cuts the bronze batches that it has not read, and the few rows it finds in a table without Spark."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from spark_jobs.control import matching
from spark_jobs.lake.ranges import is_among
from spark_jobs.lake.tables import BRONZE_CUSTOMERS, TRANSACTION_IDS, Table, ensure_tables
from spark_jobs.lake.topics import transactions
from spark_jobs.runtime.settings import Settings, read_settings
from spark_jobs.silver import batches, id_index
from spark_jobs.silver.batches import Part, unread_parts
from tests.support.lake import arrive
from tests.support.rows import Record

ROWS: list[Record] = [(b"a", b"{}"), (b"b", b"{}"), (b"c", None)]


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    """Bronze has batches 1, 2, 4 and 7 of three customers each."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    ensure_tables(settings, [TRANSACTION_IDS])
    for batch in (1, 2, 4, 7):
        arrive(settings, "customers", batch, ROWS)
    return settings


def ranges(settings: Settings, done: int = 0, begun: int = 0) -> list[tuple[int, int, int]]:
    return [(part.after, part.last, part.rows) for part in unread_parts(settings, BRONZE_CUSTOMERS, done, begun)]


def test_the_rows_that_silver_has_to_take_are_counted_by_files(home: Settings) -> None:
    assert batches.unread_rows(home, [BRONZE_CUSTOMERS]) == 12
    assert batches.unread_rows(home, []) == 0


def test_all_new_batches_are_one_part_unless_they_have_too_many_rows(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ranges(home) == [(0, 7, 12)]
    assert ranges(home, done=2) == [(2, 7, 6)]
    assert ranges(home, done=7) == []
    monkeypatch.setattr(batches, "_ROWS_A_PART", 6)
    assert ranges(home) == [(0, 2, 6), (2, 7, 6)]
    monkeypatch.setattr(batches, "_ROWS_A_PART", 1)  # a batch is never cut
    assert ranges(home) == [(0, 1, 3), (1, 2, 3), (2, 4, 3), (4, 7, 3)]


def test_what_a_run_began_is_a_part_of_its_own(home: Settings) -> None:
    assert ranges(home, done=1, begun=4) == [(1, 4, 6), (4, 7, 3)]
    assert ranges(home, done=4, begun=4) == [(4, 7, 3)]


def test_batches_that_lie_in_one_file_are_cut_apart_and_each_counts_the_whole_file(home: Settings) -> None:
    """As after maintenance: how many rows a part has is at most what its files hold."""
    schema = pa.schema(BRONZE_CUSTOMERS.delta_schema().to_arrow())
    rows = pa.Table.from_pylist([{"_batch": batch} for batch in (8, 9, 10)], schema)
    write_deltalake(str(BRONZE_CUSTOMERS.path(home)), rows, mode="append")
    assert ranges(home, done=7) == [(7, 10, 3)]
    assert ranges(home, done=8) == [(8, 10, 3)]
    assert ranges(home, done=7, begun=9) == [(7, 9, 3), (9, 10, 3)]
    cuts = [0, *(last for _, last, _ in ranges(home, begun=9))]
    assert list(pairwise(cuts)) == [(after, last) for after, last, _ in ranges(home, begun=9)]


def test_few_rows_of_few_bytes_are_few() -> None:
    assert Part(0, 1, 150_000, 2**24).is_few
    assert not Part(0, 1, 150_001, 1).is_few
    assert not Part(0, 1, 1, 2**24 + 1).is_few


def find(settings: Settings, keys: list[bytes], where: str = "true") -> list[dict[str, Any]] | None:
    among = is_among("key", pa.array(keys, pa.binary()))
    found = matching.find_rows(settings, BRONZE_CUSTOMERS, ["key", "value", "_batch"], among, where)
    return None if found is None else sorted(found.to_pylist(), key=lambda row: int(row["_batch"]))


def test_rows_are_found_by_a_value_and_a_condition(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find(home, [b"c", b"d"], "_batch <= 2") == [{"key": b"c", "value": None, "_batch": batch} for batch in (1, 2)]
    assert find(home, []) == find(home, [b"x"]) == []
    monkeypatch.setattr(matching, "_MOST_BYTES", 10)
    assert find(home, [b"a"]) is None


@pytest.mark.parametrize(("hashes", "places"), [([], []), ([5], [(0, 1)]), ([-9, 7, 2**63 - 1], [(0, 2), (1, 2), (3, 4)]), ([6], [])])
def test_entries_are_found_by_their_hashes(home: Settings, hashes: list[int], places: list[tuple[int, int]]) -> None:
    put(
        home,
        TRANSACTION_IDS,
        [(5, 0, 1), (7, 0, 2), (7, 1, 2), (-3, 2, 2), (2**63 - 1, 3, 4), (7 + id_index._ENDS, 4, 1), (2**62 - 1, 4, 2)],
    )
    found = id_index.find_entries(home, transactions.TOPIC, np.array(hashes, np.int64))
    assert found is not None
    assert sorted((row["_partition"], row["_offset"]) for row in found.to_pylist()) == places


def put(settings: Settings, table: Table, rows: list[tuple[int, ...]]) -> None:
    arrow = pa.Table.from_pylist([dict(zip(table.columns, row, strict=True)) for row in rows], pa.schema(table.delta_schema().to_arrow()))
    write_deltalake(str(table.path(settings)), arrow, mode="append")
