"""What goes wrong before any work: one line that helps, the exit code of the contract, and no stack trace. No JVM is started."""

import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spark_jobs import control
from spark_jobs.lake import tables
from tests.support.ledger import Ledger

pytestmark = pytest.mark.integration


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "home")


def one_line(done: subprocess.CompletedProcess[str], exit_code: int) -> str:
    """The one line that a job said before it ended with this exit code."""
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (exit_code, 1, ""), done.stderr
    return done.stderr


def test_no_broker(ledger: Ledger) -> None:
    begun = time.monotonic()
    said = one_line(ledger.try_run("bronze --available-now"), 1)
    assert "Kafka at 127.0.0.1:9 does not answer" in said
    assert time.monotonic() - begun < 40


def test_a_broker_is_neither_set_nor_up(ledger: Ledger) -> None:
    said = one_line(ledger.try_run("bronze", LEDGER_KAFKA_BOOTSTRAP=""), 2)
    assert "LEDGER_KAFKA_BOOTSTRAP is not set" in said


@pytest.mark.parametrize("job", ["bronze", "silver", "gold", "gate silver", "release"])
def test_a_bad_setting(ledger: Ledger, job: str) -> None:
    said = one_line(ledger.try_run(job, LEDGER_ALLOWED_LATENESS_SECONDS="abc"), 2)
    assert "LEDGER_ALLOWED_LATENESS_SECONDS: found 'abc', expected a whole number" in said


def test_every_bad_setting_is_named(ledger: Ledger) -> None:
    said = one_line(ledger.try_run("silver", LEDGER_LARGE_CREDIT="1.005", LEDGER_SPARK_MASTER="nowhere"), 2)
    assert "LEDGER_LARGE_CREDIT" in said
    assert "LEDGER_SPARK_MASTER" in said


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("gate nosuch", "'nosuch'"),
        ("nosuch", "'nosuch'"),
        ("bronze --nosuch", "--nosuch"),
        ("bronze --starting-offsets 2026-01-01T00:00:00", "without a zone"),
        ("bronze --starting-offsets yesterday", "'yesterday'"),
        ("bronze --starting-offsets 0001-01-01T00:00:00+02:00", "such as 2026"),
        ("replay --from 9999-12-31T23:59:59-02:00", "such as 2026"),
    ],
)
def test_unusable_arguments(ledger: Ledger, command: str, told: str) -> None:
    assert told in one_line(ledger.try_run(command), 2)
    assert not ledger.home.exists()


def test_nothing_is_released_that_was_not_judged(ledger: Ledger) -> None:
    assert "no gate has judged" in one_line(ledger.try_run("release"), 3)
    assert not ledger.exists(tables.RELEASES)


@pytest.mark.parametrize("layer", ["bronze", "silver", "gold"])
def test_there_is_nothing_to_judge(ledger: Ledger, layer: str) -> None:
    assert f"nothing to judge in {layer}" in one_line(ledger.try_run(f"gate {layer}"), 1)


@pytest.mark.parametrize("job", ["silver", "gold"])
def test_a_closed_verdict_stops_what_comes_after(ledger: Ledger, job: str) -> None:
    record_verdict(ledger, tables.SILVER_TRANSACTIONS, is_passed=False)
    said = one_line(ledger.try_run(job), 3)
    assert "gate silver closed on record" in said
    assert "file:///report.html" in said
    assert not ledger.exists(tables.SILVER_TRANSACTIONS)


def record_verdict(ledger: Ledger, table: tables.Table, *, is_passed: bool) -> None:
    row = {"run_id": "test", "layer": table.layer, "table": table.name, "version": 1, "suite": table.name, "success": is_passed}
    row |= {"failed_expectations": ["some_expectation"], "report": "file:///report.html", "_last_batch": 1, "_judged_at": datetime.now(UTC)}
    control.append(ledger.settings, tables.QUALITY_RESULTS, [row])
