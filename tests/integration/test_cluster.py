"""A standalone cluster as docker-compose.yaml sets it up: who gets in, and what its pages and logs show."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from spark_jobs.runtime.settings import ROOT
from tests.support.clusters import MASTER, WORKER, Cluster, running_cluster
from tests.support.wire import is_answered

pytestmark = pytest.mark.integration

DRIVER = """
import sys
from pyspark.errors import PySparkException
from spark_jobs.runtime.session import start_session
from spark_jobs.runtime.settings import read_settings
from pyspark.sql import functions as F
spark = start_session(read_settings(), "of a test", {"spark.driver.host": "127.0.0.1"})
print("rows", spark.range(4).repartition(2).groupBy((F.col("id") % 2)).count().count(), flush=True)
try:
    spark.range(1).select(F.concat(F.lit("canary"), "id").cast("int")).collect()
except PySparkException:
    print("failed", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module")
def driver(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator["subprocess.Popen[str]"]:
    """An application that has counted rows on the executors and made one of them fail; it still runs."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("LEDGER_")}
    environ = {**outside, **cluster.environ, "LEDGER_HOME": str(tmp_path_factory.mktemp("home"))}
    words = [sys.executable, "-c", DRIVER]
    with subprocess.Popen(words, cwd=ROOT, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert [process.stdout.readline().strip() for _ in range(2)] == ["rows 2", "failed"]
        yield process
        process.communicate("")


@pytest.mark.parametrize("endpoint", ["endpoint-verifier", "Master"])
def test_the_master_answers_nobody_without_the_secret(cluster: Cluster, endpoint: str) -> None:
    assert not is_answered(MASTER, cluster.master_port, endpoint)


@pytest.mark.parametrize("endpoint", ["endpoint-verifier", "Worker"])
def test_the_worker_answers_nobody_without_the_secret(cluster: Cluster, endpoint: str) -> None:
    (port,) = (port for host, port in cluster.ports("worker") if host == WORKER)
    assert not is_answered(WORKER, port, endpoint)


def test_the_master_listens_for_the_cluster_and_for_its_page_only(cluster: Cluster) -> None:
    assert {port for _, port in cluster.ports("master")} == {cluster.master_port, cluster.page_port}


def test_the_masters_page_ends_nothing(cluster: Cluster, driver: "subprocess.Popen[str]") -> None:
    page = f"http://{MASTER}:{cluster.page_port}"
    before = httpx.get(f"{page}/json/").json()["activeapps"]
    assert len(before) == 1
    assert "kill" not in httpx.get(page).text
    httpx.post(f"{page}/app/kill/", data={"id": before[0]["id"], "terminate": "true"})
    assert httpx.post(f"{page}/workers/kill/", data={"host": WORKER}).status_code in (403, 404, 405)
    after = httpx.get(f"{page}/json/").json()
    assert [app["id"] for app in after["activeapps"]] == [before[0]["id"]]
    assert [worker["state"] for worker in after["workers"]] == ["ALIVE"]


def test_the_workers_page_is_for_its_own_host_only(cluster: Cluster) -> None:
    """It would show what executors log."""
    (port,) = (port for host, port in cluster.ports("worker") if host != WORKER)
    assert (MASTER, port) in cluster.ports("worker")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{WORKER}:{port}/")


def test_executors_leave_values_out_of_their_logs(cluster: Cluster, driver: "subprocess.Popen[str]") -> None:
    logs = {file: file.read_text() for file in Path(cluster.folder / "work").rglob("stderr")}
    assert [file for file, text in logs.items() if "canary" in text] == []
    assert [file for file, text in logs.items() if "CAST_INVALID_INPUT] (not shown: it may quote a value)" in text]


def command_line(process: psutil.Process) -> list[str]:
    """Of a process that has ended meanwhile, nothing."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def test_the_secret_is_in_no_command_line_and_no_log(cluster: Cluster, driver: "subprocess.Popen[str]") -> None:
    secret = cluster.environ["_SPARK_AUTH_SECRET"]
    assert [file for file in cluster.folder.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()] == []
    words = [word for process in cluster.processes["worker"].children(recursive=True) for word in command_line(process)]
    assert words
    assert [word for word in words if secret in word] == []
