"""Faults around the driver: a full disk, an executor that is killed, and Airflow, part by part and as a whole."""

import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from include.demo.waiting import wait_for_dags
from include.stack import airflow
from include.stack.airflow_api import AirflowApi
from include.stack.lifecycle import down, up
from include.stack.processes import find_all
from spark_jobs.runtime.settings import Settings, read_endpoints, read_settings
from spark_jobs.service import heartbeat
from spark_jobs.service.services import INGESTION
from tests.support import fault_harness as harness
from tests.support.clusters import running_cluster
from tests.support.fault_harness import SEED
from tests.support.ledger import await_that

pytestmark = [pytest.mark.faults, pytest.mark.soak]

RATE = 300


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """A file system of its own, in memory, of this size."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="a file system can only be mounted as root")
@pytest.mark.parametrize("place", ["warehouse", "checkpoints"])
def test_a_full_disk_stops_it_with_a_clear_error_until_there_is_room(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    disk = tmp_path / place
    other = "checkpoints" if place == "warehouse" else "warehouse"
    monkeypatch.setenv(f"LEDGER_{place.upper()}", str(disk))
    monkeypatch.setenv(f"LEDGER_{other.upper()}", str(tmp_path / other))
    small = read_settings()
    with small_disk(disk, 64), harness.load(small.broker().servers, SEED, RATE) as sent, harness.supervised(small) as watched:
        await_that(lambda: harness.versions(small) > 1)
        ballast = disk / "ballast"
        fill(ballast)
        await_that(lambda: "No space left on device" in said(watched), 90)
        harness.pause(10)
        ballast.unlink()
        harness.settle(small, sent, 150, SEED)


def said(watched: harness.Watched) -> str:
    """What the heartbeat says of transactions."""
    return str(watched.beat().facts["topics"]["transactions"].get("error"))


def fill(file: Path) -> None:
    """Write until the disk is full."""
    with open(file, "wb") as ballast:
        try:
            while True:
                ballast.write(bytes(1 << 16))
                ballast.flush()
        except OSError:
            pass


def test_an_executor_is_killed(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WAREHOUSE", "CHECKPOINTS"):
        monkeypatch.setenv(f"LEDGER_{name}", str(tmp_path / name))
    with running_cluster(tmp_path) as cluster:
        for name, value in cluster.environ.items():
            monkeypatch.setenv(name, value)
        own = read_settings()
        with harness.load(own.broker().servers, SEED, RATE) as sent, harness.supervised(own) as watched:
            await_that(lambda: harness.versions(own) > 1)
            driver = watched.driver()
            for _ in range(3):
                (executor,) = executors(tmp_path)
                executor.kill()
                harness.await_commits(own, 2)
            harness.settle(own, sent, 90, SEED)
            assert watched.driver() == driver


def test_each_topic_in_an_application_of_its_own(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WAREHOUSE", "CHECKPOINTS"):
        monkeypatch.setenv(f"LEDGER_{name}", str(tmp_path / name))
    own = read_settings()
    with harness.load(own.broker().servers, SEED, RATE) as sent, ExitStack() as running:
        watched = {topic: running.enter_context(harness.supervised(own, (topic,))) for topic in harness.TOPICS}
        await_that(lambda: all(each.exists() and each.beat().state == heartbeat.RUNNING for each in watched.values()), 180)
        others = [watched[topic].driver() for topic in ("customers", "accounts")]
        watched["transactions"].driver().kill()
        harness.settle(own, sent, 120, SEED)
        assert [watched[topic].driver() for topic in ("customers", "accounts")] == others


def executors(folder: Path) -> list[psutil.Process]:
    """The executors of the cluster, once there are some."""
    found: list[psutil.Process] = []

    def find() -> bool:
        found[:] = [each for each in psutil.process_iter() if is_executor(each, folder)]
        return bool(found)

    await_that(find, 60)
    return found


def is_executor(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.name() == "java" and "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()) and str(folder) in process.cwd()
    except psutil.Error:
        return False


def test_whatever_happens_to_airflow_does_not_happen_to_ingestion(tmp_path: Path) -> None:
    """Each part killed, pairs of them, the whole stopped and started as for an upgrade: one application all the time, no gap."""
    home = tmp_path / "home"
    environ = {"LEDGER_HOME": str(home)}
    try:
        settings = up(environ, report=lambda _: None)
        api = AirflowApi(read_endpoints(home)["airflow_url"], airflow.USER, airflow.password_file(home).read_text())
        wait_for_dags(api, "bronze_ingestion")
        api.unpause("bronze_ingestion")
        with harness.load(settings.broker().servers, SEED, RATE) as sent:
            await_that(lambda: harness.versions(settings) > 1)
            first = beat(settings)
            parts = list(airflow.COMMANDS)
            pairs = random.Random(SEED).sample([[a, b] for a in parts for b in parts if a < b], 2)
            for victims in [*([part] for part in parts), *pairs, parts]:
                for process in find_all(home, victims):
                    process.kill()
                harness.await_commits(settings, 2, 30)
                up(environ, report=lambda _: None)
                await_that(lambda: "deferred" in states(api), 120)
                assert beat(settings) == first, victims
            psutil.Process(int(first["pid"])).kill()  # Airflow has found it again: it is replaced as ever
            begun = time.monotonic()
            await_that(lambda: beat(settings) != first, 75)
            print(f"seed {SEED}: replaced after {time.monotonic() - begun:.1f} s")
            harness.settle(settings, sent, 90, SEED)
    finally:
        down(environ, report=lambda _: None)


def states(api: AirflowApi) -> set[str]:
    """The states of the tasks of bronze_ingestion that have not ended."""
    return {state or "" for run in api.runs("bronze_ingestion", "running") for state in api.task_states("bronze_ingestion", run).values()}


def beat(settings: Settings) -> dict[str, float]:
    """Which process ingests."""
    found = heartbeat.read_one(settings, INGESTION, "bronze")
    assert found
    return dict(found.facts["process"])
