"""Alerts and the dashboard, by Debian's own Prometheus: every alert fires on its fault and on none before, every query answers."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from include.docs.generate import FOLDER
from include.metrics.airflow import Received
from include.metrics.series import SERIES
from include.stack import prometheus as stack
from spark_jobs.runtime.settings import ROOT, Settings, read_settings
from spark_jobs.service.services import LIVE
from tests.support import metrics_home
from tests.support.prometheus import RULES, await_until, program, scraping

DASHBOARD = ROOT / "include/grafana/ledger.json"
CASES = Path(__file__).parent / "rules_test.yml"
ALERTS = [rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
NAME = re.compile(r"\bledger_\w+")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = read_settings({"LEDGER_HOME": str(tmp_path / "home")})
    metrics_home.make(made)
    return made


def promtool(*words: str) -> str:
    done = subprocess.run([program("promtool"), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_can_be_used() -> None:
    assert f"SUCCESS: {len(ALERTS)} rules found" in promtool("check", "rules", str(RULES))


def test_every_rule_fires_when_it_should_and_not_before() -> None:
    promtool("test", "rules", str(CASES))
    cases = yaml.safe_load(CASES.read_text())["tests"]
    expected = {alert["alertname"]: bool(alert.get("exp_alerts")) for case in cases for alert in case["alert_rule_test"]}
    silent = {alert["alertname"] for case in cases for alert in case["alert_rule_test"] if not alert.get("exp_alerts")}
    assert expected.keys() == silent == set(ALERTS)


def test_the_settings_of_both_servers_can_be_used(tmp_path: Path) -> None:
    ports = dict(zip(stack.PARTS, (15001, 15002, 15003), strict=True))
    stack._commands(read_settings({"LEDGER_HOME": str(tmp_path)}), ports, list(stack.PARTS))
    promtool("check", "config", str(tmp_path / "stack/prometheus/prometheus.yml"))
    amtool = [program("amtool"), "check-config", str(ROOT / "include/prometheus/alertmanager.yml")]
    assert "SUCCESS" in subprocess.run(amtool, capture_output=True, text=True, check=True).stdout


def test_every_alert_says_what_it_means_and_where_the_runbook_says_what_to_do() -> None:
    titles = re.findall(r"^### (\w+)$", (FOLDER / "runbook.md").read_text(), re.MULTILINE)
    assert titles == ALERTS
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            notes, anchor = rule["annotations"], rule["annotations"]["runbook_url"].rpartition("#")[2]
            assert notes.keys() == {"summary", "description", "runbook_url"}
            assert anchor in {title.lower() for title in titles}
            assert rule["labels"]["severity"] in ("warning", "critical")


def test_rules_and_dashboard_name_series_that_there_are() -> None:
    named = set(NAME.findall(RULES.read_text()) + NAME.findall(DASHBOARD.read_text()))
    assert named
    assert named <= {series.name for series in SERIES}


def test_each_alert_fires_once_its_fault_is_made_and_every_query_of_the_dashboard_answers(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow = Received()
    with scraping(settings, tmp_path, airflow) as prometheus:
        seconds = iter(range(1, 1000))

        def is_well() -> bool:  # a scrape that comes too late is metrics that are missing, for a moment
            metrics_home.ingest(settings, next(seconds))
            metrics_home.beat(settings, LIVE, {"alerts": metrics_home.following()})
            airflow.take(metrics_home.AIRFLOW)
            return bool(prometheus.query("rate(ledger_query_rows_total[5m]) > 0")) and not prometheus.firing()

        await_until(is_well, lambda: (prometheus.query("up"), prometheus.firing()))
        metrics_home.run(settings, "gold", 0)
        metrics_home.take_bad_rows(settings)  # a first bad run: the share is of what came since the first scrape
        metrics_home.hold_back(settings)
        metrics_home.close_gate(settings)
        metrics_home.run(settings, "silver", 1, 1, 5)

        def are_seen() -> bool:
            airflow.take(metrics_home.AIRFLOW)
            return {"LedgerGateClosed", "LedgerReleaseTooOld"} <= prometheus.firing()

        await_until(are_seen, prometheus.firing)
        silent = {query: answer for query in queries() if not (answer := prometheus.query(query))}
        assert silent == {"ledger_scrape_errors > 0": []}  # nothing is wrong with the exporter, yet
        metrics_home.take_bad_rows(settings, metrics_home.RUNS + 2)
        metrics_home.die(settings)
        metrics_home.fall_silent(settings)
        airflow.take("dag_processing.import_errors:2|g")  # and no heartbeat from now on
        usage = shutil.disk_usage(tmp_path)
        full = type(usage)(usage.total, usage.total * 19 // 20, usage.total // 20)
        monkeypatch.setattr("include.metrics.host.shutil.disk_usage", lambda _: full)
        later = {"LedgerMetricsMissing", "LedgerMetricsPartMissing"}
        await_until(lambda: set(ALERTS) - later == prometheus.firing(), lambda: set(ALERTS) ^ prometheus.firing())
        metrics_home.damage(settings)
        await_until(lambda: "LedgerMetricsPartMissing" in prometheus.firing(), prometheus.firing)
        prometheus.stop_exporter()
        await_until(lambda: "LedgerMetricsMissing" in prometheus.firing(), prometheus.firing)


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert [panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"] == [
        *("Is data fresh?", "Is it right?", "Does it keep up?", "What does it cost?"),
    ]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    taken = [
        (x, y) for place in places for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24
    assert all(target["datasource"]["uid"] == "${datasource}" for panel in dashboard["panels"] for target in panel.get("targets", ()))


def queries() -> list[str]:
    """Every query of the dashboard."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(found) > 30
    return found
