"""Batches that are written without Spark, whatever is in them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_jobs.bronze import additions
from spark_jobs.bronze.additions import bronze_row
from spark_jobs.control.scope import newest_batch
from spark_jobs.kafka import record_columns
from spark_jobs.kafka.record_batches import Record
from spark_jobs.lake import tables
from spark_jobs.lake.tables import BRONZE_ACCOUNTS
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import read_settings


def test_a_planned_batch_counts_also_without_a_record(tmp_path: Path) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    tables.ensure_tables(settings, (*tables.BRONZE, *tables.CONTROL))
    for upto, offsets in ((1, range(0)), (2, range(3)), (3, range(0))):
        with additions.open_spool(settings, BRONZE_ACCOUNTS) as spool:
            for offset in offsets:
                spool.add({**bronze_row(Record(offset, 1, 1, b"K", b"V", [("a", None)]), "accounts#2", 0), "_batch": None})
            additions.append_planned(settings, BRONZE_ACCOUNTS, spool.read(), upto, upto + 10)
        assert additions.count_written(settings, BRONZE_ACCOUNTS) == upto
    assert newest_batch(settings, BRONZE_ACCOUNTS) == 12
    rows = DeltaTable(str(BRONZE_ACCOUNTS.path(settings))).to_pyarrow_table().to_pylist()
    assert sorted((row["_topic"], row["_offset"], row["_batch"]) for row in rows) == [("accounts#2", n, 12) for n in range(3)]
    assert rows[0]["headers"] == [{"key": "a", "value": None}]


def test_a_spool_holds_no_more_than_some_megabytes_of_large_rows(tmp_path: Path) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    tables.ensure_tables(settings, (*tables.BRONZE, *tables.CONTROL))
    with additions.open_spool(settings, BRONZE_ACCOUNTS) as spool:
        for offset in range(10):
            spool.add({**bronze_row(Record(offset, 1, 1, b"K", bytes(10**7)), "accounts", 0), "_batch": None})
        assert [len(batch) for batch in spool.read()] == [4, 4, 2]


def test_what_the_rows_raise_comes_out_and_nothing_is_committed(tmp_path: Path) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    tables.ensure_tables(settings, (*tables.BRONZE, *tables.CONTROL))

    def rows() -> Iterator[pa.RecordBatch]:
        found = record_columns.of([Record(0, 1, 1, b"K", b"V")])
        yield additions.bronze_columns(BRONZE_ACCOUNTS, found, "accounts", 0, datetime.now(UTC))
        raise LedgerError("offset 1 is too large")

    with pytest.raises(LedgerError, match=r"^offset 1 is too large$"):
        additions.append_planned(settings, BRONZE_ACCOUNTS, rows(), 1, 1)
    assert additions.count_written(settings, BRONZE_ACCOUNTS) == 0
    assert DeltaTable(str(BRONZE_ACCOUNTS.path(settings))).version() == 0
    assert list(BRONZE_ACCOUNTS.path(settings).rglob("*.parquet")) == []
