"""Backfills by command line: with kill -9, through the gates to a release, and beside live runs and a live producer."""

import random
import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.demo.reconciliation import reconcile
from include.producer import Message
from spark_jobs.control import backfills
from spark_jobs.lake import tables
from spark_jobs.releases.releases import newest_release
from tests.integration.conftest import Broker, Wave
from tests.support.checks import assert_gold_follows, assert_silver_follows
from tests.support.ledger import ALL_STEPS, Ledger, await_that

pytestmark = [pytest.mark.integration, pytest.mark.faults]

YEAR = "backfill --start 2013-01-01 --end 2014-01-01"


def test_a_range_that_ends_before_it_starts_is_refused(tmp_path: Path) -> None:
    refused = Ledger(tmp_path).try_run("backfill --start 2013-02-01 --end 2013-01-01")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr


@pytest.mark.soak  # days asked for in Airflow are rebuilt in test_backfill_days.py, ranges of all kinds in tests/spark
def test_a_backfill_mends_what_was_damaged_and_releases_it(first_wave: Wave, tmp_path: Path) -> None:
    ledger = damaged(first_wave, tmp_path)
    ledger.run(f"{YEAR} --publish")
    assert_mended(ledger)


@pytest.mark.soak
def test_a_backfill_that_is_killed_continues(first_wave: Wave, tmp_path: Path) -> None:
    """Readers have the release before until all is judged; nothing is judged halfway."""
    ledger = damaged(first_wave, tmp_path)
    ledger.kill_at("after silver.transactions", f"{YEAR} --publish")
    closed = ledger.try_run("gate silver")
    assert closed.returncode == 1
    assert "run it again: python -m spark_jobs.run backfill --start 2013-01-01T00:00:00Z" in closed.stderr
    assert newest_release(ledger.settings).release_id == 1
    ledger.run(f"{YEAR} --publish")
    assert_mended(ledger)


def damaged(first_wave: Wave, tmp_path: Path) -> Ledger:
    """A copy of which silver and gold have lost rows, and gold has wrong ones."""
    ledger = first_wave.saved.copy(tmp_path / "home")
    for table in (tables.SILVER_TRANSACTIONS, tables.ENRICHED_TRANSACTIONS):
        DeltaTable(str(table.path(ledger.settings))).delete("transaction_id like '%7'")
    DeltaTable(str(tables.CUSTOMER_ACTIVITY.path(ledger.settings))).update({"transactions": "transactions + 1"})
    return ledger


def assert_mended(ledger: Ledger) -> None:
    """Silver and gold are as they should be, and released; nothing that was staged is left."""
    assert_gold_follows(ledger, assert_silver_follows(ledger))
    release = newest_release(ledger.settings)
    assert (release.release_id, reconcile(ledger.settings, release).differences) == (2, [])
    assert not (ledger.settings.checkpoints / "backfill").exists()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_a_backfill_of_a_year_beside_the_live_flow(
    broker: Broker, first_wave: Wave, second_wave: list[Message], tmp_path: Path, seed: int
) -> None:
    """Rows come into that very year while it is rebuilt; backfill and live jobs are killed at random moments."""
    chance, over = random.Random(seed), threading.Event()
    ledger = first_wave.saved.copy(tmp_path / "home")
    DeltaTable(str(tables.SILVER_TRANSACTIONS.path(ledger.settings))).delete("transaction_id like '%7'")

    def live() -> None:
        while not over.is_set():
            for job in ("bronze --available-now", *ALL_STEPS):
                kill_or_run(ledger, job, chance.uniform(5, 60))

    flow = threading.Thread(target=live)
    flow.start()
    try:
        for _ in range(4):
            kill_or_run(ledger, f"{YEAR} --step-rows 150", chance.uniform(20, 120))
    finally:
        over.set()
        flow.join()
    ledger.run("bronze --available-now", "silver", f"{YEAR} --step-rows 150", *ALL_STEPS)
    assert backfills.halfway(ledger.settings) is None
    assert_gold_follows(ledger, assert_silver_follows(ledger))
    assert reconcile(ledger.settings, newest_release(ledger.settings)).differences == []


def kill_or_run(ledger: Ledger, command: str, seconds: float) -> None:
    """Run a job, and kill it after a time if it has not ended by then."""
    with ledger.running(command) as process:
        deadline = threading.Event()
        timer = threading.Timer(seconds, deadline.set)
        timer.start()
        await_that(lambda: process.poll() is not None or deadline.is_set(), seconds=seconds + 60)
        timer.cancel()
