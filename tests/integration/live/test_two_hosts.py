"""Two hosts share a warehouse, a broker and a Postgres: when one is paused in a batch, the other goes on, and no row is there twice."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from spark_jobs import control
from spark_jobs.lake import leases, tables
from spark_jobs.lake.postgres_leases import EPOCH
from spark_jobs.runtime.job_process import COMMAND
from spark_jobs.runtime.settings import ROOT, Settings, read_settings
from spark_jobs.service import desired_state, heartbeat
from spark_jobs.service.services import INGESTION
from spark_jobs.service.supervisor import Supervisor
from tests.support.databases import running_postgres
from tests.support.ledger import Ledger, await_that

pytestmark = pytest.mark.integration

TABLE = tables.BRONZE_TRANSACTIONS
SENT = 300
THERE = "localhost"  # the name of the other host: one that its JVM can look up


@pytest.fixture
def shared(bootstrap: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The settings that both hosts have alike."""
    with running_postgres(tmp_path / "postgres") as url:
        yield {
            "LEDGER_HOSTS": "several",
            "LEDGER_POSTGRES_URL": url,
            "LEDGER_WAREHOUSE": str(tmp_path / "shared/warehouse"),
            "LEDGER_CHECKPOINTS": str(tmp_path / "shared/checkpoints"),
        }


def test_a_host_that_is_paused_in_a_batch_is_replaced_by_another_one_and_writes_nothing_when_it_wakes_up(
    bootstrap: str, shared: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Ledger(tmp_path / "here", bootstrap).environment(**shared)
    send = [sys.executable, "-m", "include.producer", "generate", "--transactions", str(SENT), "--only", "transactions"]
    subprocess.run(send, cwd=ROOT, env=here, check=True, capture_output=True, timeout=120)
    settings = read_settings(here)
    for name, value in here.items():
        if name.startswith("LEDGER_"):
            monkeypatch.setenv(name, value)
    supervisor = Supervisor(settings, INGESTION, (), "the other host")
    there = Ledger(tmp_path / "there", bootstrap).environment(**shared, LEDGER_PAUSE_POINT=f"before {TABLE.name}")
    with open(tmp_path / "there.log", "w+") as log:
        first = subprocess.Popen(
            ["unshare", "--uts", "sh", "-c", f'hostname {THERE}; exec "$0" "$@"', *COMMAND, "bronze"],
            cwd=ROOT,
            env=there,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            paused = psutil.Process(first.pid)
            await_that(lambda: paused.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE))
            assert first.poll() is None
            os.killpg(first.pid, signal.SIGSTOP)  # its JVM, too
            silent_since = time.monotonic()
            (beat,) = heartbeat.read(settings, INGESTION)
            assert (beat.facts["host"], beat.is_alive()) == (THERE, True)
            assert not any("started" in line for line in supervisor.step())  # it may yet live

            await_that(lambda: any(line.startswith("started bronze") for line in supervisor.step()))
            assert time.monotonic() - silent_since > heartbeat.STALE_SECONDS - 2
            await_that(lambda: (supervisor.step(), count(settings) == SENT)[1])
            (beat,) = heartbeat.read(settings, INGESTION)
            assert (beat.facts["host"], beat.facts["epoch"]) == (socket.gethostname(), 2)

            os.killpg(first.pid, signal.SIGCONT)
            assert first.wait(30) == 1
            log.seek(0)
            assert "bronze has lost its leases (bronze.accounts, bronze.customers, bronze.transactions)" in log.read()
        finally:
            if first.poll() is None:
                os.killpg(first.pid, signal.SIGKILL)
            desired_state.run(settings, INGESTION, "stop", "the test", "it is over", 120)
    assert count(settings) == SENT
    found = control.query(TABLE.open(settings), "select count(*) as n from (select distinct _topic, _partition, _offset from t)")
    assert found["n"].to_pylist() == [SENT]
    table = TABLE.open(settings)
    assert table.metadata().configuration[EPOCH] == "2"
    assert next(commit["userMetadata"] for commit in table.history() if commit["operation"] == "WRITE").endswith('"epoch": 2}')
    await_that(lambda: not any(lease.is_held for lease in leases.read_all(settings)), seconds=10)  # given back, not expired


def count(settings: Settings) -> int:
    """The rows of bronze."""
    return sum(TABLE.open(settings).get_add_actions(flatten=True)["num_records"].to_pylist()) if TABLE.exists(settings) else 0
