"""Gates from the job's side: what is judged, what is recorded, and that any doubt closes."""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from expectations import gate
from expectations.suites import SuiteError, read_suite
from spark_jobs import control
from spark_jobs.control.scope import find_written, version_upto
from spark_jobs.lake.tables import LAYERS, QUALITY_RESULTS, SILVER, ensure_tables
from spark_jobs.releases import gates
from spark_jobs.runtime.errors import GateClosed, LedgerError
from spark_jobs.runtime.settings import Settings
from tests.support.warehouse import LOADED, at, bronze, good_rows, quarantined, run_of, settings_of, table_named, transaction, write

pytestmark = pytest.mark.xdist_group("expectations")
Copy = Callable[[], Settings]


def run_gate(settings: Settings, layer: str, number: int = 1) -> dict[str, Any]:
    """The verdict that a gate wrote, whether it was closed or not. Later runs have higher numbers."""
    file = settings.home / "verdicts" / f"{layer}.json"
    with suppress(GateClosed):
        gates.run(settings, layer, f"run-{number}", verdict_file=file, now=LOADED + timedelta(minutes=number))
    return dict(json.loads(file.read_text()))


def results(settings: Settings, layer: str) -> dict[str, dict[str, Any]]:
    rows = control.read(settings, QUALITY_RESULTS).sort_by("_judged_at").to_pylist()
    return {row["table"]: row for row in rows if row["layer"] == layer}


def new_batch(settings: Settings) -> None:
    """A third batch of transactions, of one row, all the way to silver."""
    new = transaction(5, at(1, 1, 3), "Debit", "1.00", who=2, hour=12)
    run = run_of("silver", "silver.transactions", 3, 3, input=1, output=1)
    write(settings, {"bronze.transactions": [bronze(at(1, 1, 3), b"T5", b"{}")], "silver.transactions": [new], "control.batches": [run]})


@pytest.mark.parametrize("layer", LAYERS)
def test_good_tables_pass_and_are_not_judged_again(layer: str, copy_home: Copy) -> None:
    settings = copy_home()
    verdict = run_gate(settings, layer)
    assert (verdict["verdict"], verdict["layer"], verdict["failed"]) == ("passed", layer, [])
    assert verdict["tables"].keys() == {table.name for table in LAYERS[layer]}
    assert Path(verdict["report"].removeprefix("file://")).exists()
    rows = results(settings, layer)
    assert rows.keys() == verdict["tables"].keys()
    for table, row in rows.items():
        last = 2 if "transactions" in table or layer == "gold" else 1
        assert (row["run_id"], row["success"], row["failed_expectations"], row["suite"]) == ("run-1", True, [], table)
        assert (row["_first_batch"], row["_last_batch"]) == (1, last)
        assert row["version"] == DeltaTable(str(table_named(table).path(settings))).version()
        assert row["evaluated"] == len(read_suite(table).expectations)
        assert Path(row["report"].removeprefix("file://")).exists()

    assert run_gate(settings, layer, 2)["verdict"] == "skipped"
    assert results(settings, layer) == rows
    gates.refuse_if_closed(settings, layer)


def test_a_closed_gate_says_what_failed_and_where_the_report_is(copy_home: Copy) -> None:
    settings = copy_home()
    rows = good_rows()["silver.transactions"]
    rows[0]["amount"] = Decimal("-0.01")
    write(settings, {"silver.transactions": rows}, mode="overwrite")
    file = settings.home / "verdict.json"
    found = "1; first: transactions/0/0 of -0.01"
    with pytest.raises(GateClosed, match=rf"transactions negative_amounts: found {found}, expected at most 0; report: file://") as raised:
        gates.run(settings, "silver", "run-1", verdict_file=file)
    assert raised.value.exit_code == 3
    verdict = json.loads(file.read_text())
    failed = {"table": "silver.transactions", "expectation": "negative_amounts", "found": found, "expected": "at most 0"}
    assert (verdict["verdict"], verdict["failed"]) == ("closed", [failed])
    assert "negative_amounts" in Path(verdict["report"].removeprefix("file://")).read_text()
    row = results(settings, "silver")["silver.transactions"]
    assert (row["success"], row["failed"], row["failed_expectations"]) == (False, 1, ["negative_amounts"])
    with pytest.raises(GateClosed, match=r"gate silver closed on record: found silver\.transactions \(negative_amounts\)"):
        gates.refuse_if_closed(settings, "bronze", "silver")
    gates.refuse_if_closed(settings, "bronze", "gold")

    write(settings, {"silver.transactions": good_rows()["silver.transactions"]}, mode="overwrite")
    assert run_gate(settings, "silver", 10**9)["verdict"] == "passed"
    gates.refuse_if_closed(settings, "silver")


def test_only_new_batches_are_judged_and_other_verdicts_stand(copy_home: Copy) -> None:
    settings = copy_home()
    run_gate(settings, "silver")
    new_batch(settings)
    verdict = run_gate(settings, "silver", 2)
    assert verdict["verdict"] == "passed"
    judged = {name: (table["first_batch"], table["last_batch"]) for name, table in verdict["tables"].items() if table["judged"]}
    assert judged == {table.name: (3, 3) for table in SILVER if "transactions" in table.name}
    assert verdict["tables"]["silver.customers"]["last_batch"] == 1


def test_batches_of_a_closed_judgement_are_judged_again(copy_home: Copy) -> None:
    settings = copy_home()
    run_gate(settings, "silver")
    new_batch(settings)
    write(settings, {"bronze.transactions": [bronze(at(1, 2, 3), b"T6", b"{}")]})
    verdict = run_gate(settings, "silver", 2)
    assert [failed["expectation"] for failed in verdict["failed"]] == ["rows_not_in_one_place"]
    write(settings, {"silver.transactions_quarantine": [quarantined(at(1, 2, 3), b"T6", b"{}")]})
    verdict = run_gate(settings, "silver", 3)
    assert verdict["verdict"] == "passed"
    late = verdict["tables"]["silver.transactions_late"]
    del late["report"]
    assert late == {"verdict": "passed", "judged": True, "version": 1, "first_batch": 3, "last_batch": 3, "rows": 1}


def test_a_table_changed_without_new_batches_is_judged_in_full(copy_home: Copy) -> None:
    settings = copy_home()
    run_gate(settings, "gold")
    rows = good_rows()["gold.daily_totals"]
    rows[0]["amount"] = Decimal("9007199254741094.10")  # a double takes it for the right sum
    assert float(rows[0]["amount"]) == float(good_rows()["gold.daily_totals"][0]["amount"])
    write(settings, {"gold.daily_totals": rows}, mode="overwrite")
    verdict = run_gate(settings, "gold", 2)
    assert {failed["table"]: failed["expectation"] for failed in verdict["failed"]} == {
        "gold.daily_totals": "unequal_sums",
        "gold.sliding_totals": "days_that_differ",
        "gold.cumulative_totals": "days_that_differ",
    }
    assert verdict["tables"]["gold.enriched_transactions"]["first_batch"] == 1


def test_bronze_is_judged_up_to_what_silver_read(copy_home: Copy) -> None:
    settings = copy_home()
    run_gate(settings, "bronze")
    again = bronze(at(0, 0, 3), b"T", b"{}")  # a record that was there before
    write(settings, {"bronze.transactions": [again]})
    assert run_gate(settings, "bronze", 2)["verdict"] == "skipped"
    write(settings, {"bronze.transactions": [bronze(at(0, 5, 4), b"T", b"{}")]})
    write(settings, {"control.batches": [run_of("silver", "silver.transactions", 3, 3, input=1, duplicates=1)]})
    verdict = run_gate(settings, "bronze", 3)
    assert [failed["expectation"] for failed in verdict["failed"]] == ["records_of_earlier_batches"]
    table = verdict["tables"]["bronze.transactions"]
    assert (table["first_batch"], table["last_batch"], table["version"]) == (3, 3, 3)


def test_the_version_of_bronze_is_the_newest_without_later_batches(copy_home: Copy) -> None:
    settings = copy_home()
    path = str(table_named("bronze.transactions").path(settings))
    DeltaTable(path).optimize.compact()
    write(settings, {"bronze.transactions": [bronze(at(0, 5, batch), b"T", b"{}") for batch in (3, 4)]})
    table = DeltaTable(path)
    assert [version_upto(table, last) for last in (0, 1, 2, 3, 4, 9)] == [0, 1, 3, 4, 5, 5]


def test_a_job_that_stopped_halfway_cannot_be_judged(copy_home: Copy) -> None:
    settings = copy_home()
    write(settings, {"silver.transactions": [transaction(5, at(1, 1, 3), "Debit", "1.00", who=2, hour=12)]})
    with pytest.raises(LedgerError, match=r"silver\.transactions has rows of batch 3, expected none after 2") as raised:
        gates.run(settings, "silver", "run-1")
    assert raised.value.exit_code == 1
    write(settings, {"control.batches": [run_of("gold", "gold.daily_totals", 3, 3)]})
    with pytest.raises(LedgerError, match=r"gold stopped halfway: found gold\.daily_totals at batch 3"):
        gates.run(settings, "gold", "run-1")
    assert results(settings, "silver") == {}


@pytest.mark.parametrize(("layer", "job"), [("bronze", "silver"), ("silver", "silver"), ("gold", "gold")])
def test_a_layer_that_was_never_run_is_an_error(layer: str, job: str, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=rf"nothing to judge in {layer}: .* run python -m spark_jobs\.run {job} first") as raised:
        gates.run(settings_of(tmp_path), layer, "run-1")
    assert raised.value.exit_code == 1


def test_gold_that_never_finished_a_run_is_an_error(copy_home: Copy) -> None:
    settings = copy_home()
    rows = [row for row in good_rows()["control.batches"] if row["job"] == "silver"]
    write(settings, {"control.batches": rows}, mode="overwrite")
    with pytest.raises(LedgerError, match=r"gold never finished a run: .* expected one up to batch 2, .* spark_jobs\.run gold first"):
        gates.run(settings, "gold", "run-1")


def test_empty_tables_without_batches_are_skipped(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    ensure_tables(settings, [*LAYERS["bronze"], *SILVER, table_named("control.batches")])
    verdict = run_gate(settings, "silver")
    assert (verdict["verdict"], verdict["tables"]["silver.accounts"]["last_batch"]) == ("skipped", 0)
    assert verdict["report"] is None
    row = results(settings, "silver")["silver.accounts"]
    assert (row["success"], row["evaluated"], row["version"]) == (True, 0, 0)
    run_gate(settings, "silver", 2)
    assert control.read(settings, QUALITY_RESULTS).num_rows == len(SILVER)


def test_a_missing_column_closes(copy_home: Copy) -> None:
    settings = copy_home()
    path = str(table_named("silver.transactions").path(settings))
    rows = control.read(settings, table_named("silver.transactions")).drop_columns(["amount"])
    write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite")
    verdict = run_gate(settings, "silver")
    failed = {failed["expectation"]: failed["found"] for failed in verdict["failed"]}
    assert failed.keys() == {"missing_amounts", "negative_amounts"}  # the others were measured all the same
    assert all("No field named amount" in found for found in failed.values())


def judge_with(folder: Path, suite: dict[str, Any], answer: Callable[[str], pa.Table]) -> gate.Judgement:
    (folder / "suites").mkdir()
    (folder / "suites" / "silver.things.json").write_text(json.dumps({"name": "silver.things"} | suite))
    (judgement,) = gate.judge(folder / "quality", "silver", {"silver.things": answer}, "run", LOADED, folder / "suites")
    return judgement


def expectation(name: str = "rows", severity: str = "critical", **bounds: int) -> dict[str, Any]:
    kwargs = {"column": name, **bounds}
    meta = {"sql": "count(*)"}
    return {"type": "expect_column_max_to_be_between", "kwargs": kwargs, "severity": severity, "description": name, "meta": meta}


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (pa.table({"rows": pa.array([None], pa.int64())}), "found None"),
        (pa.table({"rows": [Decimal("9007199254740993.00")]}), "expected a whole number"),
        (pa.table({"rows": [1.0]}), "expected a whole number"),
        (pa.table({"rows": pa.array([], pa.int64())}), "0 rows of 1 columns"),
    ],
    ids=["null", "decimal", "double", "no-row"],
)
@pytest.mark.parametrize("severity", ["critical", "warning"])
def test_a_measure_that_is_no_number_closes_even_where_it_would_only_warn(
    answer: pa.Table, found: str, severity: str, tmp_path: Path
) -> None:
    judgement = judge_with(tmp_path, {"expectations": [expectation(severity=severity, max_value=10**18)]}, lambda sql: answer)
    assert not judgement.passed
    assert found in judgement.failures[0].found


def test_an_error_of_the_query_closes(tmp_path: Path) -> None:
    def fail(sql: str) -> pa.Table:
        raise OSError("disk gone")

    judgement = judge_with(tmp_path, {"expectations": [expectation(max_value=0), expectation("others", max_value=0)]}, fail)
    assert [(failure.expectation, failure.found) for failure in judgement.failures] == [
        ("rows", "OSError: disk gone"),
        ("others", "OSError: disk gone"),
    ]
    assert not judgement.passed


@pytest.mark.parametrize(
    ("suite", "found"),
    [
        ({"expectations": []}, "0 expectations"),
        ({}, "KeyError"),
        ({"name": "silver.others", "expectations": [expectation(max_value=0)]}, "silver.others"),
        ({"expectations": [expectation(max_value=0) | {"meta": {}}]}, "no meta.sql or meta.query for rows"),
        ({"expectations": [expectation("a b", max_value=0)]}, "'a b'"),
        ({"expectations": [expectation(max_value=0), expectation(max_value=1)]}, "more than once"),
    ],
    ids=["empty", "none", "other-name", "no-measure", "bad-name", "twice"],
)
def test_an_unusable_suite_closes(suite: dict[str, Any], found: str, tmp_path: Path) -> None:
    judgement = judge_with(tmp_path, suite, lambda sql: pa.table({"rows": [0]}))
    assert not judgement.passed
    assert found in judgement.failures[0].found


def test_a_missing_suite_closes(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="cannot be used"):
        read_suite("silver.things", tmp_path)


def test_an_expectation_that_great_expectations_leaves_out_closes(tmp_path: Path) -> None:
    unknown = expectation("others", max_value=0) | {"type": "expect_no_such_thing"}
    judgement = judge_with(tmp_path, {"expectations": [expectation(max_value=0), unknown]}, lambda sql: pa.table({"rows": [0]}))
    assert [(failure.expectation, failure.found, failure.expected) for failure in judgement.failures] == [
        ("suite", "1 results", "2 results")
    ]
    assert not judgement.passed


def test_a_report_that_cannot_be_written_closes(tmp_path: Path) -> None:
    (tmp_path / "quality").write_text("a file where the folder should be")
    judgement = judge_with(tmp_path, {"expectations": [expectation(max_value=0)]}, lambda sql: pa.table({"rows": [0]}))
    assert (judgement.passed, judgement.failures[0].expectation) == (False, "great_expectations")


def test_to_find_what_is_new_changes_nothing(copy_home: Copy) -> None:
    settings = copy_home()
    assert find_written(settings, "silver") == find_written(settings, "silver")
