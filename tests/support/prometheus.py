"""A real Prometheus that scrapes an exporter of a home once a second, for as long as a test needs it."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import start_http_server

from include.metrics.airflow import Received
from include.metrics.exporter import registry
from spark_jobs.runtime.settings import ROOT, Settings

RULES = ROOT / "include/prometheus/rules.yml"


def program(name: str) -> str:
    """The path of a program of Debian's Prometheus; the test is skipped without it."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"found no {name} on the PATH, expected Debian's: apt-get install prometheus prometheus-alertmanager")
    return found


class Prometheus:
    """The server: its queries, and the alerts that fire."""

    def __init__(self, port: int, stop_exporter: Callable[[], None]) -> None:
        self.stop_exporter, self.address = stop_exporter, f"http://127.0.0.1:{port}"
        self._client = httpx.Client(base_url=self.address, trust_env=False, timeout=10)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The answer to an instant query; fails where Prometheus refuses it."""
        answer = self._client.get("/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", f"{expression}: {answer.get('error')}"
        return list(answer["data"]["result"])

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        alerts = self._client.get("/api/v1/alerts").json()["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def is_ready(self) -> bool:
        try:
            return self._client.get("/-/ready").is_success
        except httpx.HTTPError:
            return False


def await_until(is_so: Callable[[], bool], what: Callable[[], object]) -> None:
    """Return as soon as it is so, asked three times a second; fails with `what` after two minutes, which a busy machine may need."""
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline, what()
        time.sleep(0.3)


@contextmanager
def scraping(settings: Settings, folder: Path, airflow: Received | None = None) -> Iterator[Prometheus]:
    """Prometheus with the project's rules, but for the times that a fault must last, over an exporter of this process."""
    server, thread = start_http_server(0, "127.0.0.1", registry(settings, airflow))
    port, log = _free_port(), folder / "prometheus.log"
    rules = yaml.safe_load(RULES.read_text().replace("[2m]", "[5s]"))
    for group in rules["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            rule.pop("for", None)
    (folder / "rules.yml").write_text(json.dumps(rules))
    target = [{"targets": [f"127.0.0.1:{server.server_port}"]}]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / "rules.yml")],
        "scrape_configs": [{"job_name": "ledger", "static_configs": target}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    words = [program("prometheus"), f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    with open(log, "wb") as output:
        running = subprocess.Popen([*words, f"--web.listen-address=127.0.0.1:{port}"], stdout=output, stderr=output)

    def stop_exporter() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    prometheus = Prometheus(port, stop_exporter)
    try:
        await_until(prometheus.is_ready, log.read_text)
        yield prometheus
    finally:
        running.terminate()
        running.wait(10)
        stop_exporter()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
