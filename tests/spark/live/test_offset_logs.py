"""A source of which commits may be gone is taken again, whole, by the checkpoint that had taken it."""

from collections import Counter
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.lake import sources, tables
from spark_jobs.live import offset_logs
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support import lake
from tests.support.rows import message


def test_a_source_is_taken_again_and_what_comes_later_once(live: SparkSession, tmp_path: Path) -> None:
    settings, checkpoint = read_settings({"LEDGER_HOME": str(tmp_path)}), tmp_path / "checkpoint"
    come(settings, 1, "a")
    come(settings, 2, "b")
    assert taken(live, settings, checkpoint) == {"a": 1, "b": 1}
    come(settings, 3, "c")
    come(settings, 4, "d")
    DeltaTable(str(tables.BRONZE_CUSTOMERS.path(settings))).create_checkpoint()
    log = tables.BRONZE_CUSTOMERS.path(settings) / "_delta_log"
    for file in sorted(log.glob("[0-9]*.json"))[:-1]:  # as upkeep does; that of c, which the query has yet to take, among them
        file.unlink()
    offset_logs.take_again(checkpoint, "bronze_customers", lake.version(settings, tables.BRONZE_CUSTOMERS))
    assert taken(live, settings, checkpoint) == {"a": 1, "b": 1, "c": 1, "d": 1}
    come(settings, 5, "e")
    assert taken(live, settings, checkpoint) == {"e": 1}
    assert taken(live, settings, checkpoint) == {}


def come(settings: Settings, batch: int, name: str) -> None:
    lake.arrive(settings, "customers", batch, [(name.encode(), message("customers")[1])])


def taken(live: SparkSession, settings: Settings, checkpoint: Path) -> Counter[str]:
    """The keys of the rows that the next run of the query brings."""
    found = Counter[str]()

    def take(rows: DataFrame, _: int) -> None:
        found.update(row["key"].decode() for row in rows.select("key").collect())

    if checkpoint.exists():
        offset_logs.record_partitions(checkpoint, "1")
    rows = sources.stream_table(live, settings, tables.BRONZE_CUSTOMERS, name="bronze_customers")
    query = rows.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return found
