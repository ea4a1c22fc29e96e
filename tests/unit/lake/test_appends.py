"""Rows that come batch by batch: in one commit, in files that others can skip, and without a trace where they end with an error."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable

from spark_jobs.bronze.additions import bronze_columns
from spark_jobs.kafka import record_columns
from spark_jobs.kafka.record_batches import Record
from spark_jobs.lake import appends, tables
from spark_jobs.lake.tables import BRONZE_ACCOUNTS
from spark_jobs.runtime.settings import Settings, read_settings

NOW = datetime(2024, 2, 29, 23, 59, 59, 999_001, UTC)
FOLDER = "_ingested_on=2024-02-29"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = read_settings({"LEDGER_HOME": str(tmp_path)})
    tables.ensure_tables(found, [BRONZE_ACCOUNTS])
    return found


def rows(*offsets: range, error: Exception | None = None) -> Iterator[pa.RecordBatch]:
    for some in offsets:
        records = [Record(offset, 1, 1_000 + offset, None if offset % 3 else b"K", b"%d" % offset, [("a", None)]) for offset in some]
        yield bronze_columns(BRONZE_ACCOUNTS, record_columns.of(records), "accounts", 2, NOW)
    if error:
        raise error


def files(settings: Settings) -> list[Path]:
    return sorted(BRONZE_ACCOUNTS.path(settings).rglob("*.parquet"))


def test_all_rows_are_there_once_in_order_and_in_one_commit(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appends, "_ROWS_A_GROUP", 10)
    monkeypatch.setattr(appends, "_FILE_BYTES", 500)
    offsets = (range(7), range(7, 7), range(7, 40), range(40, 41), range(41, 95))
    assert appends.append(settings, BRONZE_ACCOUNTS, rows(*offsets), CommitProperties()) == 95
    delta = DeltaTable(str(BRONZE_ACCOUNTS.path(settings)))
    assert delta.version() == 1
    found = delta.to_pyarrow_table().sort_by("_offset").to_pylist()
    expected = [row for batch in rows(*offsets) for row in batch.to_pylist()]
    assert found == expected
    assert len(files(settings)) > 1
    assert {file.parent.name for file in files(settings)} == {FOLDER}


def test_statistics_hold_all_values_also_the_last_microsecond(settings: Settings) -> None:
    appends.append(settings, BRONZE_ACCOUNTS, rows(range(3), range(3, 9)), CommitProperties())
    (said,) = pa.table(DeltaTable(str(BRONZE_ACCOUNTS.path(settings))).get_add_actions(flatten=True)).to_pylist()
    assert (said["num_records"], said["partition._ingested_on"]) == (9, NOW.date())
    assert (said["min._offset"], said["max._offset"], said["null_count._batch"]) == (0, 8, 9)
    first = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert (said["min._timestamp"], said["max._timestamp"]) == (first, first + timedelta(milliseconds=8))
    assert said["min._ingested_at"] <= NOW <= said["max._ingested_at"]
    log = (BRONZE_ACCOUNTS.path(settings) / "_delta_log" / f"{1:020}.json").read_text().splitlines()
    stats = json.loads(next(json.loads(line)["add"]["stats"] for line in log if '"add"' in line))
    assert "value" not in stats["minValues"].keys() | stats["nullCount"].keys()


def test_a_time_of_no_year_is_appended_without_statistics(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appends, "_ROWS_A_GROUP", 1)
    (plain,) = rows(range(1, 2))
    place = plain.schema.get_field_index("_timestamp")
    wild = plain.set_column(place, plain.schema.field(place), pa.array([2**62], plain.schema.field(place).type))
    assert appends.append(settings, BRONZE_ACCOUNTS, [plain, wild, plain], CommitProperties()) == 3
    delta = DeltaTable(str(BRONZE_ACCOUNTS.path(settings)))
    (said,) = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    assert (said.get("min._timestamp"), said.get("max._timestamp"), said["max._offset"]) == (None, None, 1)
    assert delta.to_pyarrow_table()["_timestamp"].cast(pa.int64()).to_pylist().count(2**62) == 1


def test_no_row_is_a_commit_without_a_file(settings: Settings) -> None:
    assert appends.append(settings, BRONZE_ACCOUNTS, rows(range(0)), CommitProperties()) == 0
    assert (DeltaTable(str(BRONZE_ACCOUNTS.path(settings))).version(), files(settings)) == (1, [])


@pytest.mark.parametrize("error", [ValueError("damaged"), KeyboardInterrupt()])
def test_what_the_rows_raise_comes_out_and_leaves_no_file(settings: Settings, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(appends, "_ROWS_A_GROUP", 10)
    monkeypatch.setattr(appends, "_FILE_BYTES", 500)
    with pytest.raises(type(error)) as raised:
        appends.append(settings, BRONZE_ACCOUNTS, rows(range(60), range(60, 95), error=error), CommitProperties())
    assert raised.value is error
    assert (DeltaTable(str(BRONZE_ACCOUNTS.path(settings))).version(), files(settings)) == (0, [])


def test_a_file_that_cannot_be_written_is_an_error_and_left_nowhere(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever group it is, the last one included."""
    monkeypatch.setattr(appends, "_ROWS_A_GROUP", 10)
    written = appends._File.write

    def write(file: appends._File, group: pa.Table) -> None:
        if group["_offset"][0].as_py() >= 20:
            raise OSError("No space left on device")
        written(file, group)

    monkeypatch.setattr(appends._File, "write", write)
    for last in (25, 60):
        with pytest.raises(OSError, match="No space left"):
            appends.append(settings, BRONZE_ACCOUNTS, rows(*(range(n, n + 10) for n in range(0, last, 10))), CommitProperties())
        assert (DeltaTable(str(BRONZE_ACCOUNTS.path(settings))).version(), files(settings)) == (0, [])


def test_memory_does_not_grow_with_the_rows(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0

    def large() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for number in range(100):
            most = max(most, pa.total_allocated_bytes())
            found = record_columns.of([Record(number, 1, 1, b"K", bytes(10**6))])
            yield bronze_columns(BRONZE_ACCOUNTS, found, "accounts", 0, NOW)

    monkeypatch.setattr(appends, "_BYTES_A_GROUP", 4 * 10**6)
    before = pa.total_allocated_bytes()
    appends.append(settings, BRONZE_ACCOUNTS, large(), CommitProperties())
    assert most - before < 40 * 10**6
