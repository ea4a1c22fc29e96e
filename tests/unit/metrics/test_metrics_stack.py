"""What `make up WITH=prometheus` starts: three servers on loopback that find each other, and that `make down` stops."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from include.stack import __main__ as command, lifecycle, prometheus
from include.stack.processes import find_all
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support import metrics_home
from tests.support.prometheus import RULES, await_until, program


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    made = read_settings({"LEDGER_HOME": str(tmp_path / "home")})
    yield made
    lifecycle.down({"LEDGER_HOME": str(made.home)}, report=lambda _: None)


def ask(url: str, path: str, **words: str) -> Any:
    return httpx.get(f"{url}{path}", params=words, trust_env=False, timeout=60).raise_for_status().json()["data"]


def test_the_three_find_each_other_on_loopback_and_down_stops_them(settings: Settings) -> None:
    for name in prometheus.PROGRAMS.values():
        program(name)
    metrics_home.make(settings)
    started = prometheus.launch(settings)
    prometheus.wait(settings.home, started)
    assert [part.part for part in started] == list(prometheus.PARTS)
    told = lifecycle.status({"LEDGER_HOME": str(settings.home)})
    assert [told[part.upper().replace("-", "_")] for part in prometheus.PARTS] == ["running"] * 3
    url = told["PROMETHEUS_URL"]
    assert "ledger_release 3.0" in httpx.get(f"{told['METRICS_URL']}/metrics", trust_env=False, timeout=60).text

    def is_scraped() -> bool:
        found = ask(url, "/api/v1/query", query="ledger_release")["result"]
        return [sample["value"][1] for sample in found] == ["3"]

    def knows_alertmanager() -> bool:
        return [each["url"] for each in ask(url, "/api/v1/alertmanagers")["activeAlertmanagers"]] == [
            f"{told['ALERTMANAGER_URL']}/api/v2/alerts"
        ]

    await_until(lambda: is_scraped() and knows_alertmanager(), prometheus.log_file(settings.home, "prometheus").read_text)
    assert {group["file"] for group in ask(url, "/api/v1/rules")["groups"]} == {str(RULES)}
    assert ask(url, "/api/v1/status/flags")["storage.tsdb.retention.time"] == "15d"
    listening = {connection.laddr.ip for process in find_all(settings.home) for connection in sockets(process)}
    assert listening == {"127.0.0.1"}
    assert prometheus.launch(settings) == []  # a second time starts nothing
    lifecycle.down({"LEDGER_HOME": str(settings.home)}, report=lambda _: None)
    assert find_all(settings.home) == []
    told = lifecycle.status({"LEDGER_HOME": str(settings.home)})
    assert [told[name] for name in prometheus.URLS.values()] == ["", "", ""]


def test_it_says_what_to_install_before_it_starts_anything(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LedgerError, match=r"^found no prometheus and no prometheus-alertmanager, expected Debian's: run apt-get install"):
        lifecycle.up({"LEDGER_HOME": str(settings.home)}, report=lambda _: None, with_prometheus=True)
    assert find_all(settings.home) == []


def test_another_word_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        command.main(["up", "--with", "grafana"])
    assert refused.value.code == 2
    assert "found 'grafana', expected some of prometheus, cluster, s3" in capsys.readouterr().err


def sockets(process: psutil.Process) -> list[Any]:
    return [each for each in process.net_connections(kind="tcp") if each.status == psutil.CONN_LISTEN]
