"""The whole pipeline with tables and checkpoints in an S3 server: what is exact on a disk is exact there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from include.reader.catalogue import open_catalogue
from include.stack import postgres
from include.stack.endpoints import write_endpoints
from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from spark_jobs.releases import archive
from tests.integration.conftest import Broker, Wave, running_engine
from tests.support import databases
from tests.support.checks import assert_bronze_is, assert_silver_follows
from tests.support.ledger import ALL_STEPS, Ledger
from tests.support.object_storage import Door, in_storage, running_s3

pytestmark = pytest.mark.integration


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    with running_s3(tmp_path / "s3") as (door, access):
        for name, value in access.items():
            monkeypatch.setenv(name, value)  # for this process, which looks into the tables, and its children
        yield door


@pytest.fixture
def on_s3(door: Door, first_wave: Wave, broker: Broker, tmp_path: Path) -> Iterator[Ledger]:
    """A home of which only logs and reports are on the disk; the broker has the first wave."""
    home = tmp_path / "home"
    with databases.running_postgres(home):
        addresses = {"postgres_url": postgres.own_url(home) or "", "postgres_password_file": str(postgres.password_file(home))}
        places = in_storage("pipeline")
        of_tables = {"warehouse": places["LEDGER_WAREHOUSE"], "checkpoints": places["LEDGER_CHECKPOINTS"], "hosts": "several"}
        write_endpoints(home, addresses | of_tables)
        yield Ledger(home, broker.bootstrap)


def test_what_is_exact_on_a_disk_is_exact_in_object_storage(on_s3: Ledger, door: Door, broker: Broker) -> None:
    """The store is busy when a batch of bronze is about to be committed, and one of silver; then all that writes takes its turn."""
    run_while_busy(on_s3, door, "bronze --available-now", tables.BRONZE_TRANSACTIONS)
    assert_bronze_is(on_s3, broker.sent)
    run_while_busy(on_s3, door, "silver", tables.SILVER_TRANSACTIONS)
    with running_engine(on_s3):
        on_s3.run(*ALL_STEPS[1:], "live --available-now", "savepoint create one", "savepoint restore one")
        on_s3.run("backfill --start 2013-01-01 --end 2013-01-03 --publish", "release --keep 1", "maintenance", "audit")
    assert_silver_follows(on_s3)
    gold = tables.BY_NAME["gold.daily_totals"]
    [(released,)] = open_catalogue(on_s3.settings).execute(f"select count(*) from {gold.name}").fetchall()
    assert released == len(on_s3.rows(gold))
    assert archive.is_archived(on_s3.settings, 1)
    assert not (on_s3.home / "warehouse").exists()
    assert not list((on_s3.home / "checkpoints").rglob("*.parquet"))


def run_while_busy(ledger: Ledger, door: Door, command: str, table: Table) -> None:
    """Run a job, whose first commit to a table the store answers with 503, and all else for some seconds; then again, if it gave up."""
    door.be_busy_at(table.path(ledger.settings) / "_delta_log" / f"{1:020}.json")
    before = door.turned_away
    with ledger.running(command, ledger.home / "job.txt") as job:
        job.wait(300)
    assert door.turned_away > before
    door.be_busy_for(0)
    ledger.run(command)
