"""Savepoints: states and tables of one moment, kept and brought back, whatever kills the way."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from spark_jobs.lake import tables
from spark_jobs.live import fingerprint, places, resets, savepoints
from spark_jobs.live.declaration import LiveQuery
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings
from spark_jobs.service import checkpoints
from tests.support import kill_points, lake
from tests.support.live_lake import DAILY, PAIRS, arrive, fingerprint_of, rows, run_live, written

NOW = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture
def known_queries() -> Sequence[LiveQuery]:
    return (DAILY, PAIRS)


def test_a_savepoint_brings_states_and_tables_back_whatever_kills_the_way(
    live: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came later is taken again, once, by the state of that moment; a restore that is cut short anywhere is made good."""
    both = [DAILY, PAIRS]
    arrive(settings, 1, ("d1", "2024-01-01 10:00:00", {"type": "Debit"}), ("x", "2024-01-01 10:30:00"), ("x", "2024-01-01 10:30:00"))
    run_live(live, settings, both)
    saved = savepoints.create(settings, "first", NOW)
    at_savepoint = rows(settings)
    with pytest.raises(SettingsError, match="found a savepoint first already"):
        savepoints.create(settings, "first", NOW)
    arrive(settings, 2, ("c1", "2024-01-01 11:00:00"), ("c2", "2024-01-02 00:00:00"), ("late", "2023-01-01 00:00:00"))
    arrive(settings, 3, ("end", "2024-01-03 12:00:00"))
    run_live(live, settings, both)
    later = rows(settings)
    assert written(settings, DAILY) == {("2024-01-01", 1, "900.50"): 1, ("2024-01-01", 2, "1801.00"): 1, ("2024-01-02", 1, "900.50"): 1}
    points = [f"{when} reset of {table.name}" for table in (tables.LIVE_TRANSACTIONS, PAIRS.table) for when in ("before", "after")]
    for point in (*points, f"before the state of {PAIRS.name}", "before the reset is done"):
        with monkeypatch.context() as patch:
            kill_points.reach(patch, crash_at(point))
            with pytest.raises(RuntimeError, match=f"killed {point}"):
                savepoints.restore(settings, saved, {})
        resets.finish(settings)
        assert rows(settings) == at_savepoint, point
    run_live(live, settings, both)
    assert rows(settings) == later
    assert not (places.root(settings) / "reset.json").exists()
    assert places.unread_from(settings, tables.LIVE_TRANSACTIONS) == lake.version(settings, tables.LIVE_TRANSACTIONS) + 1


def test_a_savepoint_is_of_one_moment_or_is_not_made(live: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    arrive(settings, 1, ("a", "2024-01-01 10:00:00"))
    run_live(live, settings, ())
    with pytest.raises(LedgerError, match=r"found no live query that has ever run"):
        savepoints.create(settings, "early", NOW)
    run_live(live, settings, [DAILY, PAIRS])
    arrive(settings, 2, ("b", "2024-01-01 10:00:00"))
    run_live(live, settings, [PAIRS])  # and daily_totals was killed before it took the second batch
    with pytest.raises(LedgerError, match=r"live daily_totals has not taken gold\.live_transactions up to its version 2"):
        savepoints.create(settings, "early", NOW)
    with monkeypatch.context() as patch:
        kill_points.reach(patch, crash_at("after gold.live_refused"))
        arrive(settings, 3, ("c", "2024-01-02 10:00:00"), ("c", "2024-01-02 10:00:00"))
        with pytest.raises(AssertionError, match="killed after"):
            run_live(live, settings, ())
    with pytest.raises(LedgerError, match=r"live transactions has not ended the batch that it was in"):
        savepoints.create(settings, "early", NOW)
    run_live(live, settings, [DAILY, PAIRS])
    ended = places.root(settings) / DAILY.name / "1" / "commits"
    newest = max(int(file.name) for file in ended.glob("[0-9]*"))
    (ended / str(newest)).unlink()  # killed between the table, in which the first day is, and the checkpoint
    with pytest.raises(LedgerError, match=rf"live daily_totals has written batch {newest}, and not ended it, as after a crash"):
        savepoints.create(settings, "early", NOW)
    assert places.read_savepoints(settings) == []
    for name in ("../out", "", "a b"):
        with pytest.raises(SettingsError, match="found the name"):
            savepoints.create(settings, name, NOW)
    with pytest.raises(SettingsError, match="found no savepoint 'other', expected one of: none was created"):
        savepoints.find(settings, "other")


def test_a_savepoint_of_fewer_queries_is_restored_and_maintenance_does_not_hinder_one(live: SparkSession, settings: Settings) -> None:
    arrive(settings, 1, ("d1", "2024-01-01 10:00:00", {"type": "Debit"}))
    run_live(live, settings, [DAILY])
    arrive(settings, 2, ("d2", "2024-01-01 10:10:00", {"type": "Debit"}))
    run_live(live, settings, [DAILY])
    assert DeltaTable(str(tables.LIVE_TRANSACTIONS.path(settings))).optimize.compact()["numFilesRemoved"] == 2
    saved = savepoints.create(settings, "before-pairs", NOW)
    assert set(saved.batches) == {DAILY.name}
    arrive(settings, 3, ("c1", "2024-01-01 11:00:00"), ("end", "2024-01-02 12:00:00"))
    run_live(live, settings, [DAILY, PAIRS])
    later = rows(settings)
    assert len(later[PAIRS.table.name]) == 2
    present = {query.name: fingerprint_of(live, settings, query) for query in (DAILY, PAIRS)}
    savepoints.restore(settings, saved, present)
    assert rows(settings)[PAIRS.table.name] == {}
    run_live(live, settings, [DAILY, PAIRS])
    assert rows(settings) == later
    older = replace(saved, versions={name: of for name, of in saved.versions.items() if name != PAIRS.table.name})
    assert savepoints.line(settings, older).endswith("can be restored")
    dropped = places.root(settings) / "no_more"
    (dropped / "1").mkdir(parents=True)
    (dropped / checkpoints.FILE).write_text('{"number": 1}')
    assert places.unread_from(settings, tables.LIVE_TRANSACTIONS) == lake.version(settings, tables.LIVE_TRANSACTIONS) + 1


def test_a_savepoint_of_other_code_is_refused_with_what_helps(live: SparkSession, settings: Settings) -> None:
    tables.ensure_tables(settings, tables.LIVE)
    now, then = fingerprint_of(live, settings, DAILY), fingerprint_of(live, settings, replace(DAILY, sources=("others",)))
    with pytest.raises(SettingsError, match=r"Expected the same in the code: restore savepoint one with the code that wrote it$"):
        fingerprint.check({DAILY.name: now}, {DAILY.name: then, "no_more": then}, "savepoint one")


def crash_at(point: str) -> Callable[[str], None]:
    def crash(name: str) -> None:
        if name == point:
            raise RuntimeError(f"killed {point}")

    return crash
