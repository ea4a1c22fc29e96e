"""A topic that was deleted and made anew: its offsets come once more, under another `_topic`, and silver mixes nothing up."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.control import corrections
from spark_jobs.lake import tables
from spark_jobs.releases import gates
from spark_jobs.reprocessing import redrive, redrive_plan
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.lake import arrive, rows_of, run_silver
from tests.support.rows import message, written

pytestmark = pytest.mark.spark

Place = tuple[str, int, int]


ONE, TWO = "transactions", "transactions#2"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"LEDGER_HOME": str(tmp_path)})


def arrive_twice(spark: SparkSession, settings: Settings) -> None:
    """A run of silver over each life; their records have the same partitions and offsets."""

    def sent(*ids: str) -> list[tuple[bytes | None, bytes | None]]:
        return [written(ONE, "amount", "1.005") if id_ == "bad" else message(ONE, transactionId=id_) for id_ in ids]

    arrive(settings, "transactions", 1, sent("T1", "T2", "bad"))
    run_silver(spark, settings, "first")
    arrive(settings, "transactions", 2, sent("T3", "T1", "bad", "T3"), label=TWO)
    run_silver(spark, settings, "second")


def test_offsets_of_two_lives_are_different_records(spark: SparkSession, settings: Settings) -> None:
    arrive_twice(spark, settings)
    assert places(settings, tables.SILVER_TRANSACTIONS) == {(ONE, 0, 0): "T1", (ONE, 1, 0): "T2", (TWO, 0, 0): "T3"}
    duplicates = {place(row): (row["first_topic"], row["first_offset"]) for row in rows_of(settings, tables.TRANSACTIONS_DUPLICATES)}
    assert duplicates == {(TWO, 1, 0): (ONE, 0), (TWO, 1, 1): (TWO, 0)}
    assert set(map(place, rows_of(settings, tables.TRANSACTIONS_QUARANTINE))) == {(ONE, 0, 1), (TWO, 0, 1)}
    gates.run(settings, "bronze", "second")


@pytest.mark.soak
def test_a_correction_is_of_one_life(spark: SparkSession, settings: Settings) -> None:
    arrive_twice(spark, settings)
    file = settings.home / "corrections.jsonl"
    value = (message(ONE, transactionId="T9")[1] or b"").decode()
    file.write_text(json.dumps({"topic": TWO, "partition": 0, "offset": 1, "value": value, "who": "Ada", "why": "typed wrong"}))
    plan = redrive_plan.plan(settings, "amount_scale", "silver.transactions", file, corrections.read_file(file))
    redrive.run(spark, settings, plan, "third")
    assert places(settings, tables.SILVER_TRANSACTIONS)[TWO, 0, 1] == "T9"
    assert list(map(place, rows_of(settings, tables.TRANSACTIONS_QUARANTINE))) == [(ONE, 0, 1)]


def places(settings: Settings, table: tables.Table) -> dict[Place, str]:
    return {place(row): row["transaction_id"] for row in rows_of(settings, table)}


def place(row: dict[str, Any]) -> Place:
    return row["_topic"], row["_partition"], row["_offset"]
