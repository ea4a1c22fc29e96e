"""OpenLineage: who reads the events knows what a job read and wrote, and how it ended; nobody who does not ask pays for them."""

import json
import os
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from spark_jobs.commands import lineage
from spark_jobs.lake import tables
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import ROOT, Settings
from tests.support.ledger import await_that
from tests.support.listeners import HOST, Webhook, listening, port_of
from tests.support.publishing import publish
from tests.support.warehouse import at, bronze

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
    assert set(lineage.sources(table, "gold")) <= {each.name for each in tables.EVERY}
    if table.layer not in ("bronze", "control"):  # bronze is made from records
        assert lineage.sources(table, None)


def test_bronze_says_which_records_each_batch_has_read(copy_home: Copy, log: Path) -> None:
    settings = replace(copy_home(), kafka_bootstrap="broker:9092")

    def add(*coordinates: tuple[str, int, int, int]) -> None:
        rows = [bronze(at(partition, offset, batch, topic), b"k", b"{}") for topic, partition, offset, batch in coordinates]
        schema = pa.schema(tables.BRONZE_TRANSACTIONS.delta_schema().to_arrow())
        write_deltalake(str(tables.BRONZE_TRANSACTIONS.path(settings)), pa.Table.from_pylist(rows, schema), mode="append")

    with lineage.reported(settings, options("import")):
        add(*(("transactions", 0, offset, 7) for offset in range(100, 110)), ("transactions", 1, 5, 7))
        add(("transactions", 0, 110, 8), ("file:old", 0, 3, 8))
    _, complete = events(log)
    file, topic = complete["inputs"]
    assert (file["namespace"], file["name"]) == ("file", "old")
    assert (topic["namespace"], topic["name"]) == ("kafka://broker:9092", "transactions")
    assert topic["inputFacets"]["ledger_offsets"]["topic"] == "transactions"
    assert topic["inputFacets"]["ledger_offsets"]["batches"] == [
        {"batch": 7, "partition": 0, "first_offset": 100, "last_offset": 109, "records": 10},
        {"batch": 7, "partition": 1, "first_offset": 5, "last_offset": 5, "records": 1},
        {"batch": 8, "partition": 0, "first_offset": 110, "last_offset": 110, "records": 1},
    ]
    assert topic["inputFacets"]["inputStatistics"]["rowCount"] == 12
    (written,) = complete["outputs"]
    assert [field["name"] for field in written["facets"]["schema"]["fields"]] == list(tables.BRONZE_TRANSACTIONS.columns)


def test_an_application_that_runs_for_long_says_meanwhile_what_it_has_written(
    copy_home: Copy, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = copy_home()
    monkeypatch.setattr(lineage, "EVERY_SECONDS", 0.05)
    with lineage.reported(settings, options("bronze")):
        table = tables.BRONZE_CUSTOMERS
        rows = [bronze(at(0, 77, 9, "customers"), b"k", b"{}")]
        write_deltalake(str(table.path(settings)), pa.Table.from_pylist(rows, pa.schema(table.delta_schema().to_arrow())), mode="append")
        await_that(lambda: len(events(log)) > 1)
        time.sleep(0.2)
    start, running, complete = events(log)
    assert [event["eventType"] for event in (start, running, complete)] == ["START", "RUNNING", "COMPLETE"]
    assert [each["name"] for each in running["outputs"]] == ["bronze.customers"]
    assert [(row["first_offset"], row["batch"]) for row in running["inputs"][0]["inputFacets"]["ledger_offsets"]["batches"]] == [(77, 9)]
    assert (complete["inputs"], complete["outputs"]) == ([], [])  # nothing since
    assert {event["run"]["runId"] for event in (start, running, complete)} == {start["run"]["runId"]}


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
