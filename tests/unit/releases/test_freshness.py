"""A run without new rows is skipped, not green; no new rows for too long is a failed expectation, told once in as long a time."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from include.orchestration import progress
from spark_jobs import control
from spark_jobs.lake.tables import BRONZE, LAYERS, QUALITY_RESULTS, RELEASES, Table
from spark_jobs.releases import gates
from spark_jobs.runtime.settings import Settings
from tests.support.warehouse import LOADED, at, bronze, run_of, write
from tests.unit.releases.test_gates import run_gate

pytestmark = pytest.mark.xdist_group("expectations")
Copy = Callable[[], Settings]

DAY = 24 * 60  # minutes
STALE = "seconds_past_freshness (warning)"


def at_minute(number: int) -> datetime:
    return LOADED + timedelta(minutes=number)


def recorded(settings: Settings) -> list[tuple[str, bool, int, list[str]]]:
    rows = control.read(settings, QUALITY_RESULTS).sort_by("_judged_at").to_pylist()
    return [
        (row["run_id"], row["success"], row["evaluated"], row["failed_expectations"])
        for row in rows
        if row["table"] == "bronze.transactions"
    ]


def test_nothing_new_is_skipped_and_recorded_as_stale_only_when_the_limit_is_over(copy_home: Copy) -> None:
    settings = copy_home()
    run_gate(settings, "bronze")
    assert run_gate(settings, "bronze", DAY)["verdict"] == "skipped"
    assert recorded(settings) == [("run-1", True, 9, [])]

    verdict = run_gate(settings, "bronze", DAY + 1)
    assert verdict["verdict"] == "skipped"
    (warning,) = verdict["warnings"]
    first = "first: the newest, transactions/1/0, is of 2026-01-01T00:00:00Z"
    assert warning == f"bronze.transactions seconds_past_freshness (warning): found 60; {first}, expected at most 0"
    judged = {name: table["judged"] for name, table in verdict["tables"].items()}
    assert judged == {"bronze.transactions": True, "bronze.customers": False, "bronze.accounts": False}
    assert recorded(settings)[1:] == [(f"run-{DAY + 1}", True, 1, [STALE])]
    gates.refuse_if_closed(settings, "bronze")  # rows that end the silence must get in


def test_after_a_stale_verdict_new_rows_are_judged_from_where_the_last_stood(copy_home: Copy) -> None:
    settings = copy_home()
    run_gate(settings, "bronze")
    run_gate(settings, "bronze", 3 * DAY)
    new = bronze(at(1, 1, 3), b"T5", b"{}") | {"_timestamp": at_minute(3 * DAY), "_ingested_at": at_minute(3 * DAY)}
    write(settings, {"bronze.transactions": [new]})
    write(settings, {"control.batches": [run_of("silver", "silver.transactions", 3, 3, input=1, output=1)]})
    verdict = run_gate(settings, "bronze", 3 * DAY + 1)
    assert (verdict["verdict"], verdict["warnings"]) == ("passed", [])
    table = verdict["tables"]["bronze.transactions"]
    assert (table["first_batch"], table["last_batch"]) == (3, 3)


def test_a_scheduled_run_is_let_through_once_a_limit_to_record_it(copy_home: Copy) -> None:
    settings = copy_home()
    run_gate(settings, "bronze")
    asked = [gates.is_overdue(settings, at_minute(minute)) for minute in (5, DAY, DAY + 1, DAY + 5)]
    assert asked == [False, False, True, True]  # until a gate has said so
    run_gate(settings, "bronze", DAY + 5)
    assert [gates.is_overdue(settings, at_minute(minute)) for minute in (DAY + 10, 2 * DAY, 2 * DAY + 5)] == [False, False, True]


def test_the_dag_asks_after_it_has_looked_for_new_batches(copy_home: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    """LOADED is long ago; what was judged just now is not asked about again."""
    settings = copy_home()

    def released(table: Table) -> dict[str, object]:
        return {"release_id": 1, "released_at": LOADED, "table": table.name, "version": 1, "last_batch": 2 if table in BRONZE else None}

    write(settings, {RELEASES.name: [released(table) for layer in LAYERS.values() for table in layer]})
    for name, value in {"LEDGER_HOME": str(settings.home), "LEDGER_FRESHNESS_SECONDS": str(10**9)}.items():
        monkeypatch.setenv(name, value)
    run_gate(settings, "bronze")
    assert not progress.has_new_batches(force=False)
    monkeypatch.setenv("LEDGER_FRESHNESS_SECONDS", "3600")
    assert progress.has_new_batches(force=False)
    gates.run(settings, "bronze", "now")
    assert not progress.has_new_batches(force=False)
