"""A live query that died within a batch goes on, with the partitions that its state was begun with; a failure is not the end."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.lake import sinks, tables
from spark_jobs.live import running
from spark_jobs.live.queries import BY_NAME
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support import kill_points, lake, redrive_cases as cases
from tests.support.live_lake import arrive, run_live

QUERY = BY_NAME["daily_totals"]


@pytest.fixture
def live(live: SparkSession) -> Iterator[SparkSession]:
    with sinks.configured(live, {"spark.sql.shuffle.partitions": "2"}):
        yield live


def test_a_query_that_died_within_a_batch_of_its_first_run_goes_on_with_its_partitions(live: SparkSession, settings: Settings) -> None:
    """Two types lie in two partitions of the state; the next start asks for one partition, and must not forget the other."""
    checkpoint = settings.checkpoints / "live" / QUERY.name / "1"
    arrive(settings, 1, *((f"a{kind}", "2024-01-01 10:00:00", {"type": kind}) for kind in ("Debit", "Credit")))
    run_live(live, settings, queries=[QUERY])
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    arrive(settings, 2, ("b", "2024-01-02 10:00:00", {"type": "Debit"}))
    with sinks.configured(live, {"spark.sql.shuffle.partitions": "1"}):
        run_live(live, settings, queries=[QUERY])
    assert {(row["type"], row["transactions"]) for row in lake.rows_of(settings, QUERY.table)} == {("Debit", 1), ("Credit", 1)}
    assert (checkpoint / "commits" / "2").exists()


def test_a_crash_between_any_two_writes_loses_and_doubles_nothing(
    live: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch is cut short at another point, and repeated by the next start together with a new one."""
    undisturbed = read_settings({"LEDGER_HOME": str(settings.home / "undisturbed")})
    points = [
        f"{when} {table.name}" for table in (tables.LIVE_REFUSED, tables.LIVE_TRANSACTIONS, QUERY.table) for when in ("before", "after")
    ]
    for number, point in enumerate(points, 1):
        rows = [(f"{number}{name}", f"2024-01-0{number} {hour}:00:00") for name, hour in (("a", "10"), ("a", "10"), ("b", "11"))]
        for each in (settings, undisturbed):
            arrive(each, number, *rows, ("late", "2023-01-01 00:00:00"))
        if number == 1:  # the first day is closed by the second
            run_live(live, settings, queries=[QUERY])
            continue

        def crash(name: str, at: str = point) -> None:
            if name == at:
                raise RuntimeError(f"killed {at}")

        with monkeypatch.context() as patch:
            kill_points.reach(patch, crash)
            with pytest.raises(AssertionError, match=f"killed {point}"):
                run_live(live, settings, queries=[QUERY])
    run_live(live, settings, queries=[QUERY])
    run_live(live, undisturbed, queries=[QUERY])
    for table in (tables.LIVE_TRANSACTIONS, tables.LIVE_REFUSED, QUERY.table):
        found, expected = (Counter(map(str, lake.rows_of(each, table))) for each in (settings, undisturbed))
        assert found == expected, table.name
        assert found, table.name


@pytest.mark.parametrize("begun_with_newer", [False, True])
def test_what_an_unfinished_batch_has_refused_stays_refused_and_nothing_else_of_it(
    live: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, begun_with_newer: bool
) -> None:
    """The intake dies between its two tables, then rules and lateness change. The newer ones accept more. Batch 3 is decided by them."""

    def start(*, newer: bool) -> None:
        cases.write_rules(tmp_path / "rules", older=not newer)
        lateness = {"LEDGER_ALLOWED_LATENESS_SECONDS": "3600"} if newer else {}
        run_live(live, read_settings({"LEDGER_HOME": str(settings.home), **lateness}), ())

    def crash(name: str) -> None:
        if name == "after gold.live_refused":
            raise RuntimeError("killed")

    def in_batch(number: int) -> None:
        changes: dict[str, dict[str, Any]] = {"good": {}, "large": {"amount": 5000}, "bad": {"type": "Transfer"}}
        rows = [(f"{number}{name}", "2024-01-01 10:30:30", each) for name, each in changes.items()]
        arrive(settings, number, *rows, (f"{number}late", "2024-01-01 10:30:00"))

    with cases.older_rules(tmp_path / "rules"):
        arrive(settings, 1, ("first", "2024-01-01 10:30:30"))
        start(newer=begun_with_newer)
        in_batch(2)
        with monkeypatch.context() as patch:
            kill_points.reach(patch, crash)
            with pytest.raises(AssertionError, match="killed"):
                start(newer=begun_with_newer)
        in_batch(3)
        start(newer=not begun_with_newer)
    generous, strict = (2, 3) if begun_with_newer else (3, 2)
    accepted = sorted(row["transaction_id"] for row in lake.rows_of(settings, tables.LIVE_TRANSACTIONS))
    assert accepted == sorted(["first", "2good", "3good", f"{generous}large", f"{generous}late"])
    refused = Counter((row["_batch"], row["reason"]) for row in lake.rows_of(settings, tables.LIVE_REFUSED))
    assert refused == {(strict, "invalid"): 2, (strict, "late"): 1, (generous, "invalid"): 1}


def test_a_start_without_anything_new_judges_nothing(live: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark has no position behind the newest commit to start at, and brings all of bronze."""
    arrive(settings, 1, ("a", "2024-01-01 10:00:00"))
    run_live(live, settings, ())
    taken: list[int] = []
    monkeypatch.setattr(running.Intake, "_decide", lambda self, judged, *_: taken.append(judged.count()))
    run_live(live, settings, ())
    assert taken == []


def test_a_query_that_fails_at_once_is_not_taken_for_done(live: SparkSession, settings: Settings) -> None:
    arrive(settings, 1, ("a", "2024-01-01 10:00:00"))
    run_live(live, settings, queries=[QUERY])
    offsets = settings.checkpoints / "live" / QUERY.name / "1" / "offsets"
    for file in offsets.iterdir():
        file.unlink() if file.name.endswith(".crc") else file.write_text("v9\n{}\n")
    with pytest.raises(AssertionError, match="INVALID_LOG_VERSION"):  # of run_live, which looks at the error of each query
        run_live(live, settings, queries=[QUERY])
