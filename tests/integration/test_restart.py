"""Jobs that are killed or stopped where it hurts: the next run ends with exactly what an undisturbed one would have written."""

import re
import shutil
import signal
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.producer import Message
from spark_jobs.lake import tables
from spark_jobs.service import heartbeat
from spark_jobs.service.services import INGESTION
from tests.integration.conftest import Broker, Wave
from tests.support import waves
from tests.support.checks import assert_bronze_is, assert_gold_follows, assert_silver_follows
from tests.support.lake import operation_of
from tests.support.ledger import Ledger, await_that

pytestmark = [pytest.mark.integration, pytest.mark.faults]

RECORDED = (tables.SILVER_TRANSACTIONS, tables.SILVER_CUSTOMERS, tables.SILVER_ACCOUNTS)
SILVER_POINTS = [
    f"{when} {what}"
    for what in (*(table.name for table in (*tables.SILVER, *tables.SILVER_INDEXES)), *(f"batches of {table.name}" for table in RECORDED))
    for when in ("before", "after")
]
GOLD_POINTS = [f"{when} {table.name}" for table in tables.GOLD for when in ("before", "after")]


@pytest.fixture(scope="module")
def ingested(first_wave: Wave, second_wave: list[Message], tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """The second wave is in bronze; silver and gold hold the first."""
    ledger = first_wave.saved.copy(tmp_path_factory.mktemp("ingested") / "home")
    ledger.run("bronze --available-now")
    return ledger


@pytest.fixture(scope="module")
def refined(ingested: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """The second wave is in bronze and silver; gold holds the first."""
    ledger = ingested.copy(tmp_path_factory.mktemp("refined") / "home")
    ledger.run("silver")
    return ledger


def test_bronze_killed_stopped_and_without_its_checkpoint(broker: Broker, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "home", broker.bootstrap)
    if not broker.sent:
        broker.send(waves.split_plan()[0])
    ledger.kill_at("after bronze.transactions", "bronze --available-now")
    with ledger.running("bronze") as bronze:
        await_that(lambda: ingests(ledger, bronze.pid) and held(ledger) == len(broker.sent))
        broker.send(few_more(broker.sent, "second"))  # a file more
        await_that(lambda: held(ledger) == len(broker.sent))
        assert_bronze_is(ledger, broker.sent)
        tended_while_it_runs(ledger)
        before = begun_batches(ledger)
        broker.send(few_more(broker.sent, "third"))
        await_that(lambda: begun_batches(ledger) > before)
        bronze.send_signal(signal.SIGTERM)  # in the middle of a batch
        _, errors = bronze.communicate(timeout=240)
    assert bronze.returncode == 0, errors
    assert "Traceback" not in errors

    highest = max(row["_batch"] for row in ledger.rows(tables.BRONZE_TRANSACTIONS))
    broker.send(few_more(broker.sent, "fourth"))
    shutil.rmtree(ledger.settings.checkpoints)
    ledger.run("bronze --available-now")
    assert_bronze_is(ledger, broker.sent)
    assert min(row["_batch"] for row in ledger.rows(tables.BRONZE_TRANSACTIONS) if b"fourth" in row["key"]) > highest


@pytest.mark.soak
@pytest.mark.parametrize("point", SILVER_POINTS)
def test_silver_killed(ingested: Ledger, tmp_path: Path, point: str) -> None:
    ledger = ingested.copy(tmp_path / "home")
    ledger.kill_at(point, "silver")
    ledger.run("silver")
    assert_silver_follows(ledger)


@pytest.mark.soak
@pytest.mark.parametrize("point", GOLD_POINTS)
def test_gold_killed(refined: Ledger, tmp_path: Path, point: str) -> None:
    ledger = refined.copy(tmp_path / "home")
    ledger.kill_at(point, "gold")
    ledger.run("gold")
    assert_gold_follows(ledger, assert_silver_follows(ledger))


@pytest.mark.soak
@pytest.mark.parametrize("point", [f"{when} {table.name}" for table in tables.BRONZE for when in ("before", "after")])
def test_bronze_killed(broker: Broker, first_wave: Wave, second_wave: list[Message], tmp_path: Path, point: str) -> None:
    ledger = first_wave.saved.copy(tmp_path / "home")
    ledger.kill_at(point, "bronze --available-now")
    ledger.run("bronze --available-now")
    assert_bronze_is(ledger, broker.sent)


def ingests(ledger: Ledger, pid: int) -> bool:
    """Whether this process has become the ingestion; the one before it may have left nothing to ingest."""
    beat = heartbeat.read_one(ledger.settings, INGESTION, "bronze")
    return beat is not None and (beat.state, beat.facts["process"]["pid"]) == (heartbeat.RUNNING, pid)


def tended_while_it_runs(ledger: Ledger) -> None:
    """Maintenance of bronze is done by the ingestion that holds it, and said by who asked."""
    table, names = tables.BRONZE_TRANSACTIONS, " ".join(table.name for table in tables.BRONZE)
    path = table.path(ledger.settings)
    before = len(DeltaTable(str(path)).file_uris())
    done = ledger.try_run(f"maintenance --tables {names} --wait 60")
    assert done.returncode == 0, done.stderr
    assert f"asking who writes them for the maintenance of {table.name}, " in done.stderr
    assert re.search(rf"{table.name}: {before} files .* are now 1 ", done.stderr), done.stderr
    assert operation_of(path, DeltaTable(str(path)).version()) == "OPTIMIZE"


def held(ledger: Ledger) -> int:
    return sum(len(ledger.rows(table)) for table in tables.BRONZE)


def begun_batches(ledger: Ledger) -> set[str]:
    """The micro-batches of the topic transactions that Spark has planned."""
    return {str(file) for file in ledger.settings.checkpoints.glob("bronze/transactions/*/offsets/[0-9]*")}


def few_more(sent: list[Message], name: str) -> list[Message]:
    """A few more transactions, and a customer."""
    return [*waves.few_new(sent, name), waves.changed(waves.customers(sent)[0], city=name)]
