"""A small table is read in memory, a large one by Spark: the same rows, also where it is older than today's columns."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.lake import sources
from spark_jobs.lake.table import Table
from spark_jobs.lake.tables import CUSTOMERS_QUARANTINE, REDRIVES
from spark_jobs.reprocessing import reads
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.frames import assert_same

pytestmark = pytest.mark.spark


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    schema = pa.schema(CUSTOMERS_QUARANTINE.delta_schema().to_arrow())
    row = {"key": b"\xff", "value": b"{", "broken_rules": ["parseable"], "detail": None, "_topic": "customers", "_partition": 0}
    rows = pa.Table.from_pylist([row | {"_offset": n, "_batch": 1} for n in range(3)], schema)
    write_deltalake(str(CUSTOMERS_QUARANTINE.path(settings)), rows.drop(["detail"]))
    return settings


@pytest.mark.parametrize(("limit", "most"), [("_MOST_ROWS", 3), ("_MOST_ROWS", 2), ("_MOST_BYTES", 1)])
def test_the_rows_are_the_same(spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, limit: str, most: int) -> None:
    monkeypatch.setattr(reads, limit, most)
    by_spark, read = list[str](), sources.read_table

    def tell(spark: SparkSession, settings: Settings, table: Table) -> DataFrame:
        by_spark.append(table.name)
        return read(spark, settings, table)

    monkeypatch.setattr(sources, "read_table", tell)
    found = reads.read_table(spark, settings, CUSTOMERS_QUARANTINE)
    assert bool(by_spark) == (most < 3)
    assert_same(
        found.select(*CUSTOMERS_QUARANTINE.columns), read(spark, settings, CUSTOMERS_QUARANTINE).select(*CUSTOMERS_QUARANTINE.columns)
    )


def test_of_a_table_that_is_not_there_spark_says_so(spark: SparkSession, settings: Settings) -> None:
    with pytest.raises(AnalysisException, match="redrives"):
        reads.read_table(spark, settings, REDRIVES)
