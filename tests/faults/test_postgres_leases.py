"""Leases of several hosts: nobody writes what another host may write, whatever pauses, dies or is cut off."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from include.stack.shutdown import stop_parts
from spark_jobs import control
from spark_jobs.lake import leases, postgres_leases, tables
from spark_jobs.lake.postgres_leases import EPOCH
from spark_jobs.lake.tables import DISTRICTS
from spark_jobs.runtime.errors import LeaseHeld, LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support import databases

OURS = {"district_id": 1, "name": "ours", "region": None}
# A job of another host, as far as leases can tell: it writes a row at each line that it gets, and times pass quickly for it, too.
_JOB = """
import logging, socket, sys
socket.gethostname = lambda: "elsewhere"
from spark_jobs import control
from spark_jobs.lake import leases, postgres_leases, tables
from spark_jobs.runtime.settings import read_settings

logging.basicConfig(stream=sys.stderr, level="INFO")
postgres_leases.LEASE_SECONDS, postgres_leases.STOP_SECONDS, postgres_leases.RENEW_SECONDS = 3, 2, 0.2
settings = read_settings()
with leases.hold(settings, [tables.DISTRICTS], "a job elsewhere", wait_seconds=0):
    print("holds", flush=True)
    for _ in sys.stdin:
        control.append_under_lease(settings, tables.DISTRICTS, [{"district_id": 2, "name": "theirs"}])
        print("wrote", flush=True)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("postgres")


@pytest.fixture(scope="module")
def url(home: Path) -> Iterator[str]:
    with databases.running_postgres(home) as url:
        yield url


@pytest.fixture
def environment(url: str, tmp_path: Path) -> dict[str, str]:
    return {"LEDGER_HOME": str(tmp_path), "LEDGER_POSTGRES_URL": url, "LEDGER_HOSTS": "several"}


@pytest.fixture
def settings(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name, seconds in (("LEASE_SECONDS", 3), ("STOP_SECONDS", 2), ("RENEW_SECONDS", 0.2)):
        monkeypatch.setattr(postgres_leases, name, seconds)
    settings = read_settings(environment)
    tables.ensure_tables(settings, [DISTRICTS])
    return settings


@contextmanager
def job_elsewhere(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A job that holds the lease, and writes when it is asked to."""
    pipe = subprocess.PIPE
    env = {**os.environ, **environment}
    with subprocess.Popen([sys.executable, "-c", _JOB], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env) as job:
        try:
            assert job.stdout
            assert job.stdout.readline() == "holds\n"
            yield job
        finally:
            job.kill()


def write(job: subprocess.Popen[str]) -> str:
    """Ask a job to write; its answer."""
    ask(job)
    assert job.stdout
    return job.stdout.readline()


def ask(job: subprocess.Popen[str]) -> None:
    assert job.stdin
    job.stdin.write("\n")
    job.stdin.flush()


def ending(job: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code and the last line of its log."""
    assert job.stderr
    return job.wait(20), job.stderr.read().splitlines()[-1]


def names(settings: Settings) -> list[str]:
    return sorted(row["name"] for row in control.read(settings, DISTRICTS).to_pylist())


def take_and_write(settings: Settings, wait_seconds: float) -> float:
    """Take the lease and write a row; how long that took."""
    began = time.monotonic()
    with leases.hold(settings, [DISTRICTS], "a job here", wait_seconds):
        took = time.monotonic() - began
        control.append_under_lease(settings, DISTRICTS, [OURS])
    return took


def epoch_of(settings: Settings) -> str | None:
    return DISTRICTS.open(settings).metadata().configuration.get(EPOCH)


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_one_host_at_a_time_has_a_lease_and_it_passes_on_at_once_when_it_is_given_back(
    environment: dict[str, str], settings: Settings
) -> None:
    with job_elsewhere(environment) as job:
        assert write(job) == "wrote\n"
        with pytest.raises(LeaseHeld, match=rf"control\.districts is being written by a job elsewhere \(process {job.pid} on elsewhere"):
            take_and_write(settings, wait_seconds=0)
        assert leases.read_all(settings) == [leases.Lease(DISTRICTS.name, 1, is_held=True)]
        job.communicate(timeout=20)
        assert take_and_write(settings, wait_seconds=0) < 1
        assert leases.read_all(settings) == [leases.Lease(DISTRICTS.name, 2, is_held=False)]
    assert names(settings) == ["ours", "theirs"]
    assert [DISTRICTS.open(settings).history(1)[0]["userMetadata"]] == ['{"epoch": 2}']
    assert epoch_of(settings) == "1"  # set by the first holder: nobody knew who had it before. The second knew that it was given back


def test_a_lease_that_was_given_back_is_free_before_postgres_has_ended_its_connection(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_still: list[Any] = []
    monkeypatch.setattr(postgres_leases.PostgresLeases, "_close", lambda leases: open_still.append(leases._connection))
    for _ in range(2):
        with leases.hold(settings, [DISTRICTS], "maintenance", wait_seconds=0):
            pass


def test_a_job_that_is_paused_has_lost_its_lease_when_it_wakes_up_and_writes_nothing(
    environment: dict[str, str], settings: Settings
) -> None:
    with job_elsewhere(environment) as job:
        os.kill(job.pid, signal.SIGSTOP)
        ask(job)  # what it does first when it wakes up
        assert 1 < take_and_write(settings, wait_seconds=20) < 10
        os.kill(job.pid, signal.SIGCONT)
        code, line = ending(job)
    assert (code, "a job elsewhere has lost its leases (control.districts)" in line) == (1, True), line
    assert names(settings) == ["ours"]
    assert epoch_of(settings) == "2"


def test_a_killed_job_keeps_others_out_until_its_time_is_over(environment: dict[str, str], settings: Settings) -> None:
    """Its connection ends with it; so does one that a network cuts, and then its job still lives."""
    with job_elsewhere(environment) as job:
        job.kill()
        job.wait(10)
        with pytest.raises(LeaseHeld, match="a job elsewhere"):
            take_and_write(settings, wait_seconds=0)
        assert take_and_write(settings, wait_seconds=20) < 5


def test_postgres_starts_again_and_nobody_else_takes_over(home: Path, environment: dict[str, str], settings: Settings) -> None:
    with job_elsewhere(environment) as job:
        stop_parts(home, None, lambda _: None)
        with pytest.raises(LedgerError, match=r"control\.districts: its lease is in Postgres, which does not answer .* correct LEDGER_"):
            take_and_write(settings, wait_seconds=0)
        databases.start(home)
        with pytest.raises(LeaseHeld, match="a job elsewhere"):
            take_and_write(settings, wait_seconds=0)
        if job.poll() is None:  # Postgres was back before its time was over
            assert write(job) == "wrote\n"


def test_postgres_is_away_and_the_holder_ends_before_the_lease_can_pass_on(
    home: Path, environment: dict[str, str], settings: Settings
) -> None:
    with job_elsewhere(environment) as job:
        began = time.monotonic()
        stop_parts(home, None, lambda _: None)
        code, line = ending(job)
        assert (code, time.monotonic() - began < 3 + 2, "Postgres could not be told for 2 s that it lives" in line) == (1, True, True), line
        databases.start(home)
        take_and_write(settings, wait_seconds=20)


def test_a_job_that_died_on_this_host_holds_up_nobody(environment: dict[str, str], settings: Settings) -> None:
    script = _JOB.replace('socket.gethostname = lambda: "elsewhere"', "").partition("    for _")[0] + "    import os; os._exit(9)"
    assert subprocess.run([sys.executable, "-c", script], env={**os.environ, **environment}, check=False).returncode == 9
    assert take_and_write(settings, wait_seconds=0) < 1


def test_two_threads_of_a_process_do_not_share_a_lease(settings: Settings) -> None:
    with (
        leases.hold(settings, [DISTRICTS], "one"),
        pytest.raises(LeaseHeld, match="is being written by one"),
        leases.hold(settings, [DISTRICTS], "other", wait_seconds=0),
    ):
        pass


def test_who_takes_hosts_for_one_is_refused(environment: dict[str, str], settings: Settings) -> None:
    take_and_write(settings, wait_seconds=0)
    alone = read_settings(environment | {"LEDGER_HOSTS": "one"})
    with pytest.raises(SettingsError, match=r"LEDGER_HOSTS: found one, and a warehouse whose leases are in Postgres .* expected several"):
        take_and_write(alone, wait_seconds=0)
    with pytest.raises(SettingsError, match="LEDGER_HOSTS: found several and no LEDGER_POSTGRES_URL"):
        read_settings({name: value for name, value in environment.items() if name != "LEDGER_POSTGRES_URL"})


def test_another_database_begins_above_the_epoch_that_a_table_remembers(settings: Settings, url: str) -> None:
    for epoch in (1, 2, 3):
        take_and_write(settings, wait_seconds=0)
        assert epoch_of(settings) == str(epoch)
        assert DISTRICTS.open(settings).history(1)[0]["userMetadata"] == f'{{"epoch": {epoch}}}'
        databases.execute(url, "delete from ledger_leases")
