"""From Kafka to a release by the real jobs, in two waves; every table is compared with a computation of its own."""

import pytest

from include.demo.reconciliation import reconcile
from include.producer import Message
from spark_jobs import control
from spark_jobs.lake import tables
from spark_jobs.releases.releases import newest_release
from tests.integration.conftest import Wave
from tests.support import oracle
from tests.support.checks import assert_bronze_is, assert_gold_follows, assert_silver_follows
from tests.support.ledger import ALL_STEPS, Ledger
from tests.support.watch import watching

pytestmark = pytest.mark.integration


def assert_released(ledger: Ledger, number: int) -> None:
    """The newest release names the tables as they are, with the rows they have, and the account of it closes."""
    release = newest_release(ledger.settings)
    layers = [table for layer in tables.LAYERS.values() for table in layer]
    assert release.release_id == number
    assert release.versions == {table.name: ledger.versions()[table.name] for table in layers}
    assert release.rows == {table.name: len(ledger.rows(table)) for table in layers}
    assert reconcile(ledger.settings, release).differences == []


def test_bronze_is_what_was_sent(first_wave: Wave) -> None:
    assert_bronze_is(first_wave.ledger, first_wave.sent)


def test_every_injected_row_is_where_it_belongs(first_wave: Wave) -> None:
    ledger = first_wave.ledger
    done = {oracle.place(row): oracle.injected(row) for row in ledger.rows(tables.BRONZE_TRANSACTIONS)}
    quarantine = {oracle.place(row): row["broken_rules"] for row in ledger.rows(tables.TRANSACTIONS_QUARANTINE)}
    duplicates = {oracle.place(row): row["is_conflicting"] for row in ledger.rows(tables.TRANSACTIONS_DUPLICATES)}
    broken = {place: [kind.removeprefix("malformed:")] for place, kind in done.items() if kind and kind.startswith("malformed:")}
    repeated = {place: kind == "duplicate:conflicting" for place, kind in done.items() if kind and kind.startswith("duplicate")}
    assert len({rule for (rule,) in broken.values()}) >= 9
    assert set(repeated.values()) == {True, False}
    assert quarantine == broken
    assert duplicates == repeated


def test_all_tables_follow_from_bronze_and_are_released(first_wave: Wave) -> None:
    split = assert_silver_follows(first_wave.ledger)
    assert_gold_follows(first_wave.ledger, split)
    assert split.late == []  # the first batch has no watermark
    assert_released(first_wave.ledger, 1)


def test_a_second_run_changes_nothing(first_wave: Wave) -> None:
    before = first_wave.ledger.versions()
    first_wave.ledger.run("bronze --available-now", *ALL_STEPS)
    assert first_wave.ledger.versions() == before


def test_a_second_wave_is_added_and_amends_what_it_touches(first_wave: Wave, second_wave: list[Message]) -> None:
    """Though silver and gold are killed in the middle of it. (At every other point: tests/spark, and the long tests of test_restart.py.)"""
    ledger = first_wave.ledger
    with watching(ledger.settings) as seen:
        ledger.run("bronze --available-now")
        ledger.kill_at("after silver.transactions", "silver")
        ledger.run("silver", "gate bronze", "gate silver")
        ledger.kill_at("after gold.daily_totals", "gold")
        ledger.run("gold", "gate gold", "release")
    seen.assert_one_moment_each(1, 2)
    assert_bronze_is(ledger, [*first_wave.sent, *second_wave])
    split = assert_silver_follows(ledger)
    assert_gold_follows(ledger, split)
    assert_released(ledger, 2)
    assert_the_cases_occurred(ledger, split)


def assert_the_cases_occurred(ledger: Ledger, split: oracle.Transactions) -> None:
    """The data held what this test is about."""
    late = {row["transaction_id"] for row in split.late}
    assert len(late) > 10
    assert "T-before-watermark" in late
    assert "T-at-watermark" not in late
    status = {row["transaction_id"]: row["customer_status"] for row in ledger.rows(tables.ENRICHED_TRANSACTIONS)}
    assert (status["T-unknown"], status["T-deleted"]) == ("unknown", "deleted")
    assert {"Brno", "Olomouc", "Zlin"} <= {row["customer_city"] for row in ledger.rows(tables.ENRICHED_TRANSACTIONS)}
    counts = control.batches(ledger.settings, "silver", "silver.customers")[-1]
    assert counts["no_change"] >= 2
    assert counts["superseded"] >= 1
    assert {row["_batch"] for row in split.duplicates} == {1, 2}
