"""The code that Spark generates for a gold run over thousands of hours compiles: else the log has errors, and rows are interpreted."""

from datetime import timedelta

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession, functions as F

from spark_jobs.gold import inputs
from spark_jobs.gold.changes import Change
from spark_jobs.gold.tables import district_minutes
from spark_jobs.lake import ranges, sinks, sources, tables
from spark_jobs.lake.tables import SILVER_TRANSACTIONS
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.frames import at

pytestmark = pytest.mark.spark

# As jobs run (the session of the tests generates no code), but what does not compile is an error.
STRICT = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "CODEGEN_ONLY", "spark.sql.codegen.fallback": "false"}
ROWS = 2_000


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Silver with a row every 5 hours, and gold without any."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path_factory.mktemp("codegen"))})
    tables.ensure_tables(settings, (*tables.SILVER, *tables.GOLD))
    times = [at("2013-01-01") + timedelta(hours=5 * number) for number in range(ROWS)]
    common = {"account_id": "A00000001", "customer_id": "C00000001", "amount": 1, "balance": 1, "_topic": "t", "_partition": 0, "_batch": 1}
    rows = [
        common | {"transaction_id": f"T{n}", "event_at": time, "event_on": time.date(), "type": ("Credit", "Debit")[n % 2], "_offset": n}
        for n, time in enumerate(times)
    ]
    schema = pa.schema(SILVER_TRANSACTIONS.delta_schema().to_arrow())
    write_deltalake(str(SILVER_TRANSACTIONS.path(settings)), pa.Table.from_pylist(rows, schema), mode="append")
    return settings


def test_what_amends_district_minutes_compiles(spark: SparkSession, lake: Settings) -> None:
    """Its condition names 64 ranges of times, as often as any table's does, and Delta generates code for it to skip files."""
    table = district_minutes.TABLE
    silver = sources.read_table(spark, lake, SILVER_TRANSACTIONS).localCheckpoint()
    hours = silver.agg(F.collect_set(ranges.number("event_at", ranges.HOUR)).alias("hours")).collect()[0]["hours"]
    assert len(hours) == ROWS
    change = Change(silver, silver, is_in_place=False, hours=tuple(hours), is_small=True)
    with sinks.configured(spark, STRICT):
        present, wanted = table.strategy.parts(
            table, change, inputs.open_inputs(spark, lake, inputs.Source(SILVER_TRANSACTIONS), touches_few=False)
        )
        assert sinks.changes_of(table, present, wanted).count() > 0
