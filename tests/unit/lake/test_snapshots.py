"""A table is opened once for those who read it, and again when its log has gone on; nobody is given rows of another table or time."""

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from spark_jobs.lake import snapshots
from spark_jobs.lake.snapshots import open_table


def append(home: Path, *numbers: int) -> None:
    write_deltalake(home, pa.table({"number": pa.array(numbers, pa.int64())}), mode="append")


def numbers(table: DeltaTable) -> list[int]:
    return sorted(table.to_pyarrow_table()["number"].to_pylist())


def test_a_table_is_opened_again_only_when_it_was_written(tmp_path: Path) -> None:
    append(tmp_path, 1)
    first = open_table(tmp_path)
    assert open_table(tmp_path) is first
    append(tmp_path, 2)
    second = open_table(tmp_path)
    assert numbers(second) == [1, 2]
    assert open_table(tmp_path) is second
    assert numbers(first) == [1], "who holds it still reads what was there then"
    DeltaTable(tmp_path).delete("number = 1")
    assert numbers(open_table(tmp_path)) == [2]
    DeltaTable(tmp_path).restore(0)
    assert numbers(open_table(tmp_path)) == [1]


def test_a_version_is_the_newest_one_or_opened_once(tmp_path: Path) -> None:
    append(tmp_path, 1)
    append(tmp_path, 2)
    newest = open_table(tmp_path)
    assert open_table(tmp_path, 1) is newest
    old = open_table(tmp_path, 0)
    assert numbers(old) == [1]
    assert open_table(tmp_path, 0) is old
    append(tmp_path, 3)
    assert [numbers(open_table(tmp_path, version)) for version in (0, 1, None)] == [[1], [1, 2], [1, 2, 3]]
    with pytest.raises(DeltaError):
        open_table(tmp_path, 7)


def test_a_folder_that_was_put_in_place_of_another_is_another_table(tmp_path: Path) -> None:
    home, other = tmp_path / "table", tmp_path / "other"
    for each, number in ((home, 1), (other, 5)):
        append(each, number)
        append(each, number + 1)
    assert numbers(open_table(home)) == [1, 2]
    assert numbers(open_table(home, 0)) == [1]
    shutil.rmtree(home)
    other.rename(home)
    assert numbers(open_table(home)) == [5, 6]
    assert numbers(open_table(home, 0)) == [5]
    shutil.rmtree(home)
    append(home, 9)  # with fewer commits
    assert numbers(open_table(home)) == [9]
    shutil.rmtree(home)
    with pytest.raises(DeltaError):
        open_table(home)


def test_a_table_of_whose_log_something_was_removed_is_opened_again(tmp_path: Path) -> None:
    """What is open reads commits when it is asked, so it fails where maintenance or an erasure has removed them."""
    append(tmp_path, 1)
    append(tmp_path, 2)
    first = open_table(tmp_path)
    DeltaTable(tmp_path).create_checkpoint()
    assert open_table(tmp_path) is not first
    second, old = open_table(tmp_path), open_table(tmp_path, 0)
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
    assert open_table(tmp_path) is not second
    assert open_table(tmp_path).transaction_version("any") is None
    assert numbers(open_table(tmp_path)) == [1, 2]
    assert numbers(old) == [1]
    with pytest.raises(DeltaError):
        open_table(tmp_path, 0)


def test_a_commit_at_the_moment_of_the_mark_is_found(tmp_path: Path) -> None:
    append(tmp_path, 1)
    log = tmp_path / "_delta_log"
    first, then = open_table(tmp_path), log.stat().st_mtime_ns
    append(tmp_path, 2)
    os.utime(log, ns=(then, then))
    assert open_table(tmp_path) is not first
    assert numbers(open_table(tmp_path)) == [1, 2]


def test_few_tables_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "_MOST", 2)
    monkeypatch.setattr(snapshots, "_opened", type(snapshots._opened)())
    homes = [tmp_path / name for name in "abc"]
    for home in homes:
        append(home, 1)
    a, b = map(open_table, homes[:2])
    assert open_table(homes[0]) is a
    open_table(homes[2])
    assert open_table(homes[0]) is a, "the one that was asked for last stays"
    assert open_table(homes[1]) is not b
    monkeypatch.setattr(snapshots, "_MOST_FILES", 1)
    append(homes[0], 2)
    assert open_table(homes[0]) is not open_table(homes[0])
