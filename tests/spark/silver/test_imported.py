"""History from files beside Kafka's rows: taken by silver, gold, the gates and a release as any other, and accounted for."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from spark_jobs.bronze import additions
from spark_jobs.bronze.imports import job as imports
from spark_jobs.gold import job as gold
from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from spark_jobs.releases import gates, releases
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.lake import arrive, rows_of, run_silver
from tests.support.rows import message

pytestmark = pytest.mark.spark

HISTORY = """transactionId,accountId,customerId,eventTime,type,operation,amount,balance,branch
T1,A00000001,C00000001,1357028613001,Credit,Credit in Cash,900.5,-12.34,x
T2,A00000001,C00000001,2012-12-30 08:00:00,Credit,,10.10,5,x
T3,A00000001,C00000001,1357028613001,Debit,,0.01,5,x
T4,A00000001,C00000001,yesterday,Credit,,1,5,x
T5,A00000001,C00000001,1357028613001,Credit,,1.005,5,x
"""
CUSTOMERS = """customer_id,full_name,city,district_id,birth_date,valid_from
C00000001,Zoë Smith,Old Town,18,1990-12-13,2010-01-01 00:00:00+00
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    tables.ensure_tables(settings, (*tables.BRONZE, *tables.CONTROL))
    return settings


def load(settings: Settings, table: Table, name: str, text: str) -> None:
    file = settings.home / f"{name}.csv"
    file.write_text(text)
    imports.run(settings, table, imports.Source(name, file=file))


def test_history_and_kafka_meet_in_one_account(spark: SparkSession, settings: Settings) -> None:
    arrive(settings, "customers", 1, [message("customers")])
    arrive(settings, "accounts", 1, [message("accounts")])
    arrive(settings, "transactions", 1, [message("transactions"), message("transactions", transactionId="T3")])
    load(settings, tables.BRONZE_TRANSACTIONS, "old", HISTORY)
    load(settings, tables.BRONZE_CUSTOMERS, "people", CUSTOMERS)
    run_silver(spark, settings, "first")
    arrive(settings, "transactions", 3, [message("transactions", transactionId="T2")])
    run_silver(spark, settings, "second")

    first = {row["transaction_id"]: place(row) for row in rows_of(settings, tables.SILVER_TRANSACTIONS)}
    assert first == {"T1": ("transactions", 0, 0), "T2": ("file:old", 0, 1), "T3": ("transactions", 1, 0)}
    duplicates = {place(row): (row["first_topic"], row["is_conflicting"]) for row in rows_of(settings, tables.TRANSACTIONS_DUPLICATES)}
    assert duplicates == {
        ("file:old", 0, 0): ("transactions", False),
        ("file:old", 0, 2): ("transactions", True),
        ("transactions", 0, 1): ("file:old", True),
    }
    refused = {place(row): row["broken_rules"] for row in rows_of(settings, tables.TRANSACTIONS_QUARANTINE)}
    assert refused == {("file:old", 0, 3): ["event_time_plausible"], ("file:old", 0, 4): ["amount_scale"]}
    places = Counter((*first.values(), *duplicates, *refused))
    assert places == Counter(place(row) for row in rows_of(settings, tables.BRONZE_TRANSACTIONS))
    assert [row["city"] for row in sorted(rows_of(settings, tables.SILVER_CUSTOMERS), key=lambda row: row["valid_from"])] == [
        "Old Town",
        "c",
    ]
    assert {row["_batch"] for row in rows_of(settings, tables.BRONZE_TRANSACTIONS)} == {1, 2, 3}

    gates.run(settings, "bronze", "second")
    gates.run(settings, "silver", "second")
    tables.ensure_tables(settings, tables.GOLD)
    gold.run(spark, settings, "second")
    gates.run(settings, "gold", "second")
    assert releases.publish(settings) == 1
    (activity,) = rows_of(settings, tables.CUSTOMER_ACTIVITY)
    assert activity["transactions"] == 3
    named = {row["transaction_id"]: row["customer_city"] for row in rows_of(settings, tables.ENRICHED_TRANSACTIONS)}
    assert named == {"T1": "c", "T2": "Old Town", "T3": "c"}


def test_silver_takes_what_bronze_holds_where_rows_were_removed_and_came_back(spark: SparkSession, settings: Settings) -> None:
    """Not what its commits once brought: the removed rows would be counted twice."""
    arrive(settings, "transactions", 1, [message("transactions", transactionId=f"T{n}") for n in range(4)])
    run_silver(spark, settings)
    arrive(settings, "transactions", 2, [message("transactions", transactionId=f"T{n}") for n in range(4, 8)])
    removed = [row for row in rows_of(settings, tables.BRONZE_TRANSACTIONS) if row["_offset"] in (1, 3)]
    DeltaTable(str(tables.BRONZE_TRANSACTIONS.path(settings))).delete("_offset in (1, 3)")
    with additions.open_spool(settings, tables.BRONZE_TRANSACTIONS) as spool:
        for row in removed:
            spool.add({**row, "_batch": row["_batch"] if row["_batch"] == 1 else None})
        assert additions.append(settings, tables.BRONZE_TRANSACTIONS, spool, "replay") == 3
    run_silver(spark, settings)
    found = {row["transaction_id"]: row["_batch"] for row in rows_of(settings, tables.SILVER_TRANSACTIONS)}
    assert found == {"T0": 1, "T1": 1, "T2": 1, "T3": 1, "T4": 2, "T5": 2, "T6": 3, "T7": 3}
    assert rows_of(settings, tables.TRANSACTIONS_DUPLICATES) == []


def place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["_topic"], row["_partition"], row["_offset"]
