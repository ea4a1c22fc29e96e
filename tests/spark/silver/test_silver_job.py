"""The silver job whole: killed at every point, with a history behind it, without its index, after a roll-back."""

import shutil
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession, functions as F

from expectations.row_rules import Rule, read_rules
from spark_jobs import control, run
from spark_jobs.control import rule_sets, scope
from spark_jobs.lake import tables
from spark_jobs.lake.txn import applied
from spark_jobs.maintenance import job as maintenance
from spark_jobs.runtime.settings import Settings
from spark_jobs.silver import id_index
from tests.support.lake import LOADED_AT, arrive, executions, rows_of, run_silver, silver_of
from tests.support.silver_runs import WRITES, Die, copied, fill, places, settings_of
from tests.support.three_batches import BAD, SECOND, THIRD, Batches, customer, transaction

pytestmark = pytest.mark.spark


def test_killed_between_every_two_writes(die: Die, home: Settings, all_done: Settings) -> None:
    """After each of them: until the next one begins, nothing on disk changes."""
    assert die(lambda point: point.startswith("after ")) == sorted(f"after {what}" for what in WRITES)
    assert silver_of(home) == silver_of(all_done)


def test_maintenance_between_two_runs_changes_nothing(spark: SparkSession, home: Settings, all_done: Settings) -> None:
    """Bronze's batches are joined into files that hold some which silver has taken and some which it has not."""
    tended = (*tables.BRONZE, *tables.SILVER_OWNED)
    reports = maintenance.run(home, tended, lambda: spark, who="test", wait_seconds=0)
    assert {report.table: report.files for report in reports if report.joined} == {
        "bronze.transactions": (3, 1),
        "bronze.customers": (3, 1),
    }
    run_silver(spark, home)
    assert silver_of(home) == silver_of(all_done)


@pytest.mark.soak
def test_killed_at_every_point(die: Die, home: Settings, all_done: Settings) -> None:
    assert die(lambda _: True) == sorted(f"{when} {what}" for what in WRITES for when in ("before", "after"))
    assert silver_of(home) == silver_of(all_done)


def test_killed_while_bronze_grows(spark: SparkSession, die: Die, home: Settings, tmp_path: Path) -> None:
    """A batch that was cut short is repeated together with newer ones: silver does not depend on where its runs cut bronze."""
    late: list[Batches] = [
        {
            "transactions": [transaction("T1", 1), transaction(f"N{n}", n), transaction("T8", 2), BAD],
            "customers": [customer(1, n, city="g")],
        }
        for n in range(3)
    ]
    points = {f"after {table.name}" for table in (tables.SILVER_TRANSACTIONS, tables.CUSTOMERS_QUARANTINE, tables.SILVER_CUSTOMERS)}
    died: set[str] = set()
    one_at_a_time = threading.Lock()

    def dies_while_bronze_grows(point: str) -> bool:
        with one_at_a_time:  # the topics are taken side by side
            if point in points and point not in died:
                died.add(point)
                fill(home, (100 - len(late), late.pop()))
            return point in died

    assert die(dies_while_bronze_grows) == sorted(points)
    at_once = settings_of(tmp_path / "at once")
    for table in tables.BRONZE:
        shutil.copytree(table.path(home), table.path(at_once))
    run_silver(spark, at_once)
    found, expected = ({name: rows for name, rows in silver_of(each).items() if name != "control.batches"} for each in (home, at_once))
    assert found == expected


def test_a_restored_warehouse_takes_again_what_it_lost(
    spark: SparkSession, first_done: Settings, all_done: Settings, tmp_path: Path
) -> None:
    """The tables are those of an earlier day, and the checkpoints of today; then bronze has come as far as before, otherwise cut."""
    home = copied(all_done, tmp_path / "home")
    shutil.rmtree(home.warehouse)
    shutil.copytree(first_done.warehouse, home.warehouse)
    for table in tables.BRONZE:  # of the moment before the two later batches came
        delta = DeltaTable(str(table.path(home)))
        for version in range(2, delta.version() + 1):
            for file in (table.path(home) / "_delta_log").glob(f"*{version:020}*"):
                file.unlink()
    assert run_silver(spark, home) == []
    fill(home, (2, SECOND))
    fill(home, (3, THIRD))
    assert run_silver(spark, home) == ["bronze.transactions", "bronze.customers"]
    assert silver_of(home) == silver_of(all_done)


FOURTH = [transaction("T5", 5), transaction("T9", 8, amount=2), transaction("shares a hash"), transaction("T6", 20)]


def plant_entry(spark: SparkSession, settings: Settings, id_: str, at: dict[str, Any]) -> None:
    """Put an entry for an id into the index that leads to the row of another one, as if their hashes were the same."""
    number = spark.range(1).select(F.xxhash64(F.lit(id_))).collect()[0][0]
    put(settings, tables.TRANSACTION_IDS, {"id_hash": number, "_partition": at["_partition"], "_offset": at["_offset"]})


def put(settings: Settings, table: tables.Table, row: dict[str, Any]) -> None:
    write_deltalake(str(table.path(settings)), pa.Table.from_pylist([row], pa.schema(table.delta_schema().to_arrow())), mode="append")


def assert_fourth_is_in(settings: Settings, late: set[str]) -> None:
    duplicates = [row for row in rows_of(settings, tables.TRANSACTIONS_DUPLICATES) if row["_batch"] == 4]
    names = ("transaction_id", "is_conflicting", "first_partition", "first_offset")
    assert sorted(tuple(row[name] for name in names) for row in duplicates) == [("T5", False, 1, 2), ("T9", True, 0, 8)]
    assert {row["transaction_id"] for row in rows_of(settings, tables.SILVER_TRANSACTIONS) if row["_batch"] == 4} == {"shares a hash", "T6"}
    assert places(settings, tables.TRANSACTION_IDS) == places(settings, tables.SILVER_TRANSACTIONS)
    assert {row["transaction_id"] for row in rows_of(settings, tables.TRANSACTIONS_LATE) if row["_batch"] == 4} == late


def test_duplicates_of_history_are_found_by_the_index_and_told_by_their_ids(
    spark: SparkSession, all_done: Settings, tmp_path: Path
) -> None:
    home = copied(all_done, tmp_path / "home")
    plant_entry(spark, home, "shares a hash", at=rows_of(home, tables.SILVER_TRANSACTIONS)[0])
    arrive(home, "transactions", 4, FOURTH)
    before = executions(spark)
    run_silver(spark, home)
    assert_fourth_is_in(home, late={"shares a hash"})
    assert executions(spark) - before <= 3, "judge, compare with the known rows, list the late ones"


def test_new_rows_of_which_none_is_valid_or_none_is_new(spark: SparkSession, all_done: Settings, tmp_path: Path) -> None:
    home = copied(all_done, tmp_path / "home")
    topics = ("transactions", "customers", "accounts")
    for topic in topics:
        arrive(home, topic, 4, [(b"nobody", b"{")])
    before = silver_of(home)
    run_silver(spark, home)
    after = silver_of(home)
    grown = [name for name, rows in after.items() if len(rows) != len(before[name])]
    assert sorted(grown) == ["control.batches", *(f"silver.{topic}_quarantine" for topic in sorted(topics))]
    arrive(home, "transactions", 5, [transaction("T5", 5)])  # known, and behind the watermark
    run_silver(spark, home)
    last = silver_of(home)
    assert [name for name, rows in last.items() if len(rows) != len(after[name])] == ["silver.transactions_duplicates", "control.batches"]


def test_an_index_that_is_gone_is_rebuilt_and_a_new_generation_starts_where_silver_stands(
    spark: SparkSession, all_done: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more rows found than fit into memory, and a row among the earlier ones that a re-drive has put there."""
    home = copied(all_done, tmp_path / "home")
    shutil.rmtree(tables.TRANSACTION_IDS.path(home))
    monkeypatch.setattr(id_index, "_few_rows_at", lambda *_: None)
    control.append(home, tables.DECISIONS, [{"decided_at": LOADED_AT, "choice": "roll back", "generation": 2}])
    control.append(home, tables.REDRIVES, [{"table": "silver.transactions", "_newest_event_at": LOADED_AT}])
    arrive(home, "transactions", 4, FOURTH)
    run_silver(spark, home)
    assert_fourth_is_in(home, late={"shares a hash", "T6"})
    assert [control.last_batch(home, "silver", "silver.transactions"), applied(home, tables.SILVER_TRANSACTIONS, "silver/2")] == [
        4,
        4,
    ]


def test_earlier_messages_are_not_judged_again(
    spark: SparkSession, all_done: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by a rule set of today; and one that a re-drive let pass counts with the correction that it passed with."""
    home, present = copied(all_done, tmp_path / "home"), read_rules("customers")
    strict = Rule("city_is_not_c", "city", "is_deletion or city.text <> 'c'", "A rule of today.")
    monkeypatch.setattr(rule_sets, "present", lambda _, topic: replace(present, version="2", rules=(*present.rules, strict)))
    redriven = {"_topic": "customers", "_partition": 0, "_offset": 1, "_batch": 1}
    DeltaTable(str(tables.CUSTOMERS_QUARANTINE.path(home))).delete("_batch = 1")
    values = (customer(3, 0, customerId="x", city="corrected"), customer(3, 0, customerId="x", city="not driven yet"))
    for minutes, (_, value) in zip((0, 2), values, strict=True):
        at = LOADED_AT + timedelta(minutes=minutes)
        control.append(home, tables.CORRECTIONS, [redriven | {"value": value, "who": "w", "why": "y", "corrected_at": at}])
    told = {"table": "silver.customers", "outcome": "version", "is_corrected": True, "redriven_at": LOADED_AT + timedelta(minutes=1)}
    control.append(home, tables.REDRIVES, [redriven | told])
    arrive(home, "customers", 4, [customer(1, 9, city="f"), (b"x", customer(3, 9, customerId="x", city="f")[1]), customer(2, 9)])
    before = executions(spark)
    run_silver(spark, home)
    assert executions(spark) - before <= 3, "judge, compare the messages of each key, compare the histories"
    found = sorted((row["customer_id"], row["valid_from"], row["city"]) for row in rows_of(home, tables.SILVER_CUSTOMERS))
    assert [(key, city) for key, _, city in found if key != "C00000002"] == [
        ("C00000001", "c"),
        ("C00000001", "d"),
        ("C00000001", "f"),
        ("x", "corrected"),
        ("x", "f"),
    ]
    assert [row["broken_rules"] for row in rows_of(home, tables.CUSTOMERS_QUARANTINE) if row["_batch"] == 4] == [["city_is_not_c"]]


def test_nothing_new_starts_no_session(all_done: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = copied(all_done, tmp_path / "home")
    before = silver_of(home)
    monkeypatch.setenv("LEDGER_HOME", str(home.home))
    monkeypatch.setattr("spark_jobs.runtime.session.start_session", lambda *_, **__: pytest.fail("a session was started"))
    assert run.main(["silver"]) == 0
    assert silver_of(home) == before
    arrive(home, "customers", 4, [customer(1, 9)])
    assert [table.name for table in scope.unread_bronze(home)] == ["bronze.customers"]


def test_a_stream_without_checkpoint_starts_behind_what_was_processed(all_done: Settings) -> None:
    after = [scope.version_after(all_done, tables.BRONZE_TRANSACTIONS, batch) for batch in (0, 1, 2, 3)]
    assert after == [None, 2, 3, None]
    committed = DeltaTable(str(tables.BRONZE_TRANSACTIONS.path(all_done))).history(2)[-1]["timestamp"]  # of version 2, behind batch 2
    since = [datetime.fromtimestamp(committed / 1000 + seconds, UTC) for seconds in (-1, 1)]
    assert [scope.version_after(all_done, tables.BRONZE_TRANSACTIONS, 2, each) for each in since] == [3, None]
