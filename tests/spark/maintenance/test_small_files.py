"""Hundreds of small batches, and maintenance in between: few files, whole batches in order, and nobody who reads is disturbed."""

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs import control
from spark_jobs.bronze import additions
from spark_jobs.control import scope
from spark_jobs.lake import compaction, leases, sinks, sources, tables
from spark_jobs.lake.tables import BRONZE_ACCOUNTS, BRONZE_TRANSACTIONS, SILVER_TRANSACTIONS, TRANSACTION_IDS
from spark_jobs.lake.txn import Txn
from spark_jobs.maintenance import job as maintenance, requests, table_maintenance
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.frames import at
from tests.support.lake import operation_of
from tests.support.ledger import await_that

pytestmark = pytest.mark.spark

DAYS = (at("2026-05-01"), at("2026-05-02"))
ROWS = 3  # of a batch


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    tables.ensure_tables(settings, (*tables.BRONZE, *tables.CONTROL))
    return settings


def append(spark: SparkSession, settings: Settings, batch: int, day: Any) -> None:
    """A batch as ingestion writes it, its records from as many partitions of the topic."""
    rows = spark.range(ROWS, numPartitions=ROWS).select(
        F.lit(b"k").alias("key"),
        F.lit(b"{}").alias("value"),
        F.lit(None).cast("array<struct<key:string,value:binary>>").alias("headers"),
        F.lit("transactions").alias("_topic"),
        F.col("id").cast("int").alias("_partition"),
        F.lit(batch - 1).cast("bigint").alias("_offset"),
        F.lit(day).alias("_timestamp"),
        F.lit(batch).cast("bigint").alias("_batch"),
        F.lit(day).alias("_ingested_at"),
        F.lit(day.date()).alias("_ingested_on"),
    )
    additions.append_planned(settings, BRONZE_TRANSACTIONS, rows.toArrow().to_batches(), batch, batch)


def files(settings: Settings) -> list[dict[str, Any]]:
    """Files in the order of their batches."""
    found = pa.table(DeltaTable(str(BRONZE_TRANSACTIONS.path(settings))).get_add_actions(flatten=True)).to_pylist()
    return sorted(found, key=lambda file: (file["partition._ingested_on"], file["min._batch"]))


class Follower:
    """A stream behind bronze, which takes what is new whenever it is run, as silver does."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self.spark = spark
        self.settings = settings
        self.seen: Counter[int] = Counter()
        self.runs: list[list[int]] = []

    def run(self) -> None:
        def take(rows: DataFrame, _: int) -> None:
            found = {row["_batch"]: row["n"] for row in rows.groupBy("_batch").agg(F.count("*").alias("n")).collect()}
            self.seen.update(found)
            self.runs.append(sorted(found))

        stream = sources.stream_table(self.spark, self.settings, BRONZE_TRANSACTIONS).writeStream.foreachBatch(take)
        place = self.settings.checkpoints / "follower"
        stream.option("checkpointLocation", str(place)).trigger(availableNow=True).start().awaitTermination()


def opened(spark: SparkSession, settings: Settings, batch: int) -> int:
    """How many files Spark opens to read one batch."""
    return len(sources.read_table(spark, settings, BRONZE_TRANSACTIONS).where(F.col("_batch") == batch).inputFiles())


def seconds_to_read(spark: SparkSession, settings: Settings) -> float:
    """The best of three."""
    taken = []
    for _ in range(3):
        begun = time.monotonic()
        assert sources.read_table(spark, settings, BRONZE_TRANSACTIONS).agg(F.sum("_offset")).collect()[0][0] > 0
        taken.append(time.monotonic() - begun)
    return min(taken)


@pytest.mark.parametrize(("batches", "every"), [(20, 10), pytest.param(500, 100, marks=pytest.mark.soak)])
def test_files_and_reading_stay_flat_however_many_batches_come(spark: SparkSession, settings: Settings, batches: int, every: int) -> None:
    """The last quarter of the batches falls on another day. A stream follows, sometimes after maintenance and sometimes before it."""
    follower, times, maintenances = Follower(spark, settings), [], []
    for batch in range(1, batches + 1):
        append(spark, settings, batch, DAYS[batch > 3 * batches // 4])
        if batch % every == 0:
            assert len(files(settings)) <= every + 4  # a small batch is one file
            if batch % (2 * every) == 0:
                follower.run()
            table_maintenance.maintain(settings, BRONZE_TRANSACTIONS, lambda: spark, table_maintenance.utc_now())
            maintenances.append((batch, DeltaTable(str(BRONZE_TRANSACTIONS.path(settings))).version()))
            times.append(seconds_to_read(spark, settings))
    follower.run()
    print(f"{batches} batches: {len(files(settings))} files; seconds to read after each maintenance: {[round(each, 2) for each in times]}")

    present = files(settings)
    assert len(present) <= 4
    assert batches < 500 or times[-1] < 2 * times[0] + 0.5, times
    assert [opened(spark, settings, batch) for batch in (1, batches)] == [1, 1]
    ends = [(file["min._batch"], file["max._batch"]) for file in present]
    assert ends[0][0] == 1
    assert [first for first, _ in ends[1:]] == [last + 1 for _, last in ends[:-1]]  # neighbours only: no file reaches into another
    order = ["_batch", "_topic", "_partition", "_offset"]
    for file in present:
        rows = pq.ParquetFile(BRONZE_TRANSACTIONS.path(settings) / file["path"]).read(columns=order).to_pylist()
        assert rows == sorted(rows, key=lambda row: tuple(row[name] for name in order))

    wanted = dict.fromkeys(range(1, batches + 1), ROWS)
    held = control.query(DeltaTable(str(BRONZE_TRANSACTIONS.path(settings))), "select _batch, count(*) as n from t group by _batch")
    assert {row["_batch"]: row["n"] for row in held.to_pylist()} == wanted
    assert follower.seen == wanted
    assert [batch for run in follower.runs for batch in run] == list(wanted)  # whole batches, in order
    delta = DeltaTable(str(BRONZE_TRANSACTIONS.path(settings)))
    for batch, version in maintenances:
        assert operation_of(BRONZE_TRANSACTIONS.path(settings), version) == "OPTIMIZE"
        assert scope.version_upto(delta, batch) == version
        assert scope.version_upto(delta, batch - 1) == version - 2
    assert not scope.is_rewritten(settings, BRONZE_TRANSACTIONS, 1)


def test_the_ingestion_is_asked_and_continues_meanwhile(spark: SparkSession, settings: Settings) -> None:
    """One table of two cannot be joined: the answer says so, the others are tended, and no batch is held up or lost."""
    for batch in range(1, 5):
        append(spark, settings, batch, DAYS[0])
    tables.ensure_tables(settings, [SILVER_TRANSACTIONS])
    schema = sources.read_table(spark, settings, BRONZE_ACCOUNTS).schema
    for offset in (0, 1):
        row = {"_topic": "accounts", "_partition": 0, "_offset": offset, "_batch": offset + 1, "_ingested_on": DAYS[0].date()}
        rows = spark.createDataFrame([tuple(row.get(name) for name in schema.names)], schema)
        sinks.append_batches(rows, settings, BRONZE_ACCOUNTS, Txn(additions.STREAM, offset + 1))
    next(BRONZE_ACCOUNTS.path(settings).glob("*/*.parquet")).unlink()
    ended: list[str] = []

    def ask() -> None:
        try:
            maintenance.run(
                settings, [*tables.BRONZE, SILVER_TRANSACTIONS], lambda: pytest.fail("a session was started"), who="test", wait_seconds=60
            )
        except LedgerError as error:
            ended.append(str(error))

    with leases.hold(settings, tables.BRONZE, owner="bronze"):
        requests.Maintenance(spark, settings, tables.BRONZE).serve()  # nothing is asked for yet
        applications = [requests.Maintenance(spark, settings, [BRONZE_TRANSACTIONS])]
        applications.append(requests.Maintenance(spark, settings, [BRONZE_ACCOUNTS, tables.BRONZE_CUSTOMERS]))
        asker = threading.Thread(target=ask)
        asker.start()
        batch = 4
        while asker.is_alive():
            batch += 1
            append(spark, settings, batch, DAYS[0])
            for application in applications:
                application.serve()
        asker.join()
    (told,) = ended
    assert told.startswith("maintenance of 1 of 4 tables failed: bronze.accounts: maintenance failed: ")
    assert list((settings.checkpoints / "bronze").glob("*maintenance*")) == []
    held = control.query(DeltaTable(str(BRONZE_TRANSACTIONS.path(settings))), "select _batch, count(*) as n from t group by _batch")
    assert {row["_batch"]: row["n"] for row in held.to_pylist()} == dict.fromkeys(range(1, batch + 1), ROWS)
    assert len(files(settings)) <= batch - 3
    assert batch > 5


def test_a_request_stands_until_it_is_answered_or_expires(spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one fails before its commit: the table is as it was, and another request does all of it."""
    for batch in (1, 2, 3):
        append(spark, settings, batch, DAYS[0])
    late = requests.ask(settings, [BRONZE_TRANSACTIONS], "one who died", table_maintenance.utc_now(), wait_seconds=0)
    requests.Maintenance(spark, settings, tables.BRONZE).serve()
    request = requests.ask(settings, [BRONZE_TRANSACTIONS], "test", table_maintenance.utc_now(), wait_seconds=60)
    assert (requests.answers(settings, late), requests.answers(settings, request)) == ({}, {})

    def fail(point: str) -> None:
        if point == "within compacting bronze.transactions":
            raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "kill_point", fail)
        requests.Maintenance(spark, settings, tables.BRONZE).serve()
        await_that(lambda: bool(requests.answers(settings, request)), 60)
    told = requests.answers(settings, request)["bronze.transactions"].error
    assert (told, len(files(settings))) == ("maintenance failed: OSError: no space left", 3)
    request = requests.ask(settings, [BRONZE_TRANSACTIONS], "test", table_maintenance.utc_now(), wait_seconds=60)
    requests.Maintenance(spark, settings, tables.BRONZE).serve()  # as the next application does
    await_that(lambda: bool(requests.answers(settings, request)), 60)
    report = requests.answers(settings, request)["bronze.transactions"]
    assert (report.files, report.joined, report.error) == ((3, 1), 3, None)
    version = DeltaTable(str(BRONZE_TRANSACTIONS.path(settings))).version()
    requests.Maintenance(spark, settings, tables.BRONZE).serve()  # it is answered
    requests.withdraw(settings, request)
    (settings.checkpoints / "bronze" / "maintenance.json").write_text("{")
    requests.Maintenance(spark, settings, tables.BRONZE).serve()
    assert DeltaTable(str(BRONZE_TRANSACTIONS.path(settings))).version() == version


def test_a_change_feed_says_nothing_of_maintenance(spark: SparkSession, settings: Settings) -> None:
    """Also not to gold, when it goes on right behind what it took last; the index of ids, which has no order, is joined as well."""
    wanted = (SILVER_TRANSACTIONS, TRANSACTION_IDS)
    tables.ensure_tables(settings, wanted)

    def add(batch: int) -> None:
        for table in wanted:
            schema = sources.read_table(spark, settings, table).withColumn("_batch", F.lit(1).cast("bigint")).schema
            values = {"transaction_id": f"T{batch}", "id_hash": batch, "_batch": batch}
            rows = spark.createDataFrame([tuple(values.get(name) for name in schema.names)], schema)
            sinks.append_batches(rows, settings, table, Txn("silver", batch))

    def changes(after: int) -> list[tuple[str, str, int]]:
        head = DeltaTable(str(SILVER_TRANSACTIONS.path(settings))).version()
        rows = sources.read_changes(spark, settings, SILVER_TRANSACTIONS, after, head)
        return sorted(map(tuple, rows.select("transaction_id", "_change_type", "_commit_version").collect()))

    for batch in (1, 2, 3):
        add(batch)
    reports = maintenance.run(settings, wanted, lambda: spark, who="test", wait_seconds=0)
    assert [report.files for report in reports] == [(3, 1), (3, 1)]
    assert operation_of(SILVER_TRANSACTIONS.path(settings), 4) == "OPTIMIZE"
    assert changes(after=3) == []
    add(4)
    assert changes(after=2) == [("T3", "insert", 3), ("T4", "insert", 5)]
