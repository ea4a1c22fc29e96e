"""The whole pipeline with tables and checkpoints in an S3 server: what is exact on a disk is exact there."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.producer import Message
from include.reader.catalogue import open_catalogue
from include.stack import postgres, s3
from include.stack.endpoints import write_endpoints
from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from spark_jobs.releases import archive
from tests.integration.conftest import Broker, running_engine
from tests.support import databases
from tests.support.checks import assert_bronze_is, assert_silver_follows
from tests.support.ledger import Ledger
from tests.support.object_storage import Door, in_storage, running_s3

pytestmark = pytest.mark.integration

HISTORY = """transactionId,accountId,customerId,eventTime,type,amount,balance
T-old,A00000001,C00000001,2012-12-31 10:00:00,Credit,1.00,1.00
"""
REBUILT = "silver.transactions gold.daily_totals"  # of the tables of a backfill: all are compared and merged in the same way


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    """Of a server that this process, which looks into the tables, and its children reach without it."""
    home = tmp_path / "s3"
    with running_s3(home) as (door, access):
        for name, value in {**access, "AWS_ENDPOINT_URL": s3.own_url(home) or ""}.items():
            monkeypatch.setenv(name, value)
        yield door


@pytest.fixture
def on_s3(door: Door, broker: Broker, first_sent: list[Message], tmp_path: Path) -> Iterator[Ledger]:
    """A home of which only logs and reports are on the disk; the broker has the first messages."""
    home = tmp_path / "home"
    with databases.running_postgres(home):
        addresses = {"postgres_url": postgres.own_url(home) or "", "postgres_password_file": str(postgres.password_file(home))}
        places = in_storage(tmp_path.name)
        of_tables = {"warehouse": places["LEDGER_WAREHOUSE"], "checkpoints": places["LEDGER_CHECKPOINTS"], "hosts": "several"}
        write_endpoints(home, addresses | of_tables)
        yield Ledger(home, broker.bootstrap)


def test_what_is_exact_on_a_disk_is_exact_in_object_storage(on_s3: Ledger, door: Door, broker: Broker) -> None:
    """The store is busy when a batch of bronze is about to be committed, and one of silver; then all that writes takes its turn."""
    with ExitStack() as engine:
        with busy(on_s3, door, "bronze --available-now", tables.BRONZE_TRANSACTIONS):
            engine.enter_context(running_engine(on_s3))
        lost = DeltaTable(str(tables.BRONZE_TRANSACTIONS.path(on_s3.settings))).delete("_offset % 5 = 2")
        assert lost["num_deleted_rows"] > 0
        on_s3.run("replay --from 2000-01-01T00:00:00Z")
        assert_bronze_is(on_s3, broker.sent)
        with busy(on_s3, door, "silver", tables.SILVER_TRANSACTIONS):
            pass
        on_s3.run("gold", "gate gold")
        (history := on_s3.home / "history.csv").write_text(HISTORY)
        on_s3.run(f"import --topic transactions --name old --file {history}", "silver")
        on_s3.run("live --available-now", "savepoint create one", "savepoint restore one")
        on_s3.run("gate bronze", "gate silver", "gold", "gate gold", "release", "release --keep 1")  # the gate judges what changed
        on_s3.run(f"backfill --start 2013-01-01 --end 2013-01-03 --tables {REBUILT} --publish", "maintenance", "audit")
    assert "T-old" in assert_silver_follows(on_s3).first
    gold = tables.BY_NAME["gold.daily_totals"]
    [(released,)] = open_catalogue(on_s3.settings).execute(f"select count(*) from {gold.name}").fetchall()
    assert released == len(on_s3.rows(gold))
    assert archive.is_archived(on_s3.settings, 1)
    assert not (on_s3.home / "warehouse").exists()
    assert not list((on_s3.home / "checkpoints").rglob("*.parquet"))


@contextmanager
def busy(ledger: Ledger, door: Door, command: str, table: Table) -> Iterator[None]:
    """A job beside the block, whose first commit to a table the store answers with 503, and all else for some seconds; behind the block it
    ends, and runs once more if it gave up."""
    door.be_busy_at(table.path(ledger.settings) / "_delta_log" / f"{1:020}.json")
    before = door.turned_away
    with ledger.running(command, ledger.home / "job.txt", AWS_ENDPOINT_URL=door.url) as job:
        yield
        job.wait(300)
    assert door.turned_away > before
    if job.returncode:
        ledger.run(command)
