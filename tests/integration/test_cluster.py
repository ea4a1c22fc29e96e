"""A standalone cluster as docker-compose.yaml sets it up: who gets in, what its pages and logs show, and that
executors reach tables in S3."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from spark_jobs.runtime.settings import ROOT
from tests.support.clusters import MASTER, WORKER, Cluster, running_cluster
from tests.support.object_storage import in_storage, running_s3
from tests.support.wire import is_answered

pytestmark = pytest.mark.integration

DRIVER = """
import sys
from pyspark.errors import PySparkException
from spark_jobs.runtime.session import start_session
from spark_jobs.runtime.settings import read_settings
from pyspark.sql import functions as F
settings = read_settings()
spark = start_session(settings, "of a test", {"spark.driver.host": "127.0.0.1"})
rows = spark.range(4).repartition(2).groupBy((F.col("id") % 2).alias("odd")).count()
rows.write.format("delta").save(f"{settings.warehouse}/rows")
print("rows", spark.read.format("delta").load(f"{settings.warehouse}/rows").count(), spark.sparkContext.uiWebUrl, flush=True)
try:
    spark.range(1).select(F.concat(F.lit("canary"), "id").cast("int")).collect()
except PySparkException:
    print("failed", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables by which clients reach an S3 server, keys included."""
    with running_s3(tmp_path_factory.mktemp("s3")) as (_, access):
        yield access


@pytest.fixture(scope="module")
def cluster(access: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), **access) as started:
        yield started


@dataclass(frozen=True)
class Driver:
    """An application that still runs, and the address of its pages."""

    process: "subprocess.Popen[str]"
    page: str


@pytest.fixture(scope="module")
def driver(cluster: Cluster, access: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """It has let the executors count rows, write them to S3 and read them, and has made one of them fail."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("LEDGER_")}
    own = {"LEDGER_HOME": str(tmp_path_factory.mktemp("home")), "LEDGER_POSTGRES_URL": "postgresql://nobody@127.0.0.1:9/none"}
    environ = {**outside, **cluster.environ, **access, **in_storage("cluster"), **own, "LEDGER_SPARK_UI": "on"}
    words = [sys.executable, "-c", DRIVER]
    with subprocess.Popen(words, cwd=ROOT, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        said = [process.stdout.readline().split() for _ in range(2)]
        assert (said[0][:2], said[1]) == (["rows", "2"], ["failed"])
        yield Driver(process, said[0][2])
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


def get(page: str) -> httpx.Response:
    """A page of Spark's, whose first answer takes long on a busy machine."""
    return httpx.get(page, follow_redirects=True, timeout=60).raise_for_status()


def test_the_masters_page_ends_nothing(cluster: Cluster, driver: Driver) -> None:
    page = f"http://{MASTER}:{cluster.page_port}"
    before = get(f"{page}/json/").json()["activeapps"]
    assert len(before) == 1
    assert "kill" not in get(page).text
    httpx.post(f"{page}/app/kill/", data={"id": before[0]["id"], "terminate": "true"}, timeout=60)
    assert httpx.post(f"{page}/workers/kill/", data={"host": WORKER}, timeout=60).status_code in (403, 404, 405)
    after = get(f"{page}/json/").json()
    assert [app["id"] for app in after["activeapps"]] == [before[0]["id"]]
    assert [worker["state"] for worker in after["workers"]] == ["ALIVE"]


def test_the_workers_page_is_for_its_own_host_only(cluster: Cluster) -> None:
    """It would show what executors log."""
    (port,) = (port for host, port in cluster.ports("worker") if host != WORKER)
    assert (MASTER, port) in cluster.ports("worker")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{WORKER}:{port}/")


def test_executors_leave_values_out_of_their_logs(cluster: Cluster, driver: Driver) -> None:
    logs = {file: file.read_text() for file in Path(cluster.folder / "work").rglob("stderr")}
    assert [file for file, text in logs.items() if "canary" in text] == []
    assert [file for file, text in logs.items() if "CAST_INVALID_INPUT] (not shown: it may quote a value)" in text]


def command_line(process: psutil.Process) -> list[str]:
    """Of a process that has ended meanwhile, nothing."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def test_secrets_are_in_no_command_line_no_log_and_no_page(cluster: Cluster, access: dict[str, str], driver: Driver) -> None:
    keys = [access["AWS_ACCESS_KEY_ID"], access["AWS_SECRET_ACCESS_KEY"]]
    secrets = [cluster.environ["_SPARK_AUTH_SECRET"], *keys]
    texts = {str(file): file.read_text(errors="replace") for file in cluster.folder.rglob("*") if file.is_file()}
    for process in (psutil.Process(driver.process.pid), *cluster.processes.values()):
        for each in (process, *process.children(recursive=True)):
            texts[f"process {each.pid}"] = " ".join(command_line(each))
    (application,) = get(api := f"{driver.page}/api/v1/applications").json()  # from here the pages have their values
    values = [f"{api}/{application['id']}/{part}" for part in ("environment", "allexecutors")]
    pages = [*values, f"{driver.page}/environment/", f"http://{MASTER}:{cluster.page_port}/json/"]
    texts |= {page: get(page).text for page in pages}
    assert "fs.s3a.endpoint" in texts[pages[0]]
    assert [(name, number) for name, text in texts.items() for number, secret in enumerate(secrets) if secret in text] == []
