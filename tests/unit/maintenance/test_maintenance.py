"""What maintenance joins, what it spares, and what of a table's files and log goes. Without a JVM."""

import json
import os
import re
import shutil
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction, write_deltalake

from spark_jobs import control
from spark_jobs.lake import log_files, tables, versions
from spark_jobs.lake.tables import (
    BATCHES,
    BRONZE_ACCOUNTS,
    CORRECTIONS,
    DAILY_TOTALS,
    QUALITY_RESULTS,
    SILVER_ACCOUNTS,
    SILVER_TRANSACTIONS,
    Table,
)
from spark_jobs.lake.txn import Txn
from spark_jobs.lake.versions import hold_same_rows
from spark_jobs.maintenance import table_maintenance, versions_in_use
from spark_jobs.maintenance.table_maintenance import Report
from spark_jobs.maintenance.versions_in_use import VersionsInUse
from spark_jobs.run import main
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.aging import age, data_files, follow

NOTHING = VersionsInUse((), None)
DAY = timedelta(days=1)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"LEDGER_HOME": str(tmp_path)})


def now() -> datetime:
    return datetime.now(UTC)


def no_session() -> NoReturn:
    pytest.fail("a session was started")


_NO_CHECKPOINT = PostCommitHookProperties(create_checkpoint=False)


def grow(settings: Settings, table: Table, commits: int, first: int = 1) -> None:
    """Append a row in each of so many commits, without a checkpoint; of the table's columns only _batch or nothing is set."""
    tables.ensure_tables(settings, [table])
    schema = pa.schema(table.delta_schema().to_arrow())
    for number in range(first, first + commits):
        row = {"_batch": number} if "_batch" in schema.names else {}
        row |= {name: number for name in ("transactions",) if name in schema.names}
        rows = pa.Table.from_pylist([row], schema)
        write_deltalake(str(table.path(settings)), rows, mode="append", post_commithook_properties=_NO_CHECKPOINT)


def optimize(settings: Settings, table: Table) -> None:
    assert DeltaTable(str(table.path(settings))).optimize.compact()["numFilesRemoved"]


def rows_at(settings: Settings, table: Table, version: int | None = None) -> int:
    """How many rows can really be read."""
    found = control.query(DeltaTable(str(table.path(settings)), version=version), "select count(transactions) as n from t")
    return int(found["n"][0].as_py())


def test_files_go_when_they_are_old_and_no_offered_release_names_them(settings: Settings) -> None:
    """Versions: 1 to 3 appends, 4 joins them, 5 and 6 appends, 7 joins all. A release names version 5."""
    grow(settings, DAILY_TOTALS, 3)
    optimize(settings, DAILY_TOTALS)
    grow(settings, DAILY_TOTALS, 2, first=4)
    optimize(settings, DAILY_TOTALS)
    path, everything = DAILY_TOTALS.path(settings), data_files(settings, DAILY_TOTALS)
    for name in ("part-of-one-who-died.parquet", "deletion_vector_a.bin"):
        shutil.copy(next(path.glob("*.parquet")), path / name)
    keep = VersionsInUse((5, 7), None)
    age(settings, DAILY_TOTALS, days=7.9)  # files stay for eight days
    assert table_maintenance.remove_files(settings, DAILY_TOTALS, keep, now()) == (0, 0)
    age(settings, DAILY_TOTALS, days=30)
    (path / "part-of-one-who-writes.parquet").write_bytes(b"x")
    found = table_maintenance.remove_files(settings, DAILY_TOTALS, VersionsInUse((1, 5, 7), None), now())
    assert found[0] == 4  # 2, 3, what 6 brought, and the dead one's
    assert rows_at(settings, DAILY_TOTALS, 1) == 1
    removed, size = table_maintenance.remove_files(settings, DAILY_TOTALS, keep, now())
    assert (removed, size > 0) == (1, True)
    assert (path / "deletion_vector_a.bin").exists()
    assert (path / "part-of-one-who-writes.parquet").exists()
    assert len(everything - data_files(settings, DAILY_TOTALS)) == 4
    assert [rows_at(settings, DAILY_TOTALS, version) for version in (4, 5, 7, None)] == [3, 4, 5, 5]
    assert DeltaTable(str(path)).version() == 7  # nothing was committed
    assert table_maintenance.remove_files(settings, DAILY_TOTALS, keep, now()) == (0, 0)


def test_what_stands_judged_stays_until_another_verdict_stands(settings: Settings) -> None:
    """A release names the version that its gate judged, however long ago, and also a closed one once a person lets it pass."""
    for number, table in enumerate((BRONZE_ACCOUNTS, SILVER_ACCOUNTS, DAILY_TOTALS)):
        verdict = {"layer": table.layer, "table": table.name, "run_id": "r", "success": bool(number)}
        tables.ensure_tables(settings, [table])
        for version in (3, 5):
            control.append(settings, QUALITY_RESULTS, [verdict | {"version": version, "_judged_at": now()}])
            assert versions_in_use.find(settings, table, now()) == VersionsInUse((version,), None)


def test_the_silver_that_gold_was_made_of_stays_for_its_gate(settings: Settings) -> None:
    grow(settings, SILVER_ACCOUNTS, 3)
    run = {"job": "gold", "table": DAILY_TOTALS.name, "last_batch": 1}
    for version in (2, 3):
        control.append(settings, BATCHES, [run | {"_read_versions": json.dumps({SILVER_ACCOUNTS.name: version}), "finished_at": now()}])
        assert versions_in_use.find(settings, SILVER_ACCOUNTS, now()) == VersionsInUse((version,), None)


def test_nothing_goes_that_gold_has_not_taken(settings: Settings) -> None:
    grow(settings, SILVER_TRANSACTIONS, 3)
    optimize(settings, SILVER_TRANSACTIONS)
    age(settings, SILVER_TRANSACTIONS, days=30)
    before = data_files(settings, SILVER_TRANSACTIONS)
    told = "no file is removed before gold has taken version 3, which is older than files are kept: run gold"
    assert versions_in_use.find(settings, SILVER_TRANSACTIONS, now()) == NOTHING  # gold that never ran will read the table as it is then
    follow(settings, 2)
    keep = versions_in_use.find(settings, SILVER_TRANSACTIONS, now())
    assert keep == VersionsInUse((), 3)
    assert table_maintenance.waits_for(settings, SILVER_TRANSACTIONS, keep, now()) == told
    report = table_maintenance.maintain(settings, SILVER_TRANSACTIONS, no_session, now())
    assert (report.removed_files, report.waits) == (0, told)
    assert data_files(settings, SILVER_TRANSACTIONS) == before
    follow(settings, 3)  # version 4 only moved rows
    report = table_maintenance.maintain(settings, SILVER_TRANSACTIONS, no_session, now())
    assert (report.removed_files, report.waits) == (3, None)
    assert re.match(r"silver.transactions: 1 files \(0.0 MB\) are now 1 \(0.0 MB\), removed 3 files \(0.0 MB\) and 0 commits", str(report))
    again = table_maintenance.maintain(settings, SILVER_TRANSACTIONS, no_session, now())
    assert (str(again), Report.of(json.loads(json.dumps(asdict(again))))) == ("silver.transactions: nothing to do, 1 files (0.0 MB)", again)


def test_a_commit_without_rows_is_not_waited_for(settings: Settings) -> None:
    """As one of a batch of which silver took nothing: gold finds no change in it, and never takes it."""
    grow(settings, SILVER_TRANSACTIONS, 2)
    delta = DeltaTable(str(SILVER_TRANSACTIONS.path(settings)))
    delta.create_write_transaction(
        [], "append", delta.schema(), commit_properties=CommitProperties(app_transactions=[Transaction("silver", 9)])
    )
    age(settings, SILVER_TRANSACTIONS, days=30)
    follow(settings, 2)
    keep = versions_in_use.find(settings, SILVER_TRANSACTIONS, now())
    assert (keep.unread_from, table_maintenance.waits_for(settings, SILVER_TRANSACTIONS, keep, now())) == (3, None)
    path = SILVER_TRANSACTIONS.path(settings)
    assert [versions.has_changes_from(path, version) for version in (2, 3, 4)] == [True, False, False]
    assert versions.hold_same_rows(settings, SILVER_TRANSACTIONS, 2, 3)
    grow(settings, SILVER_TRANSACTIONS, 1)
    assert versions.has_changes_from(path, 3)


def test_each_follower_of_silver_counts(settings: Settings) -> None:
    grow(settings, SILVER_TRANSACTIONS, 2)
    grow(settings, SILVER_ACCOUNTS, 2)
    follow(settings, 2)
    assert versions_in_use.unread_from(settings, SILVER_TRANSACTIONS) == 3
    assert versions_in_use.find(settings, SILVER_TRANSACTIONS, now()) == NOTHING
    assert versions_in_use.unread_from(settings, SILVER_ACCOUNTS) is None  # gold never took it: it will read the table as it is then
    follow(settings, 2, "gold silver.accounts", tables.DISTRICT_MINUTES)
    assert versions_in_use.unread_from(settings, SILVER_ACCOUNTS) == 3
    assert versions_in_use.unread_from(settings, DAILY_TOTALS) is None
    assert versions_in_use.unread_from(settings, BRONZE_ACCOUNTS) is None  # silver never ran: it will read the table as it is then


def test_silver_counts_by_its_record(settings: Settings) -> None:
    tables.ensure_tables(settings, [BRONZE_ACCOUNTS])
    path, schema = BRONZE_ACCOUNTS.path(settings), pa.schema(BRONZE_ACCOUNTS.delta_schema().to_arrow())
    for batch in (1, 2, 3):
        properties = CommitProperties(custom_metadata={"userMetadata": f'{{"batch": {batch}}}'})
        rows = pa.Table.from_pylist([{"_batch": batch, "_ingested_on": now().date()}], schema)
        write_deltalake(str(path), rows, mode="append", commit_properties=properties)
    control.append(settings, BATCHES, [{"job": "silver", "table": "silver.accounts", "first_batch": 1, "last_batch": 2}])
    assert versions_in_use.unread_from(settings, BRONZE_ACCOUNTS) == 3


def log_of(settings: Settings, table: Table) -> list[int]:
    return sorted(log_files.read_log(table.path(settings)).written_at)


def test_commits_go_from_the_oldest_up_to_what_is_needed(settings: Settings) -> None:
    grow(settings, DAILY_TOTALS, 30)
    path = DAILY_TOTALS.path(settings)
    for version in (5, 10, 15, 20, 25):
        DeltaTable(str(path), version=version).create_checkpoint()
    age(settings, DAILY_TOTALS, days=40)
    grow(settings, DAILY_TOTALS, 2, first=31)
    for name in (f"{12:020}.crc", f".{26:020}.json.crc", f".{2:020}.json.crc"):
        (path / "_delta_log" / name).write_text("{}")
        os.utime(path / "_delta_log" / name, (0, 0))
    # A stream that has yet to take commit 15 finds it gone if the checkpoint of 15 is the first that stays.
    in_use = [VersionsInUse((9, 30), None), VersionsInUse((30,), 15), VersionsInUse((30,), 16), VersionsInUse((), 31), NOTHING]
    for keep, first in zip(in_use, (5, 5, 15, 25, 25), strict=True):
        before = log_of(settings, DAILY_TOTALS)[0]
        assert table_maintenance.clean_log(settings, DAILY_TOTALS, keep, now()) == first - before
        assert log_of(settings, DAILY_TOTALS) == list(range(first, 33))
        assert rows_at(settings, DAILY_TOTALS, first) == first
    assert rows_at(settings, DAILY_TOTALS) == 32
    assert list((path / "_delta_log").glob("*.crc")) == []
    assert table_maintenance.clean_log(settings, DAILY_TOTALS, NOTHING, now()) == 0


def test_a_young_log_and_one_without_a_checkpoint_stay(settings: Settings) -> None:
    grow(settings, DAILY_TOTALS, 12)
    assert table_maintenance.clean_log(settings, DAILY_TOTALS, NOTHING, now()) == 0
    age(settings, DAILY_TOTALS, days=40)
    assert table_maintenance.clean_log(settings, DAILY_TOTALS, NOTHING, now()) == 0
    part = DAILY_TOTALS.path(settings) / "_delta_log" / f"{8:020}.checkpoint.0000000001.0000000002.parquet"
    part.write_bytes(b"")  # the other half was never written
    assert table_maintenance.clean_log(settings, DAILY_TOTALS, NOTHING, now()) == 0
    assert log_of(settings, DAILY_TOTALS) == list(range(13))


def test_of_many_checkpoints_the_first_of_every_thousand_commits_stays(tmp_path: Path) -> None:
    folder = tmp_path / "_delta_log"
    folder.mkdir()
    for version in range(0, 2_500, 10):
        (folder / f"{version:020}.checkpoint.parquet").write_bytes(b"")
        (folder / f"{version:020}.json").write_text("")
    log_files.clean(log_files.read_log(tmp_path), keep_from=0, settled=now() - DAY)
    assert len(log_files.read_log(tmp_path).checkpoints) == 250  # a reader may be opening one
    log_files.clean(log_files.read_log(tmp_path), keep_from=0, settled=now() + DAY)
    left = log_files.read_log(tmp_path)
    assert sorted(left.checkpoints) == [0, 1_000, 2_000, 2_470, 2_480, 2_490]
    assert len(left.written_at) == 250


def test_a_clock_that_was_set_back_makes_no_commit_look_old(settings: Settings) -> None:
    grow(settings, DAILY_TOTALS, 3)
    log = log_files.read_log(DAILY_TOTALS.path(settings))
    os.utime(log.folder / f"{2:020}.json", (0, 0))
    log = log_files.read_log(DAILY_TOTALS.path(settings))
    assert log.newest_before(now() - DAY) is None
    assert log.newest_before(now() + DAY) == 3


def test_versions_with_nothing_but_maintenance_between_them_hold_the_same_rows(settings: Settings) -> None:
    grow(settings, DAILY_TOTALS, 3)
    optimize(settings, DAILY_TOTALS)
    DeltaTable(str(DAILY_TOTALS.path(settings))).alter.set_table_properties({"delta.logRetentionDuration": "interval 31 days"})
    grow(settings, DAILY_TOTALS, 1, first=4)

    def same(one: int, other: int) -> bool:
        return hold_same_rows(settings, DAILY_TOTALS, one, other)

    assert [same(3, 5), same(5, 3), same(4, 4)] == [True, True, True]
    assert [same(2, 3), same(2, 5), same(5, 6), same(6, 7)] == [False, False, False, False]


def test_a_table_is_not_set_back_to_a_version_that_it_does_not_have(settings: Settings) -> None:
    grow(settings, DAILY_TOTALS, 2)
    with pytest.raises(LedgerError, match="found version 2, expected version 3 to go back to"):
        versions.set_back(settings, DAILY_TOTALS, 3, "reset", Txn("reset", 1), {}, {})
    versions.set_back(settings, DAILY_TOTALS, 1, "reset", Txn("reset", 1), {}, {})
    assert rows_at(settings, DAILY_TOTALS) == 1


def test_control_tables_are_joined_without_a_jvm(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: dict[Table, list[dict[str, Any]]] = {
        BATCHES: [{"run_id": str(number), "finished_at": now()} for number in range(25)],
        QUALITY_RESULTS: [{"run_id": str(number), "failed_expectations": ["a", str(number)][: number % 3]} for number in range(25)],
        CORRECTIONS: [{"_offset": number, "value": bytes([number, 255])} for number in range(25)],
    }
    for table, added in rows.items():
        for number, row in enumerate(added, start=1):
            control.append(settings, table, [row], once=Txn("x", number))
    before = {table: sorted(map(str, control.read(settings, table).to_pylist())) for table in rows}
    monkeypatch.setenv("LEDGER_HOME", str(settings.home))
    monkeypatch.setattr("spark_jobs.runtime.session.start_session", lambda *_, **__: no_session())
    assert main(["maintenance", "--wait", "0"]) == 0
    for table in rows:
        delta = DeltaTable(str(table.path(settings)))
        assert (len(delta.file_uris()), delta.transaction_version("x")) == (1, 25)
        assert sorted(map(str, control.read(settings, table).to_pylist())) == before[table]
