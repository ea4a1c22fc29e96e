"""Few changes of a large table are merged in memory where the files that they touch are small, also where rows of these are marked."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from spark_jobs.lake import few_rows, sinks, tables
from spark_jobs.lake.tables import ACCOUNT_DAYS, Table
from spark_jobs.lake.txn import Txn
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support import lake

pytestmark = pytest.mark.spark

FIRST, DAYS = date(1969, 12, 1), 20


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Three files of twenty days each, around the epoch; a merge may write as much again as one of them has."""
    made = read_settings({"LEDGER_HOME": str(tmp_path)})
    tables.ensure_tables(made, [ACCOUNT_DAYS])
    for number in range(3):
        write_deltalake(str(ACCOUNT_DAYS.path(made)), rows(*range(DAYS * number, DAYS * (number + 1))), mode="append")
    sizes = pa.table(ACCOUNT_DAYS.open(made).get_add_actions())["size_bytes"].to_pylist()
    assert len(sizes) == 3
    monkeypatch.setattr(few_rows, "MOST_BYTES", max(sizes))
    return made


def rows(*days: int, count: int = 1) -> pa.Table:
    """A row of an account for each of these days after the first."""
    schema = pa.schema(ACCOUNT_DAYS.delta_schema().to_arrow())
    common: dict[str, Any] = {
        field.name: 0 if pa.types.is_decimal(field.type) or pa.types.is_integer(field.type) else None for field in schema
    }
    found = [common | {"account_id": "A00000001", "day": FIRST + timedelta(days=day), "transactions": count} for day in days]
    return pa.Table.from_pylist(found, schema)


@pytest.mark.parametrize(
    ("days", "touches_few"),
    [
        *[((0,), True), ((DAYS - 1, 5), True), ((DAYS, 2 * DAYS - 1), True), ((3 * DAYS,), True), ((), True)],
        *[((0, DAYS), False), ((0, 3 * DAYS - 1), False), ((DAYS - 1, DAYS), False)],
    ],
)
def test_the_files_around_the_changed_times_count(settings: Settings, days: tuple[int, ...], touches_few: bool) -> None:
    assert few_rows.touch_few_bytes(rows(*days), settings, ACCOUNT_DAYS) == touches_few
    assert not few_rows.has_few_bytes(settings, ACCOUNT_DAYS)


@pytest.mark.parametrize("table", [ACCOUNT_DAYS, tables.SILVER_ACCOUNTS], ids=lambda table: table.name)
def test_a_table_without_files_has_few_bytes(tmp_path: Path, table: Table) -> None:
    empty = read_settings({"LEDGER_HOME": str(tmp_path)})
    tables.ensure_tables(empty, [table])
    few = pa.schema(table.delta_schema().to_arrow()).empty_table()
    assert few_rows.touch_few_bytes(few, empty, table)
    assert few_rows.touch_few_bytes(rows(1) if table == ACCOUNT_DAYS else few, empty, table)


def test_rows_that_are_marked_as_removed_stay_removed(spark: SparkSession, settings: Settings) -> None:
    sinks.mark_removed_rows(spark, settings, [ACCOUNT_DAYS])
    path = str(ACCOUNT_DAYS.path(settings))
    gone, changed, new = (FIRST + timedelta(days=day) for day in (DAYS + 1, DAYS + 2, DAYS + 3))
    spark.sql(f"delete from delta.`{path}` where day in (date'{gone}', date'{new}')")
    few = rows(DAYS + 2, DAYS + 3, count=7)
    assert few_rows.touch_few_bytes(few, settings, ACCOUNT_DAYS)
    few_rows.merge(
        few.append_column("_is_gone", pa.array([False, False])), settings, ACCOUNT_DAYS, Txn("test", 1), deletes_where="s._is_gone"
    )
    assert lake.operation_of(ACCOUNT_DAYS.path(settings), DeltaTable(path).version()) == "MERGE"
    found = {row["day"]: row["transactions"] for row in lake.rows_of(settings, ACCOUNT_DAYS)}
    assert (len(found), gone in found, found[changed], found[new]) == (3 * DAYS - 1, False, 7, 7)
    spark.catalog.refreshByPath(path)
    assert {row.day: row.transactions for row in spark.read.format("delta").load(path).collect()} == found
