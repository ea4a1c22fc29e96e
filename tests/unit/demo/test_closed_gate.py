"""The demo of a closed gate: what is sent, what is shown, and what it says when no gate closes. Kafka and Airflow are played."""

from pathlib import Path
from typing import Any

import pytest

from include.demo import __main__ as demo, closed_gate
from include.demo.waiting import Clock
from include.producer import Message
from include.stack.endpoints import write_endpoints
from spark_jobs.lake.tables import QUALITY_RESULTS, RELEASES, SILVER, ensure_tables
from spark_jobs.runtime.errors import GateClosed, LedgerError
from spark_jobs.runtime.kafka_config import Broker
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support import quality_rows as rows


class Airflow:
    """Airflow's API, as far as it is asked: runs by DAG, and how each run of medallion ends."""

    def __init__(self, state: str, asks: bool = True) -> None:
        self.state = state
        self.found = {"medallion": ["new", "known"], "quality_decision": ["decision__1"] if asks else []}

    def runs(self, dag_id: str) -> list[str]:
        return self.found[dag_id]

    def wait_for_run(self, dag_id: str, run_id: str, *_: Any) -> str:
        assert (dag_id, run_id) == ("medallion", "new")
        return self.state


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A home with a release, and a closed verdict on silver.transactions after it."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    ensure_tables(settings, SILVER)
    names = [table.name for table in SILVER]
    rows.write(settings, RELEASES, [rows.release(4, 1, name) for name in ("bronze.transactions", *names)])
    rows.write(settings, QUALITY_RESULTS, [rows.verdict(1, name) for name in names])
    write_endpoints(settings.home, {"airflow_url": "http://127.0.0.1:8080"})
    monkeypatch.setattr(closed_gate, "_RUN_SECONDS", 0)
    return settings


def close(settings: Settings) -> None:
    failed = rows.verdict(2, "silver.transactions", "quarantined_per_thousand", "unknown_customers_per_thousand (warning)")
    facts = {"_found": ["800", "1000"], "_expected": ["at most 500", "at most 10"], "report": "file:///quality/data_docs/a.html"}
    rows.write(settings, QUALITY_RESULTS, [failed | facts])


def test_the_bad_batch_has_800_malformed_records_of_1000(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Message] = []

    class Delivered:
        is_delivered = True

    def take(broker: Broker, messages: list[Message]) -> Delivered:
        assert broker == settings.broker()
        sent.extend(messages)
        return Delivered()

    monkeypatch.setattr(closed_gate, "publish", take)
    monkeypatch.setattr(Settings, "broker", lambda _: "broker:9092")
    closed_gate.send_bad_batch(settings)
    assert {message.topic for message in sent} == {"transactions"}
    assert (len(sent), sum(bool(message.injected) for message in sent)) == (1000, 800)
    Delivered.is_delivered = False
    with pytest.raises(LedgerError, match="did not take all 1000 messages of the bad batch"):
        closed_gate.send_bad_batch(settings)


def test_the_gate_the_release_and_the_question_are_shown(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    close(settings)
    closed_gate.show(settings, Airflow("failed"), ["known"], Clock())  # type: ignore[arg-type]
    text = capsys.readouterr().out
    assert "Gate silver: CLOSED by silver.transactions: quarantined_per_thousand, report " in text  # a warning closes nothing
    assert ", report http://127.0.0.1:8080/quality/data_docs/a.html" in text
    assert "Readers see release 4, as before the bad batch (release 4)." in text
    assert "http://127.0.0.1:8080/dags/quality_decision/runs/decision__1, tab Required Actions" in text


def test_a_gate_that_stays_open_or_a_person_who_is_not_asked_is_an_error(settings: Settings) -> None:
    with pytest.raises(LedgerError, match="ended as success, expected a closed gate after 800 malformed records of 1,000"):
        closed_gate.show(settings, Airflow("success"), ["known"], Clock())  # type: ignore[arg-type]
    with pytest.raises(LedgerError, match="found no new run of medallion"):
        closed_gate.show(settings, Airflow("failed"), ["known", "new"], Clock())  # type: ignore[arg-type]
    close(settings)
    with pytest.raises(LedgerError, match="found no new run of quality_decision"):
        closed_gate.show(settings, Airflow("failed", asks=False), ["known"], Clock())  # type: ignore[arg-type]


@pytest.mark.parametrize(("arguments", "closes"), [(["--gate", "closed"], True), ([], False)])
def test_the_option_closes_the_gate_and_sets_the_exit_code(arguments: list[str], closes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: Clock, *, closes_gate: bool, with_s3: bool) -> int:
        assert not with_s3
        return GateClosed.exit_code if closes_gate else 0

    monkeypatch.setattr(demo, "run", run)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert demo.main(arguments) == (3 if closes else 0)
