"""Few rows without Spark: merged where the files that they touch are small, also where rows of these are marked; the change feed."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from spark_jobs.lake import few_rows, sinks, sources, tables
from spark_jobs.lake.tables import ACCOUNT_DAYS, SILVER_CUSTOMERS, Table
from spark_jobs.lake.txn import Txn
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support import lake
from tests.support.frames import assert_same
from tests.support.warehouse import at, version_of

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


def customers(city: str, *ids: str) -> pa.Table:
    """A version of each of these customers."""
    found = [version_of({"customer_id": each, "city": city}, at(0, place, 1, "customers")) for place, each in enumerate(ids)]
    schema = pa.schema(SILVER_CUSTOMERS.delta_schema().to_arrow())
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in found], schema)


def test_a_change_feed_in_memory_is_that_of_spark_whatever_was_done(spark: SparkSession, tmp_path: Path) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    tables.ensure_tables(settings, [SILVER_CUSTOMERS])
    path, on = str(SILVER_CUSTOMERS.path(settings)), "t.customer_id = s.customer_id"
    write_deltalake(path, customers("Ely", "a", "b", "c"), mode="append")
    spark.createDataFrame(customers("Rye", "d", "e")).write.format("delta").mode("append").save(path)
    merge = SparkTable.forPath(spark, path).alias("t").merge(spark.createDataFrame(customers("York", "a", "x")).alias("s"), on)
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    DeltaTable(path).merge(customers("Bath", "b", "y"), on, "s", "t").when_matched_update_all().when_not_matched_insert_all().execute()
    SparkTable.forPath(spark, path).optimize().executeCompaction()
    few_rows.note_applied(settings, SILVER_CUSTOMERS, Txn("test", 1))
    DeltaTable(path).delete("customer_id = 'c'")
    spark.sql(f"delete from delta.`{path}` where customer_id = 'd'")
    DeltaTable(path).restore(2)
    write_deltalake(path, customers("Hull", "only"), mode="overwrite")
    head = DeltaTable(path).version()
    for after, upto in [(0, head), *((version - 1, version) for version in range(1, head + 1))]:
        expected = sources.read_changes(spark, settings, SILVER_CUSTOMERS, after, upto).drop("_commit_timestamp")
        found = few_rows.changes(settings, SILVER_CUSTOMERS, after, upto, most=100)
        assert found is not None
        assert_same(spark.createDataFrame(found), expected)
    assert few_rows.changes(settings, SILVER_CUSTOMERS, 0, head, most=5) is None
    assert few_rows.changes(settings, SILVER_CUSTOMERS, head, head + 1, most=100) is None, "Spark says why"


def test_of_a_table_whose_rows_are_marked_spark_reads_the_change_feed(spark: SparkSession, settings: Settings) -> None:
    assert few_rows.changes(settings, ACCOUNT_DAYS, 0, 0, most=100) is None, "it has none"
    sinks.mark_removed_rows(spark, settings, [ACCOUNT_DAYS])
    assert few_rows.changes(settings, ACCOUNT_DAYS, 0, ACCOUNT_DAYS.open(settings).version(), most=100) is None


def test_the_span_of_a_table_holds_all_its_days(settings: Settings, tmp_path: Path) -> None:
    assert few_rows.span(settings, ACCOUNT_DAYS) == (FIRST, FIRST + timedelta(days=3 * DAYS - 1))
    empty = read_settings({"LEDGER_HOME": str(tmp_path / "empty")})
    tables.ensure_tables(empty, [ACCOUNT_DAYS])
    assert few_rows.span(empty, ACCOUNT_DAYS) == (date.max, date.min)
