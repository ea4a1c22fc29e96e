"""SQL catalogues: what a release's file answers, when it is written and removed, and that a release never depends on it."""

import logging
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from include.reader import open_catalogue, open_release
from spark_jobs import control, run
from spark_jobs.lake import leases
from spark_jobs.lake.tables import CORRECTIONS, DAILY_TOTALS, GOLD, QUALITY_RESULTS, SILVER_OWNED
from spark_jobs.maintenance import job as maintenance
from spark_jobs.releases import archive, catalogues, decisions, duckdb_file, releases, rollback, views
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings
from tests.support.catalogues import assert_same_rows
from tests.support.publishing import EVERY_TABLE, gold_follows, one_more, publish, released_on
from tests.support.warehouse import at, bronze, settings_of, write

Copy = Callable[[], Settings]
NOW = datetime.now(UTC)
STRANGE = 'it\'s a "wäre" hause; ünï ✓ {y} *#&+ `z`'


def files(settings: Settings) -> list[str]:
    return sorted(path.name for path in catalogues.folder(settings).iterdir())


def answer(settings: Settings, query: str, release_id: int | None = None) -> list[tuple[Any, ...]]:
    with open_catalogue(settings, release_id) as connection:
        return [tuple(row.values()) for row in connection.execute(query).to_arrow_table().to_pylist()]


def published(settings: Settings, last_batch: int = 2) -> int:
    number = publish(settings, last_batch)
    catalogues.bring_up_to_date(settings)
    return number


def second_release(settings: Settings) -> None:
    one_more(settings, 3)
    gold_follows(settings, 3)
    published(settings, last_batch=3)


@pytest.fixture
def strange_home(good_home: Path, tmp_path: Path) -> Settings:
    """A home below a folder with characters that a path may have and SQL does not like."""
    home = tmp_path / STRANGE
    shutil.copytree(good_home, home)
    return settings_of(home)


def test_a_catalogue_has_the_rows_that_readers_see(strange_home: Settings) -> None:
    settings = strange_home
    write(settings, {"bronze.transactions": [bronze(at(0, 5, 3), b"T", b"{}")]})  # the version that is judged holds batch 3 too
    published(settings)
    reader = open_release(settings)
    assert assert_same_rows(settings, 1) == {
        name: reader.sql(f"select count(*) as n from {name}")["n"][0].as_py() for name in reader.tables
    }
    assert answer(settings, "select max(_batch), count(*) from bronze.transactions") == [(2, 6)]
    assert answer(settings, "select release_id, released_at from release") == [(1, reader.release.released_at)]


def test_a_catalogue_stays_on_its_release_and_newest_goes_on(copy_home: Copy) -> None:
    settings = copy_home()
    published(settings)
    query = "select release_id, (select sum(transactions) from gold.daily_totals), (select count(*) from bronze.transactions) from release"
    with open_catalogue(settings) as opened:
        second_release(settings)
        assert opened.execute(query).fetchall() == [(1, 4, 6)]  # who has it open keeps it
    assert [answer(settings, query, number) for number in (1, 2, None)] == [[(1, 4, 6)], [(2, 5, 7)], [(2, 5, 7)]]
    assert files(settings) == ["made.json", "newest.duckdb", "release-1.duckdb", "release-2.duckdb"]
    assert_same_rows(settings, 1)
    assert_same_rows(settings, 2)
    before = {path: path.lstat().st_mtime_ns for path in catalogues.folder(settings).iterdir()}
    catalogues.bring_up_to_date(settings)
    assert {path: path.lstat().st_mtime_ns for path in catalogues.folder(settings).iterdir()} == before


def test_a_catalogue_shows_the_control_tables_but_no_values_of_persons(copy_home: Copy) -> None:
    settings = copy_home()
    control.append(settings, CORRECTIONS, [{"_topic": "customers", "value": b"Jan Novak"}])
    published(settings)
    shown = {
        f"{schema}.{name}" for schema, name in answer(settings, "select schema_name, view_name from duckdb_views() where not internal")
    }
    expected = {table.name for table in (*EVERY_TABLE, *views.readable_control(settings))}
    assert shown == expected | {"main.release"}
    assert "control.corrections" not in shown
    second_release(settings)  # of control, the newest rows are seen
    assert answer(settings, "select max(release_id) from control.releases", 1) == [(2,)]


def test_a_catalogue_is_only_read_and_belongs_to_its_owner(copy_home: Copy) -> None:
    settings = copy_home()
    published(settings)
    with open_catalogue(settings) as connection, pytest.raises(Exception, match="read-only mode"):
        connection.execute("drop view gold.daily_totals")
    assert stat.S_IMODE(catalogues.folder(settings).stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in catalogues.folder(settings).iterdir()} == {0o600}


def test_a_warehouse_that_moved_is_read_by_a_variable_until_the_next_run(copy_home: Copy, tmp_path: Path) -> None:
    settings = copy_home()
    published(settings)
    home = tmp_path / STRANGE
    settings.home.rename(home)
    moved = settings_of(home)
    with open_catalogue(moved) as connection:
        with pytest.raises(Exception, match="Path does not exist"):
            connection.execute("select * from gold.daily_totals")
        connection.execute(f"set variable warehouse = '{str(moved.warehouse).replace(chr(39), chr(39) * 2)}'")
        assert connection.execute("select sum(transactions) from gold.daily_totals").fetchall() == [(4,)]
    catalogues.bring_up_to_date(moved)
    assert_same_rows(moved, 1)


def test_a_catalogue_goes_with_its_release_and_one_that_is_kept_is_read_from_its_copy(copy_home: Copy) -> None:
    settings = copy_home()
    released_on(settings, *(NOW - timedelta(days=days) for days in (40, 30, 20, 5, 4)))
    archive.copy_release(settings, 1)
    catalogues.bring_up_to_date(settings)
    numbers = [1, 3, 4, 5]
    assert files(settings) == ["made.json", "newest.duckdb", *(f"release-{number}.duckdb" for number in numbers)]
    archive.copy_release(settings, 3)
    catalogues.bring_up_to_date(settings)
    before = assert_same_rows(settings, 3)
    write(settings, {DAILY_TOTALS.name: []}, mode="overwrite")
    DeltaTable(str(DAILY_TOTALS.path(settings))).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert assert_same_rows(settings, 1) == assert_same_rows(settings, 3) == before
    with open_catalogue(settings, 5) as connection, pytest.raises(Exception, match=r"\.parquet"):  # its files are gone
        connection.execute("select sum(transactions) from gold.daily_totals").fetchall()
    with pytest.raises(LedgerError, match=r"release 2 of .* has expired"):
        open_catalogue(settings, 2)
    shutil.rmtree(archive.folder(settings, 1))
    catalogues.bring_up_to_date(settings)
    assert "release-1.duckdb" not in files(settings)


def test_maintenance_removes_the_catalogues_of_expired_releases(copy_home: Copy) -> None:
    settings = copy_home()
    released_on(settings, NOW - timedelta(days=20), NOW - timedelta(days=10))
    catalogues.bring_up_to_date(replace(settings, release_days=30))
    shown = files(settings)
    maintenance.run(settings, [QUALITY_RESULTS], lambda: pytest.fail("a session was started"), who="test", wait_seconds=0)
    assert (shown[2], files(settings)) == ("release-1.duckdb", ["made.json", "newest.duckdb", "release-2.duckdb"])


def test_after_a_roll_back_newest_is_the_release_to_which_it_went(copy_home: Copy) -> None:
    settings = copy_home()
    published(settings)
    one_more(settings, 3)
    gold_follows(settings, 3)
    decisions.decide(settings, "roll back", "Ada", "the numbers are wrong")
    rollback.finish(settings)
    catalogues.bring_up_to_date(settings)
    assert answer(settings, "select release_id, (select sum(transactions) from gold.daily_totals) from release") == [(1, 4)]
    assert_same_rows(settings, 1)


@pytest.mark.parametrize("point", ["before a catalogue is swapped", "after a catalogue is swapped"])
def test_a_run_that_dies_leaves_whole_catalogues_and_the_next_one_ends_it(
    point: str, copy_home: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = copy_home()
    published(settings)

    class Killed(BaseException):
        pass

    def die(name: str) -> None:
        if name == point:
            raise Killed

    one_more(settings, 3)
    gold_follows(settings, 3)
    publish(settings, last_batch=3)
    with monkeypatch.context() as patch:
        patch.setattr(catalogues, "kill_point", die)
        with pytest.raises(Killed):
            catalogues.bring_up_to_date(settings)
    assert answer(settings, "select release_id from release") == [(1,)]  # nobody was sent to a file that is not whole
    assert_same_rows(settings, 1)
    catalogues.bring_up_to_date(settings)
    assert answer(settings, "select release_id from release") == [(2,)]
    assert_same_rows(settings, 2)
    assert [name for name in files(settings) if name.startswith(".")] == []


def test_a_catalogue_that_cannot_be_written_fails_no_release_and_comes_with_the_next_run(
    copy_home: Copy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = copy_home()
    publish(settings)
    monkeypatch.setenv("LEDGER_HOME", str(settings.home))
    catalogues.folder(settings).write_text("in the way")
    assert run.main(["release"]) == 0
    assert "release 1 has no SQL catalogue ([Errno 17] File exists: " in caplog.text
    catalogues.folder(settings).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(duckdb_file, "_SECONDS", 0.001)  # it hangs
        with caplog.at_level(logging.INFO):
            assert run.main(["release"]) == 0
    assert "release 1 has no SQL catalogue (DuckDB wrote nothing: " in caplog.text
    with pytest.raises(LedgerError, match=r"found no SQL catalogue at .*newest"):
        open_catalogue(settings)
    assert run.main(["release"]) == 0
    assert_same_rows(settings, 1)


def test_whatever_fails_fails_no_release(copy_home: Copy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    settings = copy_home()
    publish(settings)
    catalogues.folder(settings).mkdir()
    (catalogues.folder(settings) / ".draft").mkdir()  # of whatever: it cannot be removed as a file
    monkeypatch.setenv("LEDGER_HOME", str(settings.home))
    assert run.main(["release"]) == 0
    assert "the SQL catalogues could not be brought up to date (" in caplog.text
    assert releases.newest_release(settings).release_id == 1


def test_a_backfill_that_holds_the_tables_writes_its_catalogue(copy_home: Copy) -> None:
    settings = copy_home()
    with leases.hold(settings, (*SILVER_OWNED, *GOLD), owner="backfill"):
        published(settings)
    assert "release-1.duckdb" in files(settings)


def test_one_run_writes_a_few_of_many_that_are_missing_the_newest_first(copy_home: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = copy_home()
    released_on(settings, *(NOW - timedelta(hours=hours) for hours in (4, 3, 2)))
    monkeypatch.setattr(catalogues, "_MOST", 2)
    catalogues.bring_up_to_date(settings)
    assert [name for name in files(settings) if name.endswith(".duckdb")] == ["newest.duckdb", "release-2.duckdb", "release-3.duckdb"]
    catalogues.bring_up_to_date(settings)
    assert "release-1.duckdb" in files(settings)
