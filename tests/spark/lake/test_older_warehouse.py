"""Columns that were added to a table between two runs: the streams that follow it go on, and lose nothing."""

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from pyspark.sql import SparkSession

from spark_jobs.control import rule_sets, scope
from spark_jobs.gold import job as gold
from spark_jobs.lake import tables
from spark_jobs.lake.tables import BRONZE_TRANSACTIONS, DAILY_TOTALS, SILVER_TRANSACTIONS
from spark_jobs.runtime.settings import Settings, read_settings
from spark_jobs.silver import job
from tests.support import lake
from tests.support.rows import message

pytestmark = pytest.mark.spark


@pytest.fixture
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return read_settings({"LEDGER_HOME": str(tmp_path_factory.mktemp("older"))})


def test_silver_follows_a_bronze_table_that_got_a_column(spark: SparkSession, settings: Settings) -> None:
    older = pa.schema([field for field in pa.schema(BRONZE_TRANSACTIONS.delta_schema().to_arrow()) if field.name != "headers"])
    tables.ensure_tables(
        settings, (*(table for table in tables.BRONZE if table != BRONZE_TRANSACTIONS), *tables.SILVER_OWNED, *tables.CONTROL)
    )
    path, (key, value) = str(BRONZE_TRANSACTIONS.path(settings)), message("transactions")
    DeltaTable.create(path, older, partition_by=["_ingested_on"])
    times = {"_timestamp": lake.LOADED_AT, "_ingested_at": lake.LOADED_AT, "_ingested_on": lake.LOADED_AT.date()}
    row = {"key": key, "value": value, "_topic": "transactions", "_partition": 0, "_offset": 0, "_batch": 1, **times}
    commit = CommitProperties(custom_metadata={"userMetadata": '{"batch": 1}'})
    write_deltalake(path, pa.Table.from_pylist([row], older), mode="append", commit_properties=commit)
    rule_sets.register(settings, lake.BRONZE)
    job.run(spark, settings, "before", scope.unread_bronze(settings))
    lake.arrive(settings, "transactions", 2, [message("transactions", transactionId=f"T{n}") for n in (2, 3)])
    assert "headers" in {field.name for field in DeltaTable(path).schema().fields}
    lake.run_silver(spark, settings, "after")
    assert {row["transaction_id"] for row in lake.rows_of(settings, SILVER_TRANSACTIONS)} == {"T1", "T2", "T3"}


def test_gold_follows_a_silver_table_that_got_a_column(spark: SparkSession, settings: Settings) -> None:
    tables.ensure_tables(settings, (*tables.SILVER, *tables.GOLD, *tables.CONTROL))
    add(settings, 1)
    gold.run(spark, settings, "before")
    delta = DeltaTable(str(SILVER_TRANSACTIONS.path(settings)))
    delta.alter.add_columns([Field("_later", PrimitiveType("string"), nullable=True)])
    add(settings, 2)
    gold.run(spark, settings, "after")
    assert [row["transactions"] for row in lake.rows_of(settings, DAILY_TOTALS)] == [2]


def add(settings: Settings, number: int) -> None:
    """A row of silver.transactions, which has all columns that its table has."""
    event_at = datetime(2013, 1, 2, number, tzinfo=UTC)
    row = {"transaction_id": f"T{number}", "account_id": "A00000001", "customer_id": "C00000001", "event_at": event_at, "type": "Debit"}
    row |= {"event_on": event_at.date(), "amount": Decimal(1), "balance": Decimal(1), "_batch": number, "_offset": number}
    row |= {"_topic": "transactions", "_partition": 0}
    path = str(SILVER_TRANSACTIONS.path(settings))
    write_deltalake(path, pa.Table.from_pylist([row], pa.schema(DeltaTable(path).schema().to_arrow())), mode="append")
