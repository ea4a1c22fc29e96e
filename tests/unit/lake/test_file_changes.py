"""Which data files hold what came to a table since a version, and what went: as much as the log says for sure."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_jobs.lake.versions import file_changes


def append(home: Path, *numbers: int) -> None:
    write_deltalake(home, pa.table({"number": pa.array(numbers, pa.int64())}), mode="append")


def rows_of(home: Path, files: list[str]) -> list[int]:
    return sorted(number for file in files for number in pq.read_table(home / file)["number"].to_pylist())


def changed(home: Path, after: int, upto: int) -> tuple[list[int], list[int] | None] | None:
    """The rows of files that came, and of those that went."""
    found = file_changes(home, after, upto)
    return None if found is None else (rows_of(home, found.came), None if found.gone is None else rows_of(home, found.gone))


def merge(home: Path, *numbers: int) -> None:
    rows = pa.table({"number": pa.array(numbers, pa.int64())})
    merging = DeltaTable(home).merge(rows, "t.number = s.number", "s", "t")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()


def commit(home: Path, **actions: Any) -> None:
    """A commit of a merge, as Spark writes them."""
    lines = [{"commitInfo": {"operation": "MERGE"}}, *({kind: action} for kind, action in actions.items())]
    text = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines)
    log = home / "_delta_log"
    (log / f"{len([*log.glob('*.json')]):020}.json").write_text(text)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Version 1 has the rows 1 to 4, in two files."""
    append(tmp_path, 1, 2)
    append(tmp_path, 3, 4)
    return tmp_path


def test_files_that_were_appended_and_those_that_a_merge_wrote_again(home: Path) -> None:
    assert changed(home, 0, 1) == ([3, 4], [])
    assert changed(home, 1, 1) == ([], [])
    assert changed(home, 2, 1) is None  # a table that was made again
    append(home, 5)
    merge(home, 2, 6)
    assert changed(home, 1, 2) == ([5], [])
    assert changed(home, 1, 3) == ([1, 2, 5, 6], [1, 2])
    merge(home, 5)
    assert changed(home, 1, 4) == ([1, 2, 5, 6], [1, 2]), "the file of version 2 came and went"
    assert changed(home, 3, 4) == ([5], [5])


def test_files_that_were_only_joined_hold_nothing_new_unless_they_were_new_themselves(home: Path) -> None:
    append(home, 5)
    DeltaTable(home).optimize.compact()
    assert changed(home, 2, 3) == ([], [])
    assert changed(home, 1, 3) is None
    append(home, 6)
    assert changed(home, 2, 4) == ([6], [])
    merge(home, 3)
    assert changed(home, 2, 5) == ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5]), "what was joined went, with the rows of the files before"


def test_rows_that_are_marked_as_removed_leave_a_file_unless_it_is_new(home: Path) -> None:
    found = file_changes(home, 0, 1)
    assert found
    (old,) = found.came
    marked = {"path": old, "size": 1, "modificationTime": 1, "dataChange": True, "deletionVector": {"storageType": "u"}}
    commit(home, remove={"path": old}, add=marked)
    assert changed(home, 1, 2) == ([], None)
    assert changed(home, 0, 2) is None
    commit(home, remove={"path": old, "deletionVector": marked["deletionVector"]})
    assert changed(home, 2, 3) == ([], None), "not all rows of the file were there"


def test_a_log_that_does_not_tell(home: Path) -> None:
    append(home, 5)
    DeltaTable(home).restore(1)
    assert changed(home, 1, 3) is None
    append(home, 7)
    assert changed(home, 3, 4) == ([7], [])
    DeltaTable(home).delete("number = 7")
    assert changed(home, 3, 5) is None
    (home / "_delta_log" / f"{2:020}.json").unlink()
    assert changed(home, 1, 2) is None
