"""What gold records of its runs in control.batches: each run once, the newest one known as such."""

import json
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import CommitProperties, DeltaTable

from spark_jobs import control
from spark_jobs.gold import job
from spark_jobs.lake import tables
from spark_jobs.lake.txn import Txn
from spark_jobs.runtime.settings import Settings
from tests.support.warehouse import settings_of

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    home = settings_of(tmp_path)
    tables.ensure_tables(home, (*tables.SILVER, *tables.GOLD, *tables.CONTROL))
    control.append(
        home, tables.BATCHES, [{"job": "silver", "table": "silver.transactions", "first_batch": 1, "last_batch": 7, "output": 3}]
    )
    return home


def change(settings: Settings, table: tables.Table, commits: int = 1) -> None:
    """Give a silver table new versions."""
    for _ in range(commits):
        delta = DeltaTable(str(table.path(settings)))
        delta.create_write_transaction([], "append", delta.schema(), [], commit_properties=CommitProperties())


def heads(settings: Settings) -> Mapping[str, int]:
    return {table.name: DeltaTable(str(table.path(settings))).version() for table in tables.FOLLOWERS}


def runs(settings: Settings) -> list[str]:
    """Who recorded runs of one gold table, in their order."""
    found = sorted(control.batches(settings, "gold", tables.DAILY_TOTALS.name), key=control.when_it_ended)
    return [row["run_id"] for row in found]


def test_a_run_that_is_repeated_after_a_crash_is_recorded_once(settings: Settings) -> None:
    job.record(settings, "a")
    job.record(settings, "a again")
    assert runs(settings) == ["a"]
    change(settings, tables.SILVER_ACCOUNTS)
    job.record(settings, "b")
    assert runs(settings) == ["a", "b"]
    assert control.versions_read_by_gold(settings) == heads(settings)


def test_the_newest_run_is_known_after_silver_was_lost_and_its_versions_begin_again(settings: Settings) -> None:
    change(settings, tables.SILVER_ACCOUNTS, commits=3)
    job.record(settings, "before")
    shutil.rmtree(tables.SILVER_ACCOUNTS.path(settings))
    tables.ensure_tables(settings, [tables.SILVER_ACCOUNTS])
    job.record(settings, "after")
    assert runs(settings) == ["before", "after"]
    assert control.versions_read_by_gold(settings) == heads(settings)


def test_the_newest_run_is_known_after_the_clock_was_set_back(settings: Settings) -> None:
    ahead = {"job": "gold", "last_batch": 7, "_read_versions": "{}", "finished_at": datetime.now(UTC) + timedelta(days=1)}
    control.append(settings, tables.BATCHES, [ahead | {"run_id": "ahead", "table": table.name} for table in tables.GOLD])
    job.record(settings, "now")
    assert runs(settings) == ["ahead", "now"]
    assert control.versions_read_by_gold(settings) == heads(settings)


def test_a_record_of_an_older_version_counts_whatever_number_it_was_written_under(settings: Settings) -> None:
    """Until 2026-11 the transaction identifier was the sum of silver's versions and the last batch."""
    change(settings, tables.SILVER_ACCOUNTS, commits=3)
    older = {"run_id": "old", "job": "gold", "last_batch": 7, "_read_versions": json.dumps(heads(settings)), "finished_at": NOON}
    number = sum(heads(settings).values()) + 7
    control.append(settings, tables.BATCHES, [older | {"table": table.name} for table in tables.GOLD], once=Txn("gold", number))
    job.record(settings, "nothing new")
    assert runs(settings) == ["old"]
    shutil.rmtree(tables.SILVER_ACCOUNTS.path(settings))
    tables.ensure_tables(settings, [tables.SILVER_ACCOUNTS])  # a smaller sum: an identifier of that number would be skipped
    job.record(settings, "new")
    assert runs(settings) == ["old", "new"]


def test_a_table_that_a_new_version_brings_is_recorded_although_silver_has_nothing_new(settings: Settings) -> None:
    older = {"run_id": "old", "job": "gold", "last_batch": 7, "_read_versions": json.dumps(heads(settings)), "finished_at": NOON}
    known = [table for table in tables.GOLD if table != tables.ACCOUNT_DAYS]
    control.append(settings, tables.BATCHES, [older | {"table": table.name} for table in known])
    job.record(settings, "new")
    assert control.last_batch(settings, "gold", tables.ACCOUNT_DAYS.name) == 7
