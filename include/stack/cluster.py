"""On request: a Spark standalone cluster of one master and two workers, as processes on loopback."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from include.stack.endpoints import HOST, claim_port, ports_of, secret, stack_folder
from include.stack.processes import Running, find_part, start, wait_until
from spark_jobs.runtime.settings import CLUSTER_SECRET, ROOT

MASTER, WORKERS = "spark-master", ("spark-worker-1", "spark-worker-2")
PARTS = (MASTER, *WORKERS)
# An application takes a core of each worker (spark.deploy.defaultCores in cluster.conf), and there an executor with 1 GB of heap. So these
# say how many applications run at a time, not how fast: the workers share the cores of this machine.
WORKER_CORES, WORKER_MEMORY = 4, "4g"
READY_SECONDS = 60
_SETTINGS = ROOT / "include/spark/cluster.conf"


def own_master(home: Path) -> str | None:
    """The address for LEDGER_SPARK_MASTER at which the master of this home listens, or would after a start; None before the first one."""
    port = ports_of(home).get(MASTER)
    return f"spark://{HOST}:{port}" if port else None


def own_page(home: Path) -> str | None:
    """Where the master shows workers and applications."""
    port = ports_of(home).get(f"{MASTER}-page")
    return f"http://{HOST}:{port}" if port else None


def secret_file(home: Path) -> Path:
    """The file with the secret that master, workers and drivers share."""
    return home / "stack/spark/cluster.secret"


def launch(home: Path, storage: Mapping[str, str] | None = None) -> list[Running]:
    """Start what does not run, without waiting for it; returns what was started. `storage`: variables by which executors reach tables."""
    folder = stack_folder(home) / "spark"
    folder.mkdir(exist_ok=True)
    started = []
    for part in PARTS:
        if find_part(home, part):
            continue
        shutil.rmtree(scratch(home, part), ignore_errors=True)  # of a worker that was killed
        environment = (
            _environment() | dict(storage or {}) | {CLUSTER_SECRET: secret(secret_file(home)), "SPARK_LOCAL_DIRS": str(scratch(home, part))}
        )
        words = _master(home) if part == MASTER else _worker(home, folder / part)
        started.append(start(home, part, [*words, "--properties-file", str(_SETTINGS)], environment, log_file(home, part)))
    return started


def wait(home: Path, started: list[Running]) -> None:
    """Return when the master knows both workers; raises LedgerError when one of those that were started does not come up."""
    if started:
        wait_until(lambda: living_workers(home) == len(WORKERS), started, READY_SECONDS)


def living_workers(home: Path) -> int:
    """How many workers the master counts on now; 0 where it does not answer."""
    return len([worker for worker in _state(home).get("workers", []) if worker["state"] == "ALIVE"])


def log_file(home: Path, part: str) -> Path:
    """What a part says."""
    return home / "stack/spark" / f"{part}.log"


def scratch(home: Path, part: str) -> Path:
    """Where the executors of a worker keep what they pass on to each other."""
    return home / "stack/spark" / f"{part}.scratch"


def _state(home: Path) -> dict[str, Any]:
    try:
        return dict(httpx.get(f"{own_page(home)}/json/", timeout=5, trust_env=False).json())
    except (httpx.HTTPError, ValueError):
        return {}


def _master(home: Path) -> list[str]:
    ports = [str(claim_port(home, name)) for name in (MASTER, f"{MASTER}-page")]
    return [_launcher(), "org.apache.spark.deploy.master.Master", "--host", HOST, "--port", ports[0], "--webui-port", ports[1]]


def _worker(home: Path, work: Path) -> list[str]:
    room = ["--cores", str(WORKER_CORES), "--memory", WORKER_MEMORY, "--work-dir", str(work)]
    return [_launcher(), "org.apache.spark.deploy.worker.Worker", "--host", HOST, *room, "--webui-port", "0", own_master(home) or ""]


def _launcher() -> str:
    return str(Path(_environment()["SPARK_HOME"]) / "bin/spark-class")


def _environment() -> dict[str, str]:
    """What Spark's own processes must know, and with them the executors; the addresses of their pages among it."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ", "JAVA_HOME") if name in os.environ}
    home = next(ROOT.glob(".venv/lib/python3*/site-packages/pyspark"))
    return kept | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "256m"}
