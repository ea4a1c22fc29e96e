"""A rehearsal says what a changed suite would have said of stored runs, and writes nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from expectations.suites import FOLDER
from spark_jobs import run
from spark_jobs.lake.tables import LAYERS
from spark_jobs.runtime.settings import Settings
from tests.support.warehouse import FIRST_VERSION, LOADED, good_rows, run_of, table_named, write
from tests.unit.releases.test_gates import run_gate

pytestmark = pytest.mark.xdist_group("expectations")
Copy = Callable[[], Settings]
Rehearse = Callable[..., tuple[int, str]]


@pytest.fixture
def rehearse(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rehearse:
    """Runs the command as a person does: its exit code and what it printed. Asserts that no file of the home changed."""

    def run_command(settings: Settings, layer: str, *options: str) -> tuple[int, str]:
        monkeypatch.setenv("LEDGER_HOME", str(settings.home))
        before = files_of(settings.home)
        code = run.main(["gate", layer, *options])
        assert files_of(settings.home) == before
        return code, capsys.readouterr().out

    return run_command


def files_of(home: Path) -> dict[str, tuple[int, int]]:
    return {str(file): (file.stat().st_size, file.stat().st_mtime_ns) for file in home.rglob("*")}


def suite_file(folder: Path, table: str, **measure: Any) -> Path:
    """The suite of a table with one expectation more, or as it is."""
    content = json.loads((FOLDER / f"{table}.json").read_text())
    if measure:
        added = {"type": "expect_column_max_to_be_between", "kwargs": {"column": "large_amounts", "max_value": 0}, "severity": "critical"}
        content["expectations"].append(added | {"meta": measure})
    file = folder / "changed.json"
    file.write_text(json.dumps(content))
    return file


def test_a_changed_suite_says_in_which_run_it_would_have_closed_and_why(copy_home: Copy, tmp_path: Path, rehearse: Rehearse) -> None:
    settings = copy_home()
    condition = "amount > 1000"
    first = f"select transaction_id from written where {condition}"
    file = suite_file(tmp_path, "silver.transactions", sql=f"count(*) filter (where {condition})", first=first)
    code, printed = rehearse(settings, "silver", "--suite", str(file), "--since", "0")
    assert code == 3
    assert printed.splitlines() == [
        f"silver.transactions by {file}, after release 0: 2 runs, 20 expectations",
        "  run r, batches 1 to 1: would have passed",
        "  run r, batches 2 to 2: would have closed",
        "    large_amounts (critical): found 1; first: T4, expected at most 0",
    ]


def test_only_runs_after_the_release_are_rehearsed(copy_home: Copy, tmp_path: Path, rehearse: Rehearse) -> None:
    settings = copy_home()
    rows = [{"release_id": 7, "released_at": LOADED, "table": f"bronze.{topic}", "last_batch": 1} for topic in ("transactions", "accounts")]
    write(settings, {"control.releases": rows})
    file = suite_file(tmp_path, "silver.transactions", sql="count(*) filter (where transaction_id = 'T1')")
    assert rehearse(settings, "silver", "--suite", str(file))[0] == 3
    code, printed = rehearse(settings, "silver", "--suite", str(file), "--since", "7")
    assert code == 0
    assert "1 runs" in printed
    assert "run r, batches 2 to 2: would have passed" in printed
    code, printed = rehearse(settings, "silver", "--suite", str(suite_file(tmp_path, "silver.accounts")), "--since", "7")
    assert (code, printed.splitlines()[-1]) == (0, "the gate would have passed for 0 of 0 runs; nothing was written")


def test_a_table_whose_rows_change_is_judged_as_each_run_left_it(copy_home: Copy, tmp_path: Path, rehearse: Rehearse) -> None:
    settings = copy_home()
    run_gate(settings, "silver")
    customers = good_rows()["silver.customers"]
    customers[0].update(valid_to=FIRST_VERSION.replace(year=2020), is_current=False)
    write(settings, {"silver.customers": customers}, mode="overwrite")
    write(settings, {"control.batches": [run_of("silver", "silver.customers", 2, 2, input=1, superseded=1)]})
    code, printed = rehearse(settings, "silver", "--suite", str(suite_file(tmp_path, "silver.customers")))
    assert code == 3
    assert "batches 1 to 1: would have passed" in printed
    assert "holes_and_overlaps (critical): found 1; first: C00000001: one ends 2020-12-31T00:00:00Z, the next begins never" in printed

    path = str(table_named("silver.customers").path(settings))
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    _, printed = rehearse(settings, "silver", "--suite", str(suite_file(tmp_path, "silver.customers")))
    assert "batches 1 to 1: cannot be judged: silver.customers at that version is gone" in printed


def test_a_run_of_which_no_version_is_on_record_is_named_and_not_judged(copy_home: Copy, tmp_path: Path, rehearse: Rehearse) -> None:
    settings = copy_home()
    write(settings, {"control.batches": [run_of("silver", "silver.customers", 2, 2, input=1, no_change=1)]})
    file = suite_file(tmp_path, "silver.customers")
    code, printed = rehearse(settings, "silver", "--suite", str(file))
    assert code == 3  # bronze has no batch 2
    assert "run r, batches 1 to 1: cannot be judged: silver.customers at that version is gone" in printed


@pytest.mark.parametrize("layer", LAYERS)
def test_the_suites_as_they_are_would_have_passed(layer: str, copy_home: Copy, rehearse: Rehearse) -> None:
    settings = copy_home()
    for table in ("bronze.transactions", "silver.transactions", "gold.enriched_transactions"):
        if table.startswith(layer):
            assert rehearse(settings, layer, "--suite", str(FOLDER / f"{table}.json"))[0] == 0


def test_what_cannot_be_rehearsed_is_refused(copy_home: Copy, tmp_path: Path, rehearse: Rehearse, caplog: pytest.LogCaptureFixture) -> None:
    settings = copy_home()
    good = suite_file(tmp_path, "silver.transactions")
    (tmp_path / "broken.json").write_text('{"name": 1}')
    (tmp_path / "transactions.yaml").write_text("version: '1'")
    (tmp_path / "things.yaml").write_text("version: '1'")
    for layer, options, found in (
        ("silver", ("--suite", "no such file.json"), "no such file.json cannot be used"),
        ("silver", ("--suite", str(tmp_path / "broken.json")), "broken.json cannot be used"),
        ("gold", ("--suite", str(good)), "found suite 'silver.transactions', expected a table of gold"),
        ("silver", ("--suite", str(good), "--since", "3"), "found no release 3, expected 0 (everything)"),
        ("bronze", ("--suite", str(tmp_path / "transactions.yaml")), "expected gate silver"),
        ("silver", ("--suite", str(tmp_path / "transactions.yaml")), "expected a version and rules"),
        ("silver", ("--suite", str(tmp_path / "things.yaml")), "found rules of no known topic"),
    ):
        caplog.clear()
        assert rehearse(settings, layer, *options) == (2, "")
        assert found in caplog.text
