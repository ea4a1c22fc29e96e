"""Rows that Spark marks as removed (deletion vectors) are removed for DuckDB and in Spark's views, in each release as it was."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession, functions as F

from include.reader import open_catalogue, open_release
from spark_jobs.lake import tables
from spark_jobs.lake.layout import SMALL_PAGES
from spark_jobs.lake.tables import ENRICHED_TRANSACTIONS, LARGE_CREDITS, Table
from spark_jobs.releases import catalogues, views
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.catalogues import assert_same_rows
from tests.support.publishing import released_on
from tests.support.warehouse import good_rows, write

pytestmark = pytest.mark.spark
NOW = datetime.now(UTC)
ROWS = 6_000
LARGE = (ENRICHED_TRANSACTIONS, LARGE_CREDITS)
PARTS = (  # what a reader skips files, row groups and pages by
    "transaction_id = 'T00777'",
    "event_at >= timestamp '2013-01-02 20:00:00' and event_at < timestamp '2013-01-03 01:00:00'",
    "amount > 1000 and customer_id <> 'C00000001'",
)


def grow(spark: SparkSession, settings: Settings, table: Table) -> None:
    """Many rows, a second apart, in files of several row groups and many pages."""
    path = str(table.path(settings))
    number = F.col("id")
    rows = (
        spark.read.format("delta")
        .load(path)
        .limit(1)
        .crossJoin(spark.range(ROWS))
        .withColumn("transaction_id", F.format_string("T%05d", number))
        .withColumn("event_at", F.col("event_at") + F.make_dt_interval(secs=number * 15))
        .withColumn("amount", (number / 4).cast("decimal(18,2)"))
        .withColumn("customer_id", F.format_string("C%08d", number % 7))
        .drop("id")
    )
    rows.coalesce(1).write.format("delta").mode("append").option("parquet.block.size", 32768).options(**SMALL_PAGES).save(path)


def vectors(settings: Settings, table: Table, version: int) -> int:
    """How many deletion vectors the commit of a version wrote."""
    log = (table.path(settings) / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    return sum('"deletionVector"' in json.dumps(line.get("add", {})) for line in map(json.loads, log))


def test_removed_rows_are_removed_in_each_release(spark: SparkSession, tmp_path: Path) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path / "it's a home")})
    write(settings, good_rows())
    tables.ensure_tables(settings, tables.EVERY)
    released_on(settings, NOW - timedelta(hours=3))
    for table in LARGE:
        path = f"delta.`{table.path(settings)}`"
        spark.sql(f"alter table {path} set tblproperties ('delta.enableDeletionVectors' = 'true')")  # as the gold job does
        grow(spark, settings, table)
        spark.sql(f"delete from {path} where cast(substr(transaction_id, 2) as int) % 3 = 1")
        assert vectors(settings, table, table.open(settings).version())
    released_on(settings, NOW - timedelta(hours=2), first=2)
    for table in LARGE:
        path = f"delta.`{table.path(settings)}`"
        spark.sql(
            f"merge into {path} t using (select * from range(0, {ROWS}, 5)) s on t.transaction_id = format_string('T%05d', s.id) "
            "when matched and s.id % 2 = 0 then delete when matched then update set amount = t.amount + 0.01"
        )
        assert vectors(settings, table, table.open(settings).version())
    released_on(settings, NOW, first=3)
    catalogues.bring_up_to_date(settings)

    found = {number: assert_same_rows(settings, number)["gold.enriched_transactions"] for number in (1, 2, 3)}
    assert found == {1: 4, 2: 2 + 4_000, 3: 2 + 3_600}
    assert_same_parts(settings, 2)
    assert_same_parts(settings, 3)
    assert_same_in_spark(spark, settings, 2)


def assert_same_parts(settings: Settings, number: int) -> None:
    """The same rows, where only some of a table are asked for."""
    reader = open_release(settings, number)
    with open_catalogue(settings, number) as connection:
        for table in LARGE:
            for part in PARTS:
                query = f"select count(*) as n, sum(amount) as amount, min(transaction_id) as first from {table.name} where {part}"
                expected = [tuple(row.values()) for row in reader.sql(query.replace("00'", "00Z'")).to_pylist()]
                assert connection.execute(query.replace("timestamp '", "timestamptz '")).fetchall() == expected, query
                assert expected[0][0] > 0 or "00777" in part


def assert_same_in_spark(spark: SparkSession, settings: Settings, number: int) -> None:
    """Spark takes the script, and its views have as many rows as the reader sees."""
    reader = open_release(settings, number)
    chosen = [*(table.name for table in LARGE), "bronze.transactions", "silver.customers"]
    views_of = {name: f" view {'.'.join(f'`{part}`' for part in name.split('.'))} " for name in (*chosen, "control.releases")}
    *statements, end = views.in_spark(settings, reader.release).split(";\n")
    assert (len(statements), end) == (4 + len(reader.tables) + len(views.readable_control(settings)), "")
    try:
        for statement in statements:  # of the views those that are looked at: Spark takes its time for each
            if " view " not in statement or any(view in statement for view in views_of.values()):
                spark.sql(statement)
        for name in chosen:
            expected = reader.sql(f"select count(*) as n from {name}")["n"][0].as_py()
            assert spark.sql(f"select * from {name}").count() == expected, name
        assert spark.sql("select * from control.releases").count() == DeltaTable(str(tables.RELEASES.path(settings))).count()
    finally:
        for layer in ("bronze", "silver", "gold", "control"):
            spark.sql(f"drop database if exists {layer} cascade")
