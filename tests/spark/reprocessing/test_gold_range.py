"""Gold of a large range, made from silver again."""

import random
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.gold import job
from spark_jobs.lake import sinks, tables
from spark_jobs.lake.table import Table
from spark_jobs.reprocessing import gold_range
from spark_jobs.runtime.settings import read_settings
from tests.spark.gold.test_gold_job import silver_rows
from tests.spark.gold.test_gold_near import add
from tests.support.frames import at
from tests.support.lake import gold_of

pytestmark = pytest.mark.spark


def test_the_rows_of_a_large_range_are_not_sent_to_each_task(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the bytes of silver's files they could be; in memory a million filled the heap, because Spark does not count what it sends."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    tables.ensure_tables(settings, (*tables.SILVER, *tables.GOLD, *tables.CONTROL))
    add(settings, silver_rows(random.Random(3), count=150))
    job.run(spark, settings, "run-1")
    before, plans, changes_of = gold_of(settings), dict[str, str](), sinks.changes_of

    def noted(table: Table, present: DataFrame, wanted: DataFrame) -> DataFrame:
        plans[table.name] = sinks.difference(present, wanted, on=table.keys)._jdf.queryExecution().executedPlan().toString()
        return changes_of(table, present, wanted)

    monkeypatch.setattr(sinks, "changes_of", noted)
    files = pa.table(DeltaTable(str(tables.SILVER_TRANSACTIONS.path(settings))).get_add_actions())
    with sinks.configured(spark, {"spark.sql.autoBroadcastJoinThreshold": str(sum(files["size_bytes"].to_pylist()))}):
        pairs = [tables.DEBIT_CREDIT_PAIRS.name]
        changed = gold_range.rebuild_gold(spark, settings, at("2000-01-01"), at("2100-01-01"), pairs, lambda: None, are_few=False)
    assert (changed, list(plans)) == ({}, pairs)
    assert "Join" in plans[pairs[0]]
    assert "Broadcast" not in plans[pairs[0]]
    assert gold_of(settings) == before
    assert before[tables.DEBIT_CREDIT_PAIRS.name]
