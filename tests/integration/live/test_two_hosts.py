"""Two hosts share a warehouse, a broker and a Postgres: when one is paused in a batch, the other goes on, and no row is there twice."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
from tests.support.object_storage import in_storage, running_s3

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("sent")]

TABLE = tables.BRONZE_TRANSACTIONS
SENT = 300
THERE = "localhost"  # the name of the other host: one that its JVM can look up


@pytest.fixture(scope="module")
def sent(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The broker has the rows."""
    words = [sys.executable, "-m", "include.producer", "generate", "--transactions", str(SENT), "--only", "transactions"]
    environment = Ledger(tmp_path_factory.mktemp("producer"), bootstrap).environment()
    subprocess.run(words, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=120)


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
    settings = enter(here, monkeypatch)
    supervisor = Supervisor(settings, INGESTION, (), "the other host")
    there = Ledger(tmp_path / "there", bootstrap).environment(**shared, LEDGER_PAUSE_POINT=f"before {TABLE.name}")
    with ingestion_there(there, tmp_path / "there.log") as first:
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
            assert_ends_when_it_wakes_up(first, tmp_path / "there.log")
        finally:
            desired_state.run(settings, INGESTION, "stop", "the test", "it is over", 120)
    assert_written_by_the_second(settings)


def test_a_commit_that_is_under_way_to_s3_when_its_host_is_paused_comes_too_late(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network keeps it until the other host has taken over and committed; then the first one wakes up."""
    with running_postgres(tmp_path / "postgres") as url, running_s3(tmp_path / "s3") as (door, access):
        shared = {"LEDGER_POSTGRES_URL": url, **in_storage(tmp_path.name), **access}
        here, there = Ledger(tmp_path / "here", bootstrap), Ledger(tmp_path / "there", bootstrap)
        settings = enter(here.environment(**shared), monkeypatch)
        door.hold_at(TABLE.path(settings) / "_delta_log" / f"{1:020}.json")
        with ingestion_there(there.environment(**shared), tmp_path / "there.log") as first:
            await_that(lambda: door.is_holding or first.poll() is not None)
            os.killpg(first.pid, signal.SIGSTOP)
            assert here.try_run("bronze --available-now", **shared).returncode == 5  # it may yet live
            await_that(lambda: here.try_run("bronze --available-now", **shared).returncode == 0)
            assert count(settings) == SENT
            door.let_go()
            assert_ends_when_it_wakes_up(first, tmp_path / "there.log")
        assert_written_by_the_second(settings)


def enter(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings of a host, in the environment of this process."""
    for name, value in environment.items():
        if name.startswith(("LEDGER_", "AWS_")):
            monkeypatch.setenv(name, value)
    return read_settings(environment)


@contextmanager
def ingestion_there(environment: dict[str, str], said: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The ingestion of the other host, a group of processes; what is left of it is killed."""
    words = ["unshare", "--uts", "sh", "-c", f'hostname {THERE}; exec "$0" "$@"', *COMMAND, "bronze"]
    with said.open("w") as log, subprocess.Popen(words, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True) as first:
        try:
            yield first
        finally:
            if first.poll() is None:
                os.killpg(first.pid, signal.SIGKILL)


def assert_ends_when_it_wakes_up(first: "subprocess.Popen[bytes]", said: Path) -> None:
    os.killpg(first.pid, signal.SIGCONT)
    assert first.wait(30) == 1
    assert "bronze has lost its leases (bronze.accounts, bronze.customers, bronze.transactions)" in said.read_text()


def assert_written_by_the_second(settings: Settings) -> None:
    """Each row is there once, and the leases were given back, not expired."""
    assert count(settings) == SENT
    found = control.query(TABLE.open(settings), "select count(*) as n from (select distinct _topic, _partition, _offset from t)")
    assert found["n"].to_pylist() == [SENT]
    table = TABLE.open(settings)
    assert table.metadata().configuration[EPOCH] == "2"
    assert next(commit["userMetadata"] for commit in table.history() if commit["operation"] == "WRITE").endswith('"epoch": 2}')
    await_that(lambda: not any(lease.is_held for lease in leases.read_all(settings)), seconds=10)


def count(settings: Settings) -> int:
    """The rows of bronze."""
    return sum(TABLE.open(settings).get_add_actions(flatten=True)["num_records"].to_pylist()) if TABLE.exists(settings) else 0
