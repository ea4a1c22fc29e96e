"""How long releases are offered, what the tables are told about it, and releases that are kept."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.demo.reconciliation import reconcile
from include.reader import QueryError, ReleaseReader, open_release
from spark_jobs import control, run
from spark_jobs.control.verdicts import newest_verdicts
from spark_jobs.lake import few_rows, leases
from spark_jobs.lake.tables import (
    BRONZE_TRANSACTIONS,
    CONTROL,
    DAILY_TOTALS,
    GOLD,
    LIVE_TRANSACTIONS,
    RELEASES,
    SILVER_TRANSACTIONS,
    ensure_tables,
)
from spark_jobs.lake.txn import Txn
from spark_jobs.maintenance import table_maintenance
from spark_jobs.maintenance.versions_in_use import find
from spark_jobs.releases import archive, decisions, releases, retention
from spark_jobs.releases.releases import newest_release
from spark_jobs.runtime.errors import LeaseHeld, LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.aging import age
from tests.support.publishing import EVERY_TABLE, gold_follows, one_more, pass_gates, publish, released_on
from tests.support.warehouse import good_rows, run_of, write

Copy = Callable[[], Settings]
NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)


def days_ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def everything(reader: ReleaseReader) -> dict[str, list[str]]:
    """All rows of all tables of a release."""
    return {name: sorted(map(str, reader.sql(f"select * from {name}").to_pylist())) for name in reader.tables}


def overwrite_and_vacuum(settings: Settings) -> None:
    """Replace all rows, and delete the files of the earlier ones."""
    write(settings, {name: rows[:1] for name, rows in good_rows().items() if not name.startswith("control.")}, mode="overwrite")
    for table in EVERY_TABLE:
        delta = DeltaTable(str(table.path(settings)))
        assert delta.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False), table.name


def test_releases_expire_but_for_the_newest_and_those_that_are_kept(copy_home: Copy) -> None:
    settings = copy_home()
    released_on(settings, days_ago(40), days_ago(30), days_ago(20), days_ago(10))
    archive.copy_release(settings, 2)

    def numbers(now: datetime, days: int = 7) -> list[int]:
        return sorted({1, 2, 3, 4}.difference(retention.offered(replace(settings, release_days=days), now)))

    assert numbers(NOW) == [1, 3]
    assert numbers(NOW, days=10) == [1]  # the last moment that counts: release 4 has taken its place ten days ago
    assert numbers(NOW + timedelta(microseconds=1), days=10) == [1, 3]
    assert numbers(NOW, days=30) == []
    assert retention.offered(settings, NOW) == [2, 4]
    assert [retention.find_offered(settings, number, NOW).release_id for number in (2, 4, None)] == [2, 4, 4]
    message = r"release 3 of 2026-04-30 has expired: .* offered for 7 days \(LEDGER_RELEASE_DAYS\); open the newest one, 4"
    with pytest.raises(LedgerError, match=message):
        retention.find_offered(settings, 3, NOW)
    with pytest.raises(LedgerError, match="there is no release 5: found 1, 2, 3, 4"):
        open_release(settings, 5)
    assert control.read(settings, RELEASES).num_rows == 4 * len(EVERY_TABLE)  # what was released once stays on record


def test_a_reader_of_the_newest_release_keeps_it_for_all_its_days_once_there_is_another(copy_home: Copy) -> None:
    """Release 1 was the newest for longer than releases are offered, until a moment ago."""
    settings = copy_home()
    released_on(settings, days_ago(40))
    write(settings, {DAILY_TOTALS.name: good_rows()[DAILY_TOTALS.name]})
    released_on(settings, NOW, first=2)
    ended = NOW + timedelta(days=settings.release_days)

    def is_there(now: datetime) -> tuple[bool, bool]:
        """Whether a reader finds release 1, and whether maintenance spares its files."""
        return 1 in retention.offered(settings, now), 1 in find(settings, DAILY_TOTALS, now).versions

    assert is_there(NOW) == is_there(ended) == (True, True)
    assert retention.find_offered(settings, 1, ended).release_id == 1
    moment = timedelta(microseconds=1)
    assert is_there(ended + moment) == is_there(ended + timedelta(days=1)) == (False, True)  # who opened it just before reads on
    assert is_there(ended + timedelta(days=1) + moment) == (False, False)


def test_what_a_person_releases_days_after_its_gate_closed_is_there(copy_home: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quiet period: files are joined after the gates, and eight days later maintenance removes those that were joined."""
    settings = copy_home()
    publish(settings)
    for batch in (3, 4, 5):
        one_more(settings, batch)
    gold_follows(settings, 5)
    write(settings, {"control.batches": [run_of("gold", table.name, 3, 5) for table in GOLD]})
    pass_gates(settings, last_batch=5, closed="gold")
    judged = {name: verdict.version for name, verdict in newest_verdicts(settings).items()}
    for table in (BRONZE_TRANSACTIONS, SILVER_TRANSACTIONS):
        assert DeltaTable(str(table.path(settings))).optimize.compact()["numFilesRemoved"]
    monkeypatch.setattr(table_maintenance, "plan", lambda *_: [])  # joining by Spark is not what this is about
    for table in EVERY_TABLE:
        age(settings, table, days=10)
        table_maintenance.maintain(settings, table, lambda: pytest.fail("a session was started"), datetime.now(UTC))

    decisions.decide(settings, "release anyway", "Ada", "the numbers are right")
    assert releases.publish(settings) == 2
    assert newest_release(settings).versions == judged
    found = everything(open_release(settings))
    assert (len(found["bronze.transactions"]), len(found["silver.transactions"])) == (9, 7)


def test_a_kept_release_outlives_its_files(copy_home: Copy) -> None:
    settings = copy_home()
    publish(settings)
    before = everything(open_release(settings))
    layouts = {table.name: DeltaTable(str(table.path(settings))) for table in EVERY_TABLE}
    stale = settings.warehouse / "releases/.draft-1/gold/daily_totals"  # of a process that died
    stale.mkdir(parents=True)
    folder = archive.copy_release(settings, 1)
    assert folder == settings.warehouse / "releases/1"
    assert [path.name for path in folder.parent.iterdir()] == ["1"]
    for name, source in layouts.items():
        copy = DeltaTable(str(folder.joinpath(*name.split("."))))
        assert copy.schema() == source.schema()
        assert copy.metadata().partition_columns == source.metadata().partition_columns

    overwrite_and_vacuum(settings)
    assert everything(open_release(settings, 1)) == before
    assert reconcile(settings, newest_release(settings)).differences == []
    versions = {path: DeltaTable(str(path)).version() for path in folder.glob("*/*")}
    archive.copy_release(settings, 1)
    assert {path: DeltaTable(str(path)).version() for path in folder.glob("*/*")} == versions
    assert len(versions) == len(EVERY_TABLE)

    shutil.rmtree(folder)  # without the copy, the files are gone
    with pytest.raises(QueryError, match=r"^the file .*\.parquet of this release is gone: open a newer release, or an archived one$"):
        everything(open_release(settings, 1))
    with pytest.raises(LedgerError, match=r"^bronze\.accounts: version 1 cannot be copied \(.*\): keep a newer release$"):
        archive.copy_release(settings, 1)
    assert list(folder.parent.iterdir()) == []


def test_a_copy_that_is_not_complete_is_not_kept(copy_home: Copy) -> None:
    settings = copy_home()
    released_on(settings, NOW)
    wrong = [row | {"release_id": 2} for row in control.read(settings, RELEASES).to_pylist()]
    wrong[-1]["rows"] += 1
    control.append(settings, RELEASES, wrong)
    with pytest.raises(LedgerError, match=rf"{wrong[-1]['table']}: copied \d+ rows, expected {wrong[-1]['rows']} as the release says"):
        archive.copy_release(settings, 2)
    assert not archive.is_archived(settings, 2)
    assert list((settings.warehouse / "releases").iterdir()) == []


def test_one_process_copies_a_release_at_a_time(copy_home: Copy) -> None:
    settings = copy_home()
    released_on(settings, NOW)
    with leases.hold_names(settings, ["releases.1"], owner="keep release 1"):
        with pytest.raises(LeaseHeld), leases.hold_names(settings, ["releases.1"], owner="another", wait_seconds=0):
            pass
        publish(settings)  # goes on meanwhile
    assert newest_release(settings).release_id == 1


def test_the_command_keeps_and_publishes_nothing(
    copy_home: Copy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = copy_home()
    publish(settings)
    one_more(settings, 3)
    gold_follows(settings, 3)
    monkeypatch.setenv("LEDGER_HOME", str(settings.home))
    assert run.main(["release", "--keep", "1"]) == 0
    assert archive.is_archived(settings, 1)
    assert newest_release(settings).release_id == 1
    assert run.main(["release", "--keep", "2"]) == 1
    assert caplog.messages[-1] == "there is no release 2: found 1"
    with pytest.raises(SystemExit) as left:
        run.main(["release", "--keep", "x"])
    assert left.value.code == 2


CHECKPOINTS = {"delta.checkpointInterval": "10"}


@pytest.mark.parametrize(("days", "files", "commits"), [("1", 7, 30), ("6", 7, 30), ("7", 8, 30), ("29", 30, 30), ("90", 91, 91)])
def test_files_and_commits_stay_longer_than_a_release_is_offered(days: str, files: int, commits: int, tmp_path: Path) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path), "LEDGER_RELEASE_DAYS": days})
    ensure_tables(settings, [BRONZE_TRANSACTIONS, SILVER_TRANSACTIONS, *CONTROL])
    expected = {
        "delta.deletedFileRetentionDuration": f"interval {files} days",
        "delta.logRetentionDuration": f"interval {commits} days",
        "delta.enableExpiredLogCleanup": "false",
    }
    assert configuration(settings, "bronze/transactions") == expected
    assert configuration(settings, "silver/transactions") == expected | CHECKPOINTS | {"delta.enableChangeDataFeed": "true"}
    assert configuration(settings, "control/releases") == CHECKPOINTS


@pytest.mark.parametrize("days", ["0", "-1", "7.5", "a week", "3651"])
def test_days_that_cannot_be_used_are_refused(days: str) -> None:
    with pytest.raises(SettingsError, match=rf"LEDGER_RELEASE_DAYS: found '{days}', expected a whole number from 1 to 3650"):
        read_settings({"LEDGER_RELEASE_DAYS": days})


def test_a_changed_setting_reaches_the_tables_once(tmp_path: Path) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    tables = [SILVER_TRANSACTIONS, DAILY_TOTALS]
    ensure_tables(settings, tables)
    retention.bring_up_to_date(settings, tables)
    assert [DeltaTable(str(table.path(settings))).version() for table in tables] == [0, 0]
    longer = replace(settings, release_days=40)
    for _ in range(2):
        ensure_tables(longer, tables)
        retention.bring_up_to_date(longer, tables)
        assert [DeltaTable(str(table.path(settings))).version() for table in tables] == [1, 1]
    assert configuration(settings, "silver/transactions") == {
        "delta.deletedFileRetentionDuration": "interval 41 days",
        "delta.logRetentionDuration": "interval 41 days",
        "delta.enableExpiredLogCleanup": "false",
        "delta.enableChangeDataFeed": "true",
        **CHECKPOINTS,
    }


def test_a_table_that_each_run_writes_has_a_checkpoint_after_ten_commits_and_one_of_each_second_has_not(tmp_path: Path) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    ensure_tables(settings, [BRONZE_TRANSACTIONS, LIVE_TRANSACTIONS, RELEASES, DAILY_TOTALS])
    for table in (BRONZE_TRANSACTIONS, LIVE_TRANSACTIONS, RELEASES, DAILY_TOTALS):
        for number in range(11):
            few_rows.note_applied(settings, table, Txn("test", number))
    names = [path.relative_to(settings.warehouse) for path in settings.warehouse.rglob("*.checkpoint.parquet")]
    tables = {f"{path.parts[0]}.{path.parts[1]}": path.name.partition(".")[0] for path in names}
    assert tables == {RELEASES.name: f"{9:020}", DAILY_TOTALS.name: f"{9:020}"}


def test_a_table_of_an_earlier_version_gets_its_checkpoints(tmp_path: Path) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    DeltaTable.create(str(DAILY_TOTALS.path(settings)), schema=DAILY_TOTALS.delta_schema())
    retention.bring_up_to_date(settings, [DAILY_TOTALS])
    assert CHECKPOINTS.items() <= configuration(settings, "gold/daily_totals").items()


def configuration(settings: Settings, path: str) -> dict[str, str]:
    return dict(DeltaTable(str(settings.warehouse / path)).metadata().configuration)
