"""A warehouse for tests of the silver job: bronze batches as ingestion commits them, and what silver holds afterwards."""

import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from spark_jobs import control
from spark_jobs.control import rule_sets, scope
from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.values import to_rows
from spark_jobs.silver import job
from tests.support.frames import at
from tests.support.gold_model import Found
from tests.support.rows import LOADED, Record

GENERATED = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}  # as jobs run; the tests' session is not so
BRONZE = {table.topic: table for table in tables.BRONZE}
LOADED_AT = at(LOADED)
Rows = list[dict[str, Any]]


def arrive(
    settings: Settings, topic: str, batch: int, records: Iterable[Record], label: str | None = None, loaded: datetime | int = LOADED_AT
) -> None:
    """One more bronze batch of a topic (`label` is its `_topic`): its records go to the partitions 0 and 1 by turns.

    `loaded` is their Kafka timestamp; one that Python has no time for as microseconds.
    """
    table = BRONZE[topic]
    tables.ensure_tables(settings, tables.BRONZE)
    label = label or topic
    held = [row for row in rows_of(settings, table) if row["_topic"] == label]
    ends = [sum(row["_partition"] == partition for row in held) for partition in (0, 1)]
    times = {"_timestamp": loaded, "_ingested_at": LOADED_AT, "_ingested_on": LOADED_AT.date()}
    rows = [
        {"key": key, "value": value, "_topic": label, "_partition": n % 2, "_offset": ends[n % 2] + n // 2, "_batch": batch, **times}
        for n, (key, value) in enumerate(records)
    ]
    properties = CommitProperties(custom_metadata={"userMetadata": json.dumps({"batch": batch})})
    arrow = pa.Table.from_pylist(rows, pa.schema(table.delta_schema().to_arrow()))
    write_deltalake(str(table.path(settings)), arrow, mode="append", commit_properties=properties)


def run_silver(spark: SparkSession, settings: Settings, run_id: str = "run") -> list[str]:
    """What `run silver` does, in this session; returns the names of the bronze tables that had something new."""
    tables.ensure_tables(settings, (*tables.BRONZE, *tables.SILVER, *tables.SILVER_INDEXES, *tables.CONTROL))
    rule_sets.register(settings, BRONZE)
    unread = scope.unread_bronze(settings)
    if unread:
        job.run(spark, settings, run_id, unread)
    return [table.name for table in unread]


def rows_of(settings: Settings, table: Table) -> Rows:
    """All rows of a table."""
    return rows_at(table.path(settings))


def rows_at(path: Path) -> Rows:
    """All rows of the table in a folder; none where there is no table."""
    return to_rows(control.query(DeltaTable(str(path)), "select * from t")) if DeltaTable.is_deltatable(str(path)) else []


def silver_of(settings: Settings) -> dict[str, list[str]]:
    """Every silver table and index, and what control.batches says of the runs: as sorted texts, to be compared."""
    found = {table.name: rows_of(settings, table) for table in (*tables.SILVER, *tables.SILVER_INDEXES)}
    found["control.batches"] = [
        {name: value for name, value in row.items() if name != "finished_at"} for row in rows_of(settings, tables.BATCHES)
    ]
    return {name: sorted(str(sorted(row.items())) for row in rows) for name, rows in found.items()}


def operation_of(path: Path, version: int) -> str:
    """The operation that wrote a version of the table at `path`."""
    commit = (path / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    return next(str(json.loads(line)["commitInfo"]["operation"]) for line in commit if "commitInfo" in line)


def version(settings: Settings, table: Table) -> int:
    return DeltaTable(str(table.path(settings))).version()


def gold_of(settings: Settings) -> dict[str, Found]:
    """The rows of gold's tables, each with how often it is there, by table."""
    return {table.name: Counter(tuple(row[name] for name in table.columns) for row in rows_of(settings, table)) for table in tables.GOLD}


def assert_equal(actual: dict[str, Found], expected: dict[str, Found]) -> None:
    """Both have the same rows as often in each table; none of the expected tables is empty."""
    assert actual.keys() == expected.keys()
    for name, rows in expected.items():
        assert rows, name
        different = {"missing": (rows - actual[name]).most_common(3), "extra": (actual[name] - rows).most_common(3)}
        assert different == {"missing": [], "extra": []}, name


def executions(spark: SparkSession) -> int:
    """How many SQL executions the context has had."""
    java: Any = spark._jsparkSession
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    return int(java.sharedState().statusStore().executionsList().last().executionId())
