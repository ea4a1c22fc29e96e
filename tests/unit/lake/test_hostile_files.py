"""Statistics of files in which dates lie that Python has no object for, as an older silver took them. Without a JVM."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from include.reader.layout import lay_out
from spark_jobs.lake import compaction, tables
from spark_jobs.lake.tables import ACCOUNT_DAYS, BRONZE, SILVER_CUSTOMERS, Table
from spark_jobs.releases import releases
from spark_jobs.reprocessing import dry_run
from spark_jobs.reprocessing.backfill import Request
from spark_jobs.runtime.settings import Settings, read_settings

BEFORE_1, AFTER_9999 = -719_528, 2_932_897  # 0000-01-01 and 10000-01-01, as days
DAY = 86_400_000_000


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = read_settings({"LEDGER_HOME": str(tmp_path)})
    tables.ensure_tables(found, (*BRONZE, SILVER_CUSTOMERS, ACCOUNT_DAYS))
    return found


def write(settings: Settings, table: Table, **values: object) -> None:
    schema = pa.schema(table.delta_schema().to_arrow())
    write_deltalake(str(table.path(settings)), pa.Table.from_pylist([values], schema), mode="append")


def test_maintenance_takes_them_and_keeps_their_order(settings: Settings) -> None:
    write(settings, SILVER_CUSTOMERS, birth_date=BEFORE_1, valid_from=BEFORE_1 * DAY, _batch=2)
    write(settings, SILVER_CUSTOMERS, birth_date=AFTER_9999, valid_from=AFTER_9999 * DAY, _batch=1)
    assert [file.place for file in compaction.files_of(settings, SILVER_CUSTOMERS)] in ([1, 2], [2, 1])
    for day in (AFTER_9999, 0, BEFORE_1):
        write(settings, ACCOUNT_DAYS, account_id="A00000001", day=day)
    assert sorted(file.place for file in compaction.files_of(settings, ACCOUNT_DAYS)) == [BEFORE_1, 0, AFTER_9999]
    (bin_,) = compaction.plan(compaction.files_of(settings, ACCOUNT_DAYS), 10**6)
    assert [file.place for file in bin_] == [BEFORE_1, 0, AFTER_9999]


@pytest.mark.parametrize(
    ("start", "end", "files"), [("0001-01-01", "9999-12-31", 1), ("1970-01-01", "1970-01-02", 1), ("1970-01-02", "1971-01-01", 0)]
)
def test_a_dry_run_counts_the_files_of_a_range(settings: Settings, start: str, end: str, files: int) -> None:
    for day in (AFTER_9999, 0, BEFORE_1):
        write(settings, ACCOUNT_DAYS, account_id="A00000001", day=day)
    first, after = (datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (start, end))
    parts = vars(dry_run)["_described"](settings, ACCOUNT_DAYS, Request(first, after, (ACCOUNT_DAYS.name,), 1, False))
    assert parts == [f"{files} rows in {files} of 3 files"]


def test_how_long_rows_wait_for_a_release_is_known_beside_them(settings: Settings) -> None:
    write(settings, BRONZE[0], _timestamp=BEFORE_1 * DAY, _ingested_at=7000, _ingested_on=0, _batch=1)
    assert releases.unreleased_since(settings) == datetime(1970, 1, 1, microsecond=7000, tzinfo=UTC)


def test_sql_shows_them() -> None:
    rows = pa.record_batch({"day": pa.array([BEFORE_1, 0], pa.date32()), "at": pa.array([AFTER_9999 * DAY, 0], pa.timestamp("us", "UTC"))})
    assert list(lay_out(rows.schema, [rows]))[2:4] == ["0000-01-01 | +10000-01-01 00:00:00", "1970-01-01 | 1970-01-01 00:00:00"]
