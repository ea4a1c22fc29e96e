"""A standalone Spark of one master and one worker on this machine, set up as docker-compose.yaml does."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from include.stack.endpoints import port_is_free
from spark_jobs.runtime.settings import ROOT
from tests.support.ledger import await_that

QUICK = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}  # each JVM lives for a minute: the slow compiler takes more than it gives
SECRET = "drawn-for-a-test-0123456789"
MASTER, WORKER = "127.0.0.1", "127.0.0.2"  # as if they were two hosts


@dataclass(frozen=True)
class Cluster:
    """Where it listens. The worker's own page is on the loopback of its host only."""

    folder: Path
    master_port: int
    page_port: int
    processes: dict[str, psutil.Process]

    @property
    def environ(self) -> dict[str, str]:
        """What a driver finds in its environment."""
        return {"LEDGER_SPARK_MASTER": f"spark://{MASTER}:{self.master_port}", "_SPARK_AUTH_SECRET": SECRET}

    def ports(self, name: str) -> set[tuple[str, int]]:
        """Where `master` or `worker` listens."""
        found = self.processes[name].net_connections("tcp")
        return {(each.laddr.ip.removeprefix("::ffff:"), each.laddr.port) for each in found if each.status == psutil.CONN_LISTEN}


@contextmanager
def running_cluster(folder: Path, **more: str) -> Iterator[Cluster]:
    """Start it, with more variables, and its logs in a folder; it is stopped at the end, whatever happens."""
    port, page = (next(port for port in range(least, 17999) if port_is_free(port)) for least in (17077, 17500))
    home = Path(pyspark.__file__).parent
    launcher = [str(home / "bin/spark-class")]
    common = ["--properties-file", str(ROOT / "include/spark/cluster.conf")]
    worker = ["--host", WORKER, "--webui-port", "0", "--cores", "2", "--memory", "2g", "--work-dir", str(folder / "work")]
    words = {
        "master": ["org.apache.spark.deploy.master.Master", *common, "--host", MASTER, "--webui-port", str(page), "--port", str(port)],
        "worker": ["org.apache.spark.deploy.worker.Worker", *common, *worker, f"spark://{MASTER}:{port}"],
    }
    own = {"SPARK_HOME": str(home), "SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_IP": MASTER, "_SPARK_AUTH_SECRET": SECRET}
    environment = {**os.environ, **QUICK, **more, **own}
    ready = {"master": "I have been elected", "worker": "Successfully registered"}
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in words.items():
            log = folder / f"{name}.log"
            with open(log, "wb") as output:
                started[name] = subprocess.Popen([*launcher, *command], env=environment, stdout=output, stderr=output)
            await_log(log, ready[name])
        yield Cluster(folder, port, page, {name: psutil.Process(process.pid) for name, process in started.items()})
    finally:
        for process in reversed(started.values()):
            process.terminate()
            process.wait(20)


def await_log(file: Path, words: str) -> None:
    """Return when a log says so."""
    await_that(lambda: words in file.read_text(), 60)
