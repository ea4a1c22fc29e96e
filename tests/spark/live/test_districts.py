"""Districts that change while a live query runs: rows of the next trigger have the new names, and every row the version that named it."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from spark_jobs.control import districts
from spark_jobs.lake import tables
from spark_jobs.live import places, resets, savepoints, state_job
from spark_jobs.live.products.district_transactions import QUERY
from spark_jobs.live.running import stages
from spark_jobs.runtime.settings import Settings, read_settings
from spark_jobs.service import run_loop
from tests.support import kill_points, lake
from tests.support.frames import at
from tests.support.live_lake import arrive, fingerprint_of, run_live

TEN, ELEVEN = "2024-01-01 10:00:00", "2024-01-01 11:00:00"
NOW = datetime(2024, 1, 2, tzinfo=UTC)
LONGEST = 300.0  # seconds, on a busy machine


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A1 is in district 1 until 11:00, then in 2; A2 always in 3; A3 in none; A4 was deleted. Of A9 nothing is known."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    tables.ensure_tables(settings, (tables.SILVER_ACCOUNTS, *tables.CONTROL))
    begin = at("2013-01-01")
    versions: list[tuple[Any, ...]] = [
        ("A00000001", 1, begin, at(ELEVEN)),
        ("A00000001", 2, at(ELEVEN), None),
        ("A00000002", 3, begin, None),
    ]
    versions += [("A00000003", None, begin, None), ("A00000004", None, begin, None)]
    names = ("account_id", "district_id", "valid_from", "valid_to")
    rows = [dict(zip(names, version, strict=True)) | {"is_deleted": version[0] == "A00000004"} for version in versions]
    schema = pa.schema(tables.SILVER_ACCOUNTS.delta_schema().to_arrow())
    write_deltalake(str(tables.SILVER_ACCOUNTS.path(settings)), pa.Table.from_pylist(rows, schema), mode="append")
    return settings


def load(settings: Settings, **names: str) -> int:
    """A version of the districts: `d1="Praha"`. Returns its number."""
    rows = [{"district_id": int(number[1:]), "name": name, "region": name[:1]} for number, name in names.items()]
    return districts.replace(settings, rows)[0]


def found(settings: Settings) -> dict[str, tuple[Any, ...]]:
    """District, name, region, status and version of each row, by transaction; each is there once."""
    rows = lake.rows_of(settings, QUERY.table)
    told = {
        row["transaction_id"]: tuple(
            row[name] for name in ("district_id", "district_name", "region", "district_status", "districts_version")
        )
        for row in rows
    }
    assert len(told) == len(rows)
    return told


def test_every_row_comes_out_with_the_district_of_its_account_then(live: SparkSession, settings: Settings) -> None:
    assert load(settings, d1="Praha", d2="Brno") == 1
    accounts = {
        "a": ("1", TEN),
        "b": ("1", ELEVEN),
        "c": ("2", TEN),
        "d": ("3", TEN),
        "e": ("4", TEN),
        "f": ("9", TEN),
        "old": ("1", "2012-06-01"),
    }
    arrive(settings, 1, *((name, time, {"accountId": f"A0000000{account}"}) for name, (account, time) in accounts.items()))
    run_live(live, settings, [QUERY])
    none = (None, None, None, "no district", 1)
    assert found(settings) == {
        "a": (1, "Praha", "P", "matched", 1),
        "b": (2, "Brno", "B", "matched", 1),
        "c": (3, None, None, "unknown", 1),
        **dict.fromkeys(("d", "e", "f", "old"), none),
    }


def test_a_running_query_takes_a_new_version_with_its_next_batch(live: SparkSession, settings: Settings) -> None:
    """The table changes between two batches of one run: it is not restarted. Nobody has loaded anything before the first of them."""
    arrive(settings, 1, ("a", TEN))
    tables.ensure_tables(settings, (*tables.BRONZE, *tables.LIVE))
    (intake,), (query,) = stages(live, settings, [QUERY], available_now=False)
    steps = [("b", ["Praha"]), ("c", ["Plzeň", "Písek"])]  # the next transaction, and what district 1 is called before it comes
    begun, expected = time.monotonic(), 1

    def is_over() -> bool:
        nonlocal expected
        assert time.monotonic() - begun < LONGEST, (intake.error, query.error)
        if lake.version(settings, QUERY.table) < expected:
            return False
        if steps:
            transaction, names = steps.pop(0)
            expected += 1
            for name in names:
                load(settings, d1=name)
            arrive(settings, expected, (transaction, TEN))
            return False
        return True

    assert not run_loop.run([intake, query], lambda _: None, is_over)
    assert found(settings) == {
        "a": (1, None, None, "unknown", 0),
        "b": (1, "Praha", "P", "matched", 1),
        "c": (1, "Písek", "P", "matched", 3),
    }


def test_a_batch_that_is_repeated_is_written_once_by_one_version(
    live: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed before the table, a batch gets the districts of its repetition; killed behind it, it keeps those it was written with."""

    def crash(name: str) -> None:
        if name == f"before {QUERY.table.name}":
            raise RuntimeError("killed before the table")

    load(settings, d1="Praha")
    arrive(settings, 1, ("a", TEN))
    with monkeypatch.context() as patch:
        kill_points.reach(patch, crash)
        with pytest.raises(AssertionError, match="killed before the table"):
            run_live(live, settings, [QUERY])
    assert found(settings) == {}
    load(settings, d1="Plzeň")
    run_live(live, settings, [QUERY])
    first = {"a": (1, "Plzeň", "P", "matched", 2)}
    assert found(settings) == first
    ended = places.root(settings) / QUERY.name / "1" / "commits"
    newest = max(int(file.name) for file in ended.glob("[0-9]*"))
    for name in (str(newest), f".{newest}.crc"):
        (ended / name).unlink()
    load(settings, d1="Písek")
    run_live(live, settings, [QUERY])
    assert found(settings) == first
    arrive(settings, 2, ("b", TEN))
    run_live(live, settings, [QUERY])
    assert found(settings) == first | {"b": (1, "Písek", "P", "matched", 3)}

    monkeypatch.setattr(savepoints, "QUERIES", (QUERY,))
    saved = savepoints.create(settings, "first", NOW)
    arrive(settings, 3, ("c", TEN))
    run_live(live, settings, [QUERY])
    later = found(settings)
    savepoints.restore(settings, saved, {QUERY.name: fingerprint_of(live, settings, QUERY)})
    resets.finish(settings)
    assert found(settings) == first | {"b": later["b"]}
    load(settings, d1="Tábor")
    run_live(live, settings, [QUERY])
    assert found(settings) == {**later, "c": (1, "Tábor", "T", "matched", 4)}

    assert state_job._query(QUERY.name) is QUERY
    state_job.show(settings, lambda: live, QUERY.name, "true")
    assert capsys.readouterr().out == ""
