"""OpenLineage: who reads the events knows what a job read and wrote, and how it ended; nobody who does not ask pays for them."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.commands import lineage
from spark_jobs.lake import tables
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import ROOT, Settings
from tests.support.listeners import HOST, Webhook, listening, port_of
from tests.support.publishing import publish

Copy = Callable[[], Settings]
RUN = "01a2b3c4-0000-4000-8000-000000000001"


@pytest.fixture(autouse=True)
def own_variables() -> Iterator[None]:
    """The client sets variables of its own process: no other test may see them."""
    yield
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        del os.environ[name]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file to which events go."""
    file = tmp_path / "events.jsonl"
    for name, text in {"TYPE": "file", "LOG_FILE_PATH": str(file), "APPEND": "true"}.items():
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{name}", text)
    return file


def events(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def options(name: str, **more: str) -> Namespace:
    return Namespace(name=name, run_id="medallion__run 1", **more)


def test_a_release_says_what_it_names_and_which_version_it_wrote(copy_home: Copy, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = copy_home()
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow/medallion.release/{RUN}")
    with lineage.reported(settings, options("release")):
        publish(settings)
    start, complete = events(log)
    assert [start["eventType"], complete["eventType"]] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert (complete["job"]["namespace"], complete["job"]["name"]) == ("ledger", "release")
    parent = complete["run"]["facets"]["parent"]
    assert (parent["job"]["namespace"], parent["job"]["name"], parent["run"]["runId"]) == ("airflow", "medallion.release", RUN)
    assert {"key": "run_id", "value": "medallion__run 1", "source": "LEDGER"}.items() <= complete["run"]["facets"]["tags"]["tags"][
        0
    ].items()
    (written,) = complete["outputs"]
    assert (written["namespace"], written["name"]) == (f"file://{settings.warehouse}", "control.releases")
    assert written["facets"]["version"]["datasetVersion"] == str(tables.RELEASES.open(settings).version())
    read = {each["name"]: each for each in complete["inputs"]}
    assert set(read) == {table.name for table in (*tables.BRONZE, *tables.SILVER, *tables.GOLD)}
    totals = read["gold.daily_totals"]["facets"]
    assert totals["version"]["datasetVersion"] == str(tables.DAILY_TOTALS.open(settings).version())
    assert [field["name"] for field in totals["schema"]["fields"]] == list(tables.DAILY_TOTALS.columns)


def test_a_job_that_fails_says_why_and_fails_as_ever(copy_home: Copy, log: Path) -> None:
    with pytest.raises(LedgerError, match="found 1, expected 2"), lineage.reported(copy_home(), options("gate", layer="gold")):
        raise LedgerError("found 1, expected 2")
    assert [event["eventType"] for event in events(log)] == ["START", "FAIL"]
    assert events(log)[1]["job"]["name"] == "gate-gold"
    assert events(log)[1]["run"]["facets"]["errorMessage"]["message"] == "found 1, expected 2"


def test_a_server_gets_them_too(copy_home: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    webhook = Webhook(201)
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://{HOST}:{port_of(webhook)}")
    with listening(webhook), lineage.reported(copy_home(), options("release")):
        pass
    assert [(path, event["eventType"]) for path, event in webhook.received] == [
        ("/api/v1/lineage", "START"),
        ("/api/v1/lineage", "COMPLETE"),
    ]


def test_a_place_that_does_not_answer_fails_no_job(
    copy_home: Copy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(lineage, "_LONGEST_SECONDS", 0.5)
    with lineage.reported(copy_home(), options("release")):
        pass
    said = [record.getMessage() for record in caplog.records if record.name == lineage.__name__]
    assert len(said) == 2
    assert all(line.startswith("the lineage of release is not reported (") for line in said)


@pytest.mark.parametrize("table", tables.EVERY, ids=lambda table: table.name)
def test_every_table_that_a_job_writes_has_a_source(table: tables.Table) -> None:
    known = {each.name for each in tables.EVERY} | {f"kafka.{each.topic}" for each in tables.BRONZE}
    assert set(lineage.sources(table, "gold")) <= known
    if table.layer != "control":
        assert lineage.sources(table, None)


def test_variables_that_name_no_place_ask_for_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OPENLINEAGE_CLIENT_LOGGING", "DEBUG")
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow/medallion.gold/{RUN}")
    assert not lineage.is_on()
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    assert lineage.is_on()
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    assert not lineage.is_on()


def test_without_a_place_for_events_nothing_is_loaded(tmp_path: Path) -> None:
    code = "import sys; from spark_jobs.run import main; main(['migrate']); print([name for name in sys.modules if 'openlineage' in name])"
    environment = {name: text for name, text in os.environ.items() if not name.startswith("OPENLINEAGE")} | {"LEDGER_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
