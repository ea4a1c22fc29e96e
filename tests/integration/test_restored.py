"""A backup taken while ingestion runs, brought into another home: the audit agrees, and the pipeline goes on from there."""

import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.runtime.settings import ROOT
from spark_jobs.service import heartbeat
from spark_jobs.service.services import INGESTION
from tests.integration.conftest import Broker, Wave
from tests.integration.test_restart import ingests
from tests.support import waves
from tests.support.checks import assert_bronze_is, assert_gold_follows, assert_silver_follows
from tests.support.ledger import ALL_STEPS, Ledger, await_that

pytestmark = [pytest.mark.integration, pytest.mark.faults]


def backup(ledger: Ledger, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "include.backup", command, str(folder)]
    return subprocess.run(words, cwd=ROOT, env=ledger.environment(), capture_output=True, text=True, check=False, timeout=400)


def test_a_restored_home_is_proven_and_goes_on(broker: Broker, first_wave: Wave, tmp_path: Path) -> None:
    ledger = first_wave.saved.copy(tmp_path / "home")
    with ledger.running("bronze", output=(said := tmp_path / "bronze.log")) as bronze:
        await_that(lambda: ingests(ledger, bronze.pid))
        done = backup(ledger, "create", tmp_path / "copy")
        assert done.returncode == 0, done.stderr
        assert "ingestion ends its batch; the DAG bronze_ingestion starts it again" in done.stdout
        assert bronze.wait(60) == 0, said.read_text()

    other = Ledger(tmp_path / "other", broker.bootstrap)
    done = backup(other, "restore", tmp_path / "copy")
    assert done.returncode == 0, done.stderr  # the audit's: silver and gold are what bronze says
    assert heartbeat.read(other.settings, INGESTION) == []
    broker.send(waves.few_new(broker.sent, "restored"))
    other.run("bronze --available-now", *ALL_STEPS)
    assert_bronze_is(other, broker.sent)
    assert_gold_follows(other, assert_silver_follows(other))
