"""A release is reconciled by coordinates, not by counts."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from include.demo.reconciliation import PARTS, read_gates, reconcile
from spark_jobs import control
from spark_jobs.lake.tables import (
    BATCHES,
    BRONZE_CUSTOMERS,
    BRONZE_TRANSACTIONS,
    CUSTOMERS_QUARANTINE,
    LAYERS,
    QUALITY_RESULTS,
    REDRIVES,
    RELEASES,
    SILVER_CUSTOMERS,
    SILVER_TRANSACTIONS,
    TRANSACTIONS_DUPLICATES,
    TRANSACTIONS_QUARANTINE,
    Table,
    ensure_tables,
)
from spark_jobs.releases.releases import newest_release
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings, read_settings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EVERY_TABLE = [table for layer in LAYERS.values() for table in layer]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    ensure_tables(settings, EVERY_TABLE)
    return settings


def put(settings: Settings, table: Table, *offsets: int, batch: int = 1) -> None:
    rows = [{"_topic": "transactions", "_partition": 0, "_offset": offset, "_batch": batch} for offset in offsets]
    delta = DeltaTable(str(table.path(settings)))
    write_deltalake(delta, pa.Table.from_pylist(rows, schema=pa.schema(table.delta_schema().to_arrow())), mode="append")


def release(settings: Settings, last_batch: int = 1, number: int = 1) -> None:
    rows = []
    for table in EVERY_TABLE:
        version = DeltaTable(str(table.path(settings))).version()
        last = last_batch if table.layer == "bronze" else None
        rows.append({"release_id": number, "released_at": NOW, "table": table.name, "version": version, "rows": 0, "last_batch": last})
    control.append(settings, RELEASES, rows)


def spread(settings: Settings, silver: list[int], duplicates: list[int], quarantine: list[int]) -> None:
    for table, offsets in zip(PARTS.values(), (silver, duplicates, quarantine), strict=True):
        put(settings, table, *offsets)


def test_every_record_in_one_place_closes(settings: Settings) -> None:
    put(settings, BRONZE_TRANSACTIONS, 0, 1, 2, 3)
    spread(settings, [0, 1], [2], [3])
    release(settings)
    found = reconcile(settings, newest_release(settings))
    assert str(found) == "bronze 4 = silver 2 + duplicates 1 + quarantine 1"
    assert found.differences == []


def test_batches_after_the_release_do_not_count(settings: Settings) -> None:
    put(settings, BRONZE_TRANSACTIONS, 0)
    put(settings, BRONZE_TRANSACTIONS, 1, batch=2)
    spread(settings, [0], [], [])
    release(settings, last_batch=1)
    assert reconcile(settings, newest_release(settings)).differences == []


@pytest.mark.parametrize(
    ("parts", "difference"),
    [
        (([0, 1], [1], []), "1 records are in more than one place, or twice in one"),
        (([0, 0], [], [1]), "1 records are in more than one place, or twice in one"),
        (([0], [], []), "1 records are in bronze but nowhere after"),
        (([0, 1], [7], []), "1 records are after bronze but not in it"),
    ],
)
def test_sums_that_hide_a_difference_do_not_close(settings: Settings, parts: tuple[list[int], ...], difference: str) -> None:
    put(settings, BRONZE_TRANSACTIONS, 0, 1)
    spread(settings, *parts)
    release(settings)
    assert difference in reconcile(settings, newest_release(settings)).differences


def test_the_account_closes_after_rows_were_driven_again(settings: Settings) -> None:
    """They leave quarantine for silver or the duplicates; control.batches tells what became of them at first."""
    put(settings, BRONZE_TRANSACTIONS, 0, 1, 2)
    put(settings, BRONZE_CUSTOMERS, 0)
    spread(settings, [0], [], [1, 2])
    put(settings, CUSTOMERS_QUARANTINE, 0)
    counts = {"run_id": "r", "job": "silver", "first_batch": 1, "last_batch": 1, "finished_at": NOW}
    customers = counts | {"table": SILVER_CUSTOMERS.name, "input": 1, "output": 0, "quarantined": 1}
    control.append(settings, BATCHES, [customers])
    release(settings)
    assert reconcile(settings, newest_release(settings)).differences == []

    put(settings, SILVER_TRANSACTIONS, 1)
    put(settings, TRANSACTIONS_DUPLICATES, 2)
    put(settings, SILVER_CUSTOMERS, 0)
    for table in (TRANSACTIONS_QUARANTINE, CUSTOMERS_QUARANTINE):
        DeltaTable(str(table.path(settings))).delete()
    control.append(settings, REDRIVES, [{"run_id": "r", "table": SILVER_CUSTOMERS.name, "outcome": "version", "redriven_at": NOW}])
    release(settings, number=2)
    found = reconcile(settings, newest_release(settings))
    assert (str(found), found.differences) == ("bronze 3 = silver 2 + duplicates 1 + quarantine 0", [])


def test_no_release_is_told(settings: Settings) -> None:
    with pytest.raises(LedgerError, match="nothing was released"):
        newest_release(settings)


def verdict(table: str, success: bool, hour: int) -> dict[str, Any]:
    judged_at = datetime(2026, 1, 1, hour, tzinfo=UTC)
    failed = [] if success else ["amount is positive"]
    return {"layer": "silver", "table": table, "suite": table, "success": success, "failed_expectations": failed, "_judged_at": judged_at}


def test_the_newest_verdict_on_each_table_counts(settings: Settings) -> None:
    rows = [verdict("silver.a", False, 1), verdict("silver.a", True, 2), verdict("silver.b", True, 1)]
    control.append(settings, QUALITY_RESULTS, rows)
    assert [(gate.layer, gate.passed, gate.tables) for gate in read_gates(settings)] == [
        ("bronze", False, 0),
        ("silver", True, 2),
        ("gold", False, 0),
    ]


def test_one_closed_table_closes_the_gate(settings: Settings) -> None:
    control.append(settings, QUALITY_RESULTS, [verdict("silver.a", True, 1), verdict("silver.b", False, 1)])
    silver = read_gates(settings)[1]
    assert not silver.passed
    assert silver.failed_expectations == ["silver.b: amount is positive"]
