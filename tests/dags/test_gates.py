"""A gate task is open on a clear yes only."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.execution_time.context import OutletEventAccessors

from include.orchestration.assets import RELEASE, layer_assets, tell_release
from include.orchestration.gates import QualityGate, quality_gate
from include.orchestration.jobs import Job
from spark_jobs.lake.tables import RELEASES
from spark_jobs.runtime.settings import Settings
from tests.support import quality_rows
from tests.support.task_instance import TaskInstance

TRANSACTIONS = Asset(name="silver.transactions", uri="delta://silver/transactions", group="silver")
PAGE = "http://127.0.0.1:8080/quality/data_docs/7.html"  # where people can open it, unlike a file of the host
PASSED = {
    "verdict": "passed",
    "failed": [],
    "report": "file:///a%20home/quality/data_docs/7.html",
    "tables": {"silver.transactions": {"version": 3, "rows": 10, "report": "file:///a%20home/quality/data_docs/7.html"}},
}


def gate(folder: Path, exit_code: int, verdict: Any = None, output: str = "") -> QualityGate:
    """A gate whose job writes this verdict (text as it is, None: nothing), prints a line and ends with this code."""
    text = verdict if isinstance(verdict, str) or verdict is None else json.dumps(verdict)
    script = folder / "gate.py"
    script.write_text(
        f"import sys\nassert sys.argv[1:4] == ['gate', 'silver', '--verdict']\ntext = {text!r}\n"
        f"if text is not None:\n    open(sys.argv[4], 'w').write(text)\nprint({output!r})\nsys.exit({exit_code})\n"
    )
    return quality_gate("silver", [TRANSACTIONS], command=(sys.executable, str(script)))


def run(task: QualityGate) -> tuple[Any, OutletEventAccessors]:
    """Execute the task; returns what it hands on, and its asset events."""
    events = OutletEventAccessors()
    return task.execute(TaskInstance().context(outlet_events=events)), events


def test_passed_hands_on_a_summary_and_the_asset_says_what_was_judged(tmp_path: Path) -> None:
    summary, events = run(gate(tmp_path, 0, PASSED))
    assert summary == {
        "verdict": "passed",
        "report": PAGE,
        "tables": {"silver.transactions": {"version": 3, "rows": 10, "report": PAGE}},
    }
    assert events[TRANSACTIONS].extra == {"verdict": "passed", "version": 3, "rows": 10, "report": PAGE}


def test_nothing_new_since_the_last_passed_verdict_counts_as_passed(tmp_path: Path) -> None:
    summary, events = run(gate(tmp_path, 0, {"verdict": "skipped", "failed": [], "report": None}))
    assert summary["verdict"] == "skipped"
    assert events[TRANSACTIONS].extra == {"verdict": "skipped"}


def test_events_of_a_release_say_its_number_rows_and_versions(home: Settings, tmp_path: Path) -> None:
    events, task = (
        OutletEventAccessors(),
        Job(task_id="release", arguments=["release"], command=("true",), tell=tell_release, outlets=[RELEASE]),
    )
    task.execute(TaskInstance().context(outlet_events=events, run_id="r"))
    assert not events[RELEASE].extra  # there is none yet
    quality_rows.write(home, RELEASES, [quality_rows.release(4, 1), quality_rows.release(4, 1, "silver.transactions", 90)])
    task.execute(TaskInstance().context(outlet_events=events, run_id="r"))
    assert (events[RELEASE].extra["release"], events[RELEASE].extra["rows"]) == (4, 190)
    tell_release(events, [TRANSACTIONS])
    assert {name: events[TRANSACTIONS].extra[name] for name in ("release", "rows", "version")} == {"release": 4, "rows": 90, "version": 1}


def test_closed_names_what_failed_and_the_report_and_is_not_tried_again(tmp_path: Path) -> None:
    closed = {
        "verdict": "closed",
        "failed": [
            {"table": "silver.transactions", "expectation": "unique_ids", "found": 2, "expected": "<= 0"},
            {"table": "silver.accounts", "expectation": "one_current", "found": 1, "expected": "<= 0"},
        ],
        "report": "file:///quality/8.html",
    }
    with pytest.raises(AirflowFailException) as failure:
        run(gate(tmp_path, 3, closed))
    assert str(failure.value) == (
        "gate silver is closed: failed silver.transactions unique_ids (found 2, expected <= 0), "
        "silver.accounts one_current (found 1, expected <= 0); report: file:///quality/8.html"
    )


def test_a_long_list_of_failures_is_cut(tmp_path: Path) -> None:
    closed = {
        "verdict": "closed",
        "failed": [{"table": "t", "expectation": f"e{number}", "found": 1} for number in range(25)],
        "report": "r",
    }
    with pytest.raises(AirflowFailException, match=r"e19 \(found 1, expected \) and 5 more; report: r"):
        run(gate(tmp_path, 3, closed))


def test_closed_without_a_verdict_says_what_the_job_says(tmp_path: Path) -> None:
    with pytest.raises(AirflowFailException, match="gate silver is closed: GateClosed: nothing was judged"):
        run(gate(tmp_path, 3, output="GateClosed: nothing was judged"))


@pytest.mark.parametrize(
    "verdict",
    [
        None,
        "",
        "{",
        "[]",
        "null",
        '"passed"',
        {},
        {"verdict": "closed"},
        {"verdict": "closed", "failed": ["x"]},
        {"verdict": "maybe"},
        {"verdict": True},
    ],
)
def test_exit_code_0_without_a_clear_verdict_counts_as_closed(tmp_path: Path, verdict: Any) -> None:
    with pytest.raises(AirflowFailException, match="it counts as closed"):
        run(gate(tmp_path, 0, verdict))


def test_a_gate_that_crashes_is_tried_again_and_never_open(tmp_path: Path) -> None:
    with pytest.raises(AirflowException) as failure:
        run(gate(tmp_path, 1, PASSED, output="the report cannot be written"))
    assert str(failure.value) == "gate silver: exit code 1: the report cannot be written"
    assert not isinstance(failure.value, AirflowFailException)


def test_a_verdict_of_an_earlier_try_is_never_read(tmp_path: Path) -> None:
    run(gate(tmp_path, 0, PASSED))
    with pytest.raises(AirflowFailException, match="no verdict"):
        run(gate(tmp_path, 0))


def test_a_layer_has_an_asset_for_each_table() -> None:
    assert [(asset.name, asset.uri) for asset in layer_assets("bronze")] == [
        ("bronze.transactions", "delta://bronze/transactions"),
        ("bronze.customers", "delta://bronze/customers"),
        ("bronze.accounts", "delta://bronze/accounts"),
    ]
