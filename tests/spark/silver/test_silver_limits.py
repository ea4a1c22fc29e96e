"""The silver job where rows are too many to be held in memory, and where hashes meet: the same tables by other ways."""

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession, functions as F

from spark_jobs.control import matching
from spark_jobs.lake import sinks, sources, tables
from spark_jobs.runtime.settings import Settings
from spark_jobs.silver import batches, id_index, job
from tests.support.lake import GENERATED, run_silver, silver_of
from tests.support.silver_runs import WRITES, Die, fill, places, settings_of
from tests.support.three_batches import FIRST, SECOND, THIRD

pytestmark = pytest.mark.spark


def test_killed_between_every_two_writes_of_many_rows(
    die: Die, home: Settings, all_done: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark sorts and writes them, a batch at a time."""
    for module, name, limit in ((batches, "_MOST_HELD", -1), (batches, "_FEW_BYTES", -1), (batches, "_ROWS_A_PART", 1)):
        monkeypatch.setattr(module, name, limit)
    assert die(lambda point: point.startswith("after ")) == sorted(f"after {what}" for what in WRITES)
    found, expected = silver_of(home), silver_of(all_done)
    assert [len(tables.pop("control.batches")) for tables in (found, expected)] == [6, 4]
    assert found == expected


MANY = {
    "judged by generated code": {"_MOST_INTERPRETED": -1},
    "read by Spark": {"_FEW_BYTES": -1},
    "judged strictly, and sorted by Spark": {"MOST_FEW": 2},
    "of too many bytes for Spark": {"_FEW_BYTES": -1, "_MOST_SENT_BYTES": 10},
    "too many rows": {"_FEW_BYTES": -1, "_MOST_HELD": -1},
    "too many bytes": {"_FEW_BYTES": -1, "_MOST_HELD_BYTES": 10},
    "found by Spark": {"_MOST_BYTES": -1},
    "known by an index in one file": {"_MOST_FILES": 1},
}


@pytest.mark.parametrize("limits", MANY.values(), ids=MANY)
def test_many_rows_are_taken_as_few(
    spark: SparkSession, home: Settings, all_done: Settings, limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not held in memory is left to Spark; the tables are the same."""
    for name, limit in limits.items():
        (module,) = (module for module in (batches, matching, job, id_index) if hasattr(module, name))
        monkeypatch.setattr(module, name, limit)
    with sinks.configured(spark, GENERATED if "_MOST_INTERPRETED" in limits else {}):
        run_silver(spark, home)
    assert silver_of(home) == silver_of(all_done)
    assert changes_of_customers(spark, home) == changes_of_customers(spark, all_done)


def changes_of_customers(spark: SparkSession, settings: Settings) -> list[str]:
    """What the change feed, by which gold goes, says of all batches but the first."""
    delta = DeltaTable(str(tables.SILVER_CUSTOMERS.path(settings)))
    changes = sources.read_changes(spark, settings, tables.SILVER_CUSTOMERS, 1, delta.version())
    rows = changes.select("_change_type", *tables.SILVER_CUSTOMERS.columns).collect()
    assert rows
    return sorted(map(str, rows))


def test_keys_that_share_a_hash_are_told_apart(
    spark: SparkSession, all_done: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them do; and silver takes bronze in parts of one batch."""
    home = settings_of(tmp_path)
    monkeypatch.setattr(id_index, "key_hash", lambda _: F.lit(7).cast("bigint"))
    monkeypatch.setattr(batches, "_ROWS_A_PART", 1)
    fill(home, (1, FIRST), (2, SECOND), (3, THIRD))
    run_silver(spark, home)
    expected, found = silver_of(all_done), silver_of(home)
    assert places(home, tables.TRANSACTION_IDS) == places(home, tables.SILVER_TRANSACTIONS)
    assert {name: rows for name, rows in found.items() if name.startswith("silver.") and name != "silver.transaction_ids"} == {
        name: rows for name, rows in expected.items() if name.startswith("silver.") and name != "silver.transaction_ids"
    }
    assert len(found["control.batches"]) == 6  # two topics, three batches
