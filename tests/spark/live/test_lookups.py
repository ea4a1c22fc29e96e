"""Look-ups of accounts while Postgres is away: each row goes on with an error, and the chain of the two tables stays one through all.

What Postgres answers is in tests/integration/live/test_lookups.py.
"""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.lake import sources, tables
from spark_jobs.live import application, places, savepoints, state_job, upgrade
from spark_jobs.live.declaration import LiveQuery
from spark_jobs.live.products.lookups import LOOKUPS, look_up_accounts
from spark_jobs.live.queries import switched_on
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support import kill_points, lake
from tests.support.live_lake import DAILY, arrive, fingerprint_of, run_live

QUERIES = (DAILY, *LOOKUPS)
ACCOUNTS, ERRORS = LOOKUPS
NOW = datetime(2024, 1, 1, tzinfo=UTC)
AWAY = "postgresql://ledger:s3cret@127.0.0.1:9/ledger"  # the discard port: nothing listens there


@pytest.fixture
def known_queries() -> Sequence[LiveQuery]:
    return QUERIES


def settings_of(home: Path, lookups: str = "on") -> Settings:
    return read_settings({"LEDGER_HOME": str(home), "LEDGER_POSTGRES_URL": AWAY, "LEDGER_LIVE_LOOKUPS": lookups})


def some(settings: Settings, batch: int) -> None:
    """A bronze batch of three rows of two accounts, a day after the batch before."""
    fields = ({"accountId": f"A0000000{number}"} for number in (1, 2, 1))
    arrive(settings, batch, *((f"{batch}{name}", f"2024-01-0{batch} 10:00:00", each) for name, each in zip("abc", fields, strict=True)))


def ids(settings: Settings) -> tuple[list[str], list[str]]:
    """The transactions in the two tables."""
    looked, failed = (lake.rows_of(settings, query.table) for query in LOOKUPS)
    return [row["transaction_id"] for row in looked], sorted(row["transaction_id"] for row in failed)


def test_a_row_without_an_answer_goes_on_and_is_listed_with_its_cause(
    live: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of(tmp_path)
    some(settings, 1)
    with caplog.at_level(logging.WARNING):
        run_live(live, settings, LOOKUPS)
    taken = lake.rows_of(settings, tables.LIVE_TRANSACTIONS)
    looked, errors = (lake.rows_of(settings, query.table) for query in LOOKUPS)
    shared = [name for name in ACCOUNTS.table.columns if name in tables.LIVE_TRANSACTIONS.columns]
    assert [{name: row[name] for name in shared} for row in looked] == [
        {name: row[name] for name in shared} for row in sorted(taken, key=lambda row: (row["_batch"], row["_partition"], row["_offset"]))
    ]
    assert len(looked) == 3
    empty = {"district_id": None, "frequency": None, "creation_date": None, "updated_at": None}
    said = {**empty, "lookup_status": "error", "cause": "ConnectionRefusedError"}
    assert [{name: row[name] for name in said} for row in looked] == [said] * 3
    assert {row["alert_id"]: (row["kind"], row["transaction_id"], row["account_id"], row["cause"]) for row in errors} == {
        "lookup_error/transactions/0/0": ("lookup_error", "1a", "A00000001", "ConnectionRefusedError"),
        "lookup_error/transactions/1/0": ("lookup_error", "1b", "A00000002", "ConnectionRefusedError"),
        "lookup_error/transactions/0/1": ("lookup_error", "1c", "A00000001", "ConnectionRefusedError"),
    }
    told = [record.getMessage() for record in caplog.records if "look-ups" in record.getMessage()]
    assert told == ["live look-ups of accounts: no answer for 3 rows (ConnectionRefusedError: 3)"]
    frame = look_up_accounts(sources.read_table(live, settings, tables.LIVE_TRANSACTIONS), settings)
    plan = frame._jdf.queryExecution().toString()
    assert "look_up" in plan
    assert "s3cret" not in plan
    assert "127.0.0.1" not in plan


def test_the_chain_of_two_tables_survives_crashes_savepoints_and_rebuilding(
    live: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each query dies after it has written; then both go back to a savepoint, and are rebuilt: each row once in each table."""
    settings = settings_of(tmp_path)
    some(settings, 1)
    run_live(live, settings, LOOKUPS)
    saved = savepoints.create(settings, "first", NOW)
    assert set(saved.batches) == {query.name for query in LOOKUPS}
    first = ids(settings)
    assert (len(first[0]), sorted(first[0])) == (3, first[1])
    for number, point in enumerate((f"after {query.table.name}" for query in LOOKUPS), 2):
        some(settings, number)

        def crash(name: str, at: str = point) -> None:
            if name == at:
                raise RuntimeError(f"killed {at}")

        with monkeypatch.context() as patch:
            kill_points.reach(patch, crash)
            with pytest.raises(AssertionError, match=f"killed {point}"):
                run_live(live, settings, LOOKUPS)
    with pytest.raises(LedgerError, match=r"live lookup_errors has not taken gold\.live_account_lookups up to its version \d+"):
        savepoints.create(settings, "halfway", NOW)
    run_live(live, settings, LOOKUPS)
    later = ids(settings)
    assert (len(later[0]), sorted(later[0])) == (9, later[1])
    for query in LOOKUPS:
        assert places.unread_from(settings, query.follows) == lake.version(settings, query.follows) + 1

    present = {query.name: fingerprint_of(live, settings, query) for query in QUERIES}
    savepoints.restore(settings, saved, present)
    assert ids(settings) == first
    run_live(live, settings, LOOKUPS)
    assert sorted(ids(settings)[0]) == ids(settings)[1] == later[1]

    upgrade.stateless(settings, present, [ACCOUNTS.name])
    assert ids(settings) == ([], [])
    run_live(live, settings, LOOKUPS)
    assert sorted(ids(settings)[0]) == ids(settings)[1] == later[1]

    state_job.list_all(settings, lambda: live)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "keeps no state" in line] == [
        f"{query.name}: generation 3, batch 0, watermark none yet: keeps no state" for query in LOOKUPS
    ]
    state_job.show(settings, lambda: live, ACCOUNTS.name, "true")
    state_job.export(settings, lambda: live, ACCOUNTS.name, tmp_path / "out")
    assert (capsys.readouterr().out, (tmp_path / "out").exists()) == ("", False)


def test_look_ups_that_are_switched_off_hold_nothing_back(live: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They were on, and are off: neither a savepoint nor maintenance waits for them. On again they take all that came meanwhile."""
    on, off = settings_of(tmp_path), settings_of(tmp_path, "off")
    some(on, 1)
    assert [query for query in switched_on(on) if query not in switched_on(off)] == [*LOOKUPS]
    run_live(live, on, QUERIES)
    assert set(savepoints.create(off, "level", NOW).batches) == {query.name for query in QUERIES}
    some(off, 2)
    run_live(live, off, [DAILY])
    head = lake.version(on, tables.LIVE_TRANSACTIONS)
    assert (places.unread_from(off, tables.LIVE_TRANSACTIONS), places.unread_from(on, tables.LIVE_TRANSACTIONS)) == (head + 1, head)
    with pytest.raises(LedgerError, match=r"live account_lookups has not taken gold\.live_transactions"):
        savepoints.create(on, "behind", NOW)
    with caplog.at_level(logging.WARNING):
        behind = savepoints.create(off, "behind", NOW)
    assert set(behind.batches) == {DAILY.name}
    assert [record.args for record in caplog.records if "it is not in the savepoint" in record.msg] == [(query.name,) for query in LOOKUPS]
    savepoints.restore(off, behind, {query.name: fingerprint_of(live, off, query) for query in QUERIES})
    assert ids(on) == ([], [])
    run_live(live, on, QUERIES)
    assert sorted(ids(on)[0]) == ids(on)[1] == ["1a", "1b", "1c", "2a", "2b", "2c"]


def test_look_ups_without_a_postgres_are_refused_at_start(spark: SparkSession, tmp_path: Path) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path), "LEDGER_LIVE_LOOKUPS": "on"})
    with pytest.raises(SettingsError, match="no Postgres: LEDGER_POSTGRES_URL is not set"):
        application.refuse(spark, settings)
    assert list(tmp_path.iterdir()) == []
