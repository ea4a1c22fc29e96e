"""What a refusal looks like in a task's log: its own words, and no stack trace, which only an unforeseen error has."""

import json
from pathlib import Path
from typing import Any

import pytest
import structlog
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from structlog.testing import LogCapture

from include.orchestration import defaults, refusals
from include.orchestration.jobs import Job
from tests.dags.test_jobs import CONTEXT, fake_job


def failed(raising: Any) -> dict[str, Any]:
    """What Airflow's runner of tasks logs for an error, by the same call."""
    captured = LogCapture()
    log = structlog.wrap_logger(structlog.PrintLogger(), processors=[refusals.tell_in_words, captured])
    try:
        raising()
    except Exception:
        log.exception("Task failed with exception")
    (entry,) = captured.entries
    return dict(entry)


@pytest.mark.parametrize("exit_code", [1, 3])
def test_a_job_that_fails_is_told_without_a_stack(tmp_path: Path, exit_code: int) -> None:
    command = fake_job(tmp_path, f"print('gate silver is closed: found 800, expected 500')\nsys.exit({exit_code})")
    entry = failed(lambda: Job(task_id="gate", arguments=["gate"], command=command).execute(CONTEXT))
    assert "exc_info" not in entry
    assert entry["event"].endswith("gate silver is closed: found 800, expected 500")
    assert entry["log_level"] == "error"


def fail_as(kind: type[Exception]) -> None:
    raise kind("found 3, expected 4")


@pytest.mark.parametrize("kind", [AirflowException, AirflowFailException])
def test_what_our_code_refuses_is_told_without_a_stack(kind: type[Exception]) -> None:
    assert failed(lambda: fail_as(kind)) == {"event": "found 3, expected 4", "log_level": "error"}


@pytest.mark.parametrize("raising", [lambda: fail_as(ValueError), lambda: json.loads("{")])
def test_an_unforeseen_error_keeps_its_stack(raising: Any) -> None:
    entry = failed(raising)
    assert entry["exc_info"]
    assert entry["event"] == "Task failed with exception"


def test_every_task_has_its_log_tell_refusals_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    processors: list[Any] = []
    monkeypatch.setattr(structlog, "get_config", lambda: {"processors": processors})
    for _ in range(2):
        defaults.DEFAULT_ARGS["on_execute_callback"](None)
    assert processors == [refusals.tell_in_words]
