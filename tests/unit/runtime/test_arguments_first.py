"""Arguments that cannot be used are told at once, whoever holds the tables: each command, with all leases held by another process."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_jobs import run
from spark_jobs.lake import leases, tables
from spark_jobs.runtime.settings import read_settings

NAMES = ("backfill", "maintenance", "releases.99")
RANGE = ["--start=2013-01-01", "--end=2013-01-02"]
UNUSABLE = {
    "a backfill that ends before it starts": (["backfill", "--start=2013-01-02", "--end=2013-01-01"], 2),
    "a backfill from no time": (["backfill", "--start=then", "--end=2013-01-01"], 2),
    "a dry run of one": (["backfill", "--start=2013-01-02", "--end=2013-01-01", "--dry-run"], 2),
    "a re-drive by no rule": (["redrive", "--rule=nope"], 2),
    "a re-drive of no range": (["redrive", "--rule=parseable", "--first-batch=3", "--last-batch=2"], 2),
    "a re-drive without its corrections": (["redrive", "--rule=parseable", "--corrections=missing"], 2),
    "a savepoint of no name": (["savepoint", "create", "a/b"], 2),
    "a savepoint that is not there": (["savepoint", "restore", "nope"], 2),
    "an import of no file": (["import", "--topic=accounts", "--name=old", "--file=missing"], 2),
    "an import of no name": (["import", "--topic=accounts", "--name=a b", "--file=missing"], 2),
    "districts of no file": (["districts", "--file=missing"], 2),
    "a silence that is over": (["live_alerts", "silence", "--account=A1", "--who=Ada", "--why=x", "--until=2013-01-01"], 2),
    "a replay from no time": (["replay", "--from=then"], 2),
    "an audit of no release": (["audit", "--as-of=99"], 2),
    "a release that is not there": (["release", "--keep=99"], 1),
    "a partition without an offset": (["accept", "--topic=accounts", "--partition=1", "--who=Ada", "--why=x"], 2),
    "offsets that are none": (["bronze", "--available-now", "--starting-offsets=then"], 2),
    "an export of no table": (["export", "--table=silver.nothing", "--to=/tmp/nowhere", *RANGE], 2),
    "a rehearsal of no suite": (["gate", "silver", "--suite=missing.json"], 2),
}


WAITS = "it waits for a lease"


def refuse_to_wait(_: float) -> None:
    raise AssertionError(WAITS)


@pytest.mark.parametrize(("arguments", "exit_code"), UNUSABLE.values(), ids=UNUSABLE)
def test_it_is_told_before_a_lease_is_waited_for(
    arguments: list[str], exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=time.monotonic, sleep=refuse_to_wait))
    names = [*NAMES, *dict.fromkeys(table.name for table in (*tables.EVERY, *tables.SILVER_OWNED))]
    with leases.hold_names(read_settings(), names, owner="another"), ThreadPoolExecutor(1) as another_process:
        assert another_process.submit(run.main, arguments).result() == exit_code
    assert WAITS not in caplog.text
