"""What gold reads and writes of its tables: the parts near new rows. Rows that change are marked, and their files stay."""

import random
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from spark_jobs import control
from spark_jobs.gold import job
from spark_jobs.lake import few_rows, sinks, tables
from spark_jobs.lake.txn import Txn
from spark_jobs.maintenance import job as maintenance
from spark_jobs.runtime.settings import Settings, read_settings
from tests.spark.gold.test_gold_job import silver_rows
from tests.support.frames import at, frame
from tests.support.gold_model import Row, model
from tests.support.lake import assert_equal, gold_of, rows_of

pytestmark = pytest.mark.spark

FAR = timedelta(days=150)
WITH_TIMES = [tables.SILVER_TRANSACTIONS, *(table for table in tables.GOLD if table.deletion_vectors and table != tables.ACCOUNT_DAYS)]


def test_files_far_from_new_rows_are_not_even_opened(spark: SparkSession, tmp_path: Path) -> None:
    """They are away while gold follows. (Of account_days all are read here: no account has had a row for months.)"""
    settings = read_settings({"LEDGER_HOME": str(tmp_path), "LEDGER_LARGE_CREDIT": "50000"})
    tables.ensure_tables(settings, (*tables.SILVER, *tables.GOLD, *tables.CONTROL))
    rows = silver_rows(random.Random(3), count=150)
    old = rows[:100]
    new = [row | {"event_at": row["event_at"] + FAR, "event_on": (row["event_at"] + FAR).date()} for row in rows[100:]]
    add(settings, old)
    job.run(spark, settings, "run-1")
    files = [Path(file) for table in WITH_TIMES for file in DeltaTable(str(table.path(settings))).file_uris()]
    assert len(files) >= len(WITH_TIMES)
    for file in files:
        file.rename(f"{file}.away")
    add(settings, new)
    job.run(spark, settings, "run-2")
    for file in files:
        Path(f"{file}.away").rename(file)
    assert_equal(gold_of(settings), model([*old, *new], [], [], Decimal(50000)))


def add(settings: Settings, rows: list[Row]) -> None:
    """New rows, as the silver job writes them."""
    schema = pa.schema(tables.SILVER_TRANSACTIONS.delta_schema().to_arrow())
    write_deltalake(str(tables.SILVER_TRANSACTIONS.path(settings)), pa.Table.from_pylist(rows, schema), mode="append")


def test_rows_are_marked_counted_without_them_and_joined_in_the_order_of_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that came late, in the newest file, does not put that file before the others."""
    monkeypatch.setattr(few_rows, "MOST_BYTES", -1)
    settings, table = read_settings({"LEDGER_HOME": str(tmp_path)}), tables.CUSTOMER_SESSIONS
    tables.ensure_tables(settings, [table, *tables.CONTROL])
    sinks.mark_removed_rows(spark, settings, [table])
    assert DeltaTable(str(table.path(settings))).protocol().reader_features == ["deletionVectors"]  # readers need know nothing else

    def session(day: str, customer: str, amount: int) -> tuple[str, str, str, int, str]:
        return customer, day, f"{day} 12:00", 1, f"{amount}.00"

    runs = [
        [session(day, f"C{number}", 1) for number, day in enumerate(("2013-01-03", "2013-01-01", "2013-01-02"))],
        [session("2013-01-02", "C2", 2), session("2013-01-04", "C3", 1)],
        [session("2013-01-05", "C4", 1), session("2012-12-31", "C5", 1)],
    ]
    for upto, rows in enumerate(runs, start=1):
        changes = sinks.changes_of(table, frame(spark, table.ddl, runs[0] if upto == 2 else []), frame(spark, table.ddl, rows))
        if upto == 2:
            changes = changes.where("not _is_gone")
        sinks.merge_changes(changes, settings, table, Txn("test", upto))
    delta = DeltaTable(str(table.path(settings)))
    assert (delta.count(), control.count(delta), len(delta.file_uris())) == (7, 6, 3)  # the first file is there, less one row

    before = sorted(map(str, rows_of(settings, table)))
    (report,) = maintenance.run(settings, [table], lambda: spark, who="test", wait_seconds=0)
    assert (report.files, report.error) == ((3, 1), None)
    delta.update_incremental()
    assert (delta.count(), sorted(map(str, rows_of(settings, table)))) == (6, before)
    found = pq.ParquetFile(delta.file_uris()[0]).read(columns=["session_start"])["session_start"].to_pylist()
    assert found == [at("2012-12-31"), *(at(f"2013-01-0{day}") for day in range(1, 6))]
    assert pq.ParquetFile(delta.file_uris()[0]).metadata.row_group(0).column(1).physical_type == "INT64"  # INT96 has no statistics
