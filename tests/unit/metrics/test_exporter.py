"""The exporter says what is there, reads again only what changed, and serves the rest where a part cannot be read."""

import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from include.metrics import applications
from include.metrics.airflow import Received
from include.metrics.exporter import Exporter, registry
from include.metrics.series import COUNTER, SERIES, Sample
from include.metrics.warehouse import Cache
from spark_jobs.lake import leases, tables
from spark_jobs.runtime.settings import Settings, read_settings
from spark_jobs.service import desired_state
from spark_jobs.service.heartbeat import HeartbeatFile
from spark_jobs.service.services import INGESTION, LIVE
from tests.support import metrics_home, quality_rows

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = read_settings({"LEDGER_HOME": str(tmp_path / "home")})
    metrics_home.make(made)
    return made


def scrape(settings: Settings) -> Series:
    """What a scrape gives, as Prometheus parses it."""
    return parse(generate_latest(registry(settings)).decode())


def parse(text: str) -> Series:
    families = list(text_string_to_metric_families(text))
    return {(sample.name, frozenset(sample.labels.items())): sample.value for family in families for sample in family.samples}


def of(found: Series, name: str, **labels: str) -> float | None:
    return found.get((f"ledger_{name}", frozenset(labels.items())))


def test_tables_batches_releases_gates_and_quarantine_are_told(settings: Settings) -> None:
    found = scrape(settings)
    assert [of(found, f"table_{what}", table="control.batches") for what in ("rows", "files", "version")] == [9, 1, 1]
    assert (of(found, "table_bytes", table="control.batches") or 0) > 1000
    assert of(found, "rows_total", job_name="silver", table="silver.transactions", outcome="input") == 300
    assert of(found, "rows_total", job_name="silver", table="silver.transactions", outcome="quarantined") == 3
    assert of(found, "runs_total", job_name="silver", table="silver.transactions") == 3
    assert [of(found, "batch", topic="transactions", reached=where) for where in ("bronze", "silver", "release")] == [3, 3, 3]
    assert of(found, "release") == 3
    assert of(found, "release_table_version", table="gold.daily_totals") == 3
    assert of(found, "release_timestamp_seconds") == (quality_rows.done_at(3)).timestamp() + 60
    assert of(found, "release_newest_event_timestamp_seconds") == quality_rows.done_at(3).timestamp() - 120
    assert of(found, "unreleased_rows", topic="transactions") == 0
    assert of(found, "unreleased_since_timestamp_seconds") is None
    assert of(found, "gate_tables", layer="gold", state="passed") == len(tables.GOLD)
    assert of(found, "gate_closed", layer="silver", table="silver.transactions") == 0
    assert of(found, "quarantine_rows", topic="transactions", rule="type_known") == 5
    assert of(found, "late_rows", topic="transactions") == 3
    assert of(found, "job_ends_total", job_name="silver", exit_code="0") == 1
    assert of(found, "job_ends_total", job_name="silver", exit_code="killed") == 0


def test_applications_are_told_by_their_heartbeats(settings: Settings) -> None:
    found = scrape(settings)
    assert of(found, "application_state", service="bronze", application="bronze", state="running") == 1
    assert of(found, "application_state", service="bronze", application="bronze", state="dead") == 0
    query = {"service": "live", "query": "alerts"}
    assert [of(found, f"query_{what}", **query) for what in ("up", "failures", "state_rows", "batches_total")] == [1, 0, 70, 4]
    assert of(found, "query_phase_seconds_total", **query, phase="addBatch") == 3.5
    assert of(found, "query_watermark_timestamp_seconds", **query) == quality_rows.START.timestamp() + 600
    assert of(found, "query_offset", service="bronze", query="transactions", partition="1") == 300
    assert of(found, "query_pace", service="bronze", query="transactions", pace="keeping up") == 1
    desired_state.ask(settings, LIVE, desired_state.STOPPED, "an operator", "")
    metrics_home.die(settings)
    found = scrape(settings)
    assert of(found, "service_wanted", service="live") == 0
    assert of(found, "application_state", service="live", application="live", state="dead") == 1
    assert [of(found, f"query_{what}", **query) for what in ("up", "failures", "dropped_rows_total")] == [0, 4, 3]


def test_an_application_whose_topics_others_took_over_is_forgotten(settings: Settings) -> None:
    """As after LEDGER_BRONZE_APPLICATIONS=each: no alert about the one of before, and no topic twice."""
    metrics_home.beat(settings, INGESTION, dict.fromkeys(INGESTION.parts, metrics_home.ingesting(lag_records=9)))
    gone = INGESTION.folder(settings) / "bronze.heartbeat"
    for topic in INGESTION.parts:
        (gone.parent / f"bronze-{topic}.heartbeat").write_text(gone.read_text().replace('"bronze"', f'"bronze-{topic}"'))
        HeartbeatFile(settings, INGESTION, f"bronze-{topic}", [topic], "run", 2).beat(
            state="running", topics={topic: metrics_home.ingesting(lag_records=1)}
        )
    text = gone.read_text()
    gone.write_text(text.replace('"state": "running"', '"state": "ended"', 1).replace('"exit_code": null', '"exit_code": 1'))
    found = list(applications.read(settings))
    assert len({sample[:2] for sample in found}) == len(found)
    names = {labels[1] for name, labels, _ in found if name == "ledger_application_state" and labels[0] == "bronze"}
    assert names == {f"bronze-{topic}" for topic in INGESTION.parts}
    assert [value for name, labels, value in found if name == "ledger_query_lag_records" and labels[0] == "bronze"] == [1, 1, 1]


def test_the_holder_of_a_lease_is_seen_and_not_disturbed(settings: Settings) -> None:
    with leases.hold(settings, [tables.DAILY_TOTALS], "gold"):
        found = scrape(settings)
        assert of(found, "lease_held", lease="gold.daily_totals") == 1
    found = scrape(settings)
    assert of(found, "lease_held", lease="gold.daily_totals") == 0
    assert of(found, "lease_takes_total", lease="gold.daily_totals") == 1


def test_a_table_is_read_again_only_when_it_has_a_new_version(settings: Settings) -> None:
    reads: list[str] = []

    def read(_: Settings) -> Iterator[Sample]:
        reads.append("read")
        yield "ledger_release", (), float(len(reads))

    cache = Cache(settings)
    made_of = [tables.RELEASES, tables.BATCHES]
    assert [cache.get("key", made_of, read)[0][2] for _ in range(3)] == [1, 1, 1]
    metrics_home.take_bad_rows(settings)
    assert [cache.get("key", made_of, read)[0][2] for _ in range(2)] == [2, 2]


def test_a_second_scrape_sees_what_changed_since_the_first(settings: Settings) -> None:
    exporter = Exporter(settings)
    first = {family.name: family.samples for family in exporter.collect()}
    metrics_home.take_bad_rows(settings)
    metrics_home.hold_back(settings)
    metrics_home.close_gate(settings)
    second = {sample.name: sample for family in exporter.collect() for sample in family.samples if not sample.labels}
    assert "ledger_unreleased_since_timestamp_seconds" not in first
    assert "ledger_unreleased_since_timestamp_seconds" in second
    found = scrape(settings)
    assert of(found, "gate_tables", layer="silver", state="closed") == 1
    assert of(found, "gate_verdicts", layer="silver", outcome="failed") == 1
    assert of(found, "unreleased_rows", topic="transactions") == 1


def test_a_part_that_cannot_be_read_takes_no_other_with_it(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    before = scrape(settings)
    metrics_home.damage(settings)
    exporter = Exporter(settings)
    found = parse(generate_latest(exporter_registry(exporter)).decode())
    wrong = {labels for (name, labels), value in found.items() if name == "ledger_scrape_errors" and value}
    assert wrong == {frozenset({("part", "gates")}), frozenset({("part", "tables")})}
    lost = {name for name, _ in before.keys() - found.keys()}
    assert {name.split("_")[1] for name in lost} == {"gate", "table"}
    generate_latest(exporter_registry(exporter))
    assert sum("the metrics of gates cannot be read" in line for line in caplog.messages) == 1  # once, not at each scrape


def exporter_registry(exporter: Exporter) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(exporter)
    return made


def test_an_empty_home_has_metrics_too_and_nothing_is_written_there(tmp_path: Path) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path / "none")})
    found = scrape(settings)
    assert not any(value for (name, _), value in found.items() if name == "ledger_scrape_errors")
    assert of(found, "release") == 0
    assert not settings.home.exists()


def test_every_declared_series_is_served_as_it_is_declared(settings: Settings) -> None:
    """So metrics.md, which is generated from the declarations, says what there is."""
    metrics_home.hold_back(settings)
    airflow = Received()
    airflow.take(metrics_home.AIRFLOW)
    with leases.hold(settings, [tables.DAILY_TOTALS], "gold"):
        families = {family.name: family for family in Exporter(settings, airflow).collect()}
    assert {family.name + ("_total" if family.type == COUNTER else "") for family in families.values()} == {
        series.name for series in SERIES
    }
    for series in SERIES:
        family = families[series.name.removesuffix("_total") if series.kind == COUNTER else series.name]
        assert (family.type, family.documentation) == (series.kind, series.text)
        assert {tuple(sample.labels) for sample in family.samples} == {series.labels}


def test_names_are_those_of_prometheus() -> None:
    assert len({series.name for series in SERIES}) == len(SERIES)
    assert all(series.name.startswith("ledger_") for series in SERIES)
    assert [series.name for series in SERIES if {"job", "instance"} & {*series.labels}] == []  # these are Prometheus' own
    assert [series.name for series in SERIES if (series.kind == COUNTER) != series.name.endswith("_total")] == []


def test_it_answers_on_loopback_several_at_a_time(settings: Settings) -> None:
    server, serving = start_http_server(0, "127.0.0.1", registry(settings))
    answers: list[str] = []

    def ask() -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=30) as answer:
            answers.append(answer.read().decode())

    asking = [threading.Thread(target=ask) for _ in range(4)]
    try:
        for one in asking:
            one.start()
        for one in asking:
            one.join()
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
    assert server.server_address[0] == "127.0.0.1"
    assert len(answers) == 4
    assert all(of(parse(answer), "release") == 3 for answer in answers)
