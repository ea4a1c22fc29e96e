"""After a re-drive: gates look at all batches, the account closes, and the next scheduled run carries it to a release."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from deltalake import DeltaTable

from spark_jobs import control
from spark_jobs.lake import tables
from spark_jobs.lake.tables import BATCHES
from spark_jobs.releases.releases import has_unreleased_batches, publish
from spark_jobs.runtime.settings import Settings
from tests.support.aging import follow
from tests.support.warehouse import LOADED, at, good_rows, run_of, transaction, write
from tests.unit.releases.test_gates import new_batch, run_gate

Copy = Callable[[], Settings]


def version(settings: Settings, name: str) -> int:
    return int(DeltaTable(str(settings.warehouse / name.replace(".", "/"))).version())


def redrive(settings: Settings, *, twice: bool = False) -> None:
    """The row in quarantine of the first batch is valid after all; `twice`, but it has not left quarantine."""
    write(settings, {"silver.transactions": [transaction(9, at(0, 2, 1), "Debit", "1.00", who=2, hour=9)]})
    quarantine = good_rows()["silver.transactions_quarantine"] if twice else []
    write(settings, {"silver.transactions_quarantine": quarantine}, mode="overwrite")
    done = {"table": "silver.transactions", "outcome": "transactions", "_silver_version": version(settings, "silver.transactions")}
    write(settings, {"control.redrives": [done | at(0, 2, 1)]})


def gold_ran(settings: Settings, last: int, minutes: int) -> None:
    """What gold records at the end of a run, so long after all was loaded."""
    read = json.dumps({f"silver.{name}": version(settings, f"silver.{name}") for name in ("transactions", "customers", "accounts")})
    runs: list[dict[str, Any]] = [
        run_of("gold", table.name, 1, last) | {"_read_versions": read, "finished_at": LOADED + timedelta(minutes=minutes)}
        for table in tables.GOLD
    ]
    control.append(settings, BATCHES, runs)


def first_batches(verdict: dict[str, Any]) -> dict[str, int]:
    return {name: table["first_batch"] for name, table in verdict["tables"].items() if table["judged"]}


def test_the_gate_of_silver_judges_all_batches_beside_the_new_ones(copy_home: Copy) -> None:
    settings = copy_home()
    run_gate(settings, "silver")
    redrive(settings)
    new_batch(settings)
    verdict = run_gate(settings, "silver", 2)
    assert (verdict["verdict"], set(first_batches(verdict).values())) == ("passed", {1})
    new_batch_after(settings)
    verdict = run_gate(settings, "silver", 3)
    assert (verdict["verdict"], set(first_batches(verdict).values())) == ("passed", {4})


def test_a_row_that_is_in_two_places_closes_the_gate_though_its_batch_was_judged(copy_home: Copy) -> None:
    settings = copy_home()
    run_gate(settings, "silver")
    redrive(settings, twice=True)
    new_batch(settings)
    verdict = run_gate(settings, "silver", 2)
    assert "rows_not_in_one_place" in {failed["expectation"] for failed in verdict["failed"]}


def test_the_gate_of_gold_judges_all_batches_once_gold_has_followed(copy_home: Copy) -> None:
    settings = copy_home()
    gold_ran(settings, 2, 0)
    assert run_gate(settings, "gold")["verdict"] == "passed"
    redrive(settings)
    new_batch(settings)
    gold_ran(settings, 3, 2)
    assert set(first_batches(run_gate(settings, "gold", 3)).values()) == {1}


def test_a_re_drive_is_unreleased_until_a_release_names_it(copy_home: Copy) -> None:
    settings = copy_home()
    for layer in tables.LAYERS:
        assert run_gate(settings, layer)["verdict"] == "passed"
    publish(settings)
    assert not has_unreleased_batches(settings)
    redrive(settings)
    assert has_unreleased_batches(settings)
    run_gate(settings, "silver", 2)
    follow(settings, version(settings, "silver.transactions"))
    publish(settings)
    assert not has_unreleased_batches(settings)


def new_batch_after(settings: Settings) -> None:
    """A fourth batch of transactions."""
    row = transaction(6, at(1, 2, 4), "Debit", "1.00", who=2, hour=12)
    bronze = good_rows()["bronze.transactions"][0] | at(1, 2, 4) | {"key": b"T6"}
    run = run_of("silver", "silver.transactions", 4, 4, input=1, output=1)
    write(settings, {"bronze.transactions": [bronze], "silver.transactions": [row], "control.batches": [run]})
