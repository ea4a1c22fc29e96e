"""A step of a backfill that died, and is ended by the next process: it is recorded with all that it changed, and by its own rules."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from expectations.row_rules import read_rules
from spark_jobs import control
from spark_jobs.control import backfills, corrections, rule_sets, scope
from spark_jobs.control.corrections import Correction
from spark_jobs.control.unfinished import Finisher
from spark_jobs.gold import job as gold
from spark_jobs.lake import tables
from spark_jobs.lake.topics import TOPICS
from spark_jobs.reprocessing import backfill
from spark_jobs.reprocessing.backfill import Request
from spark_jobs.reprocessing.silver_range import rebuild_silver, stage
from tests.spark.reprocessing.test_backfill import Killed, Lake, at, killed_at
from tests.support import kill_points, lake, oracle, redrive_cases as cases

pytestmark = pytest.mark.spark

ONLY = ("silver.transactions",)
RANGE = at(2), at(150.5)


@dataclass(frozen=True)
class Judged(Lake):
    """A lake whose batches were judged by the older rules; the newer ones are in force, and `rules` is the folder that says so."""

    rules: Path

    def die(self, spark: SparkSession, point: str) -> None:
        """A backfill of the range by the rules in force dies at a point."""
        rule_sets.register(self.settings, lake.BRONZE)
        with pytest.MonkeyPatch.context() as patch:
            kill_points.reach(patch, killed_at(point))
            with pytest.raises(Killed):
                backfill.run(spark, self.settings, Request(*RANGE, ONLY), "dies")

    def end(self, spark: SparkSession) -> dict[str, Any]:
        """The next process ends the step; what control.backfills says of it."""
        backfill.finish_halfway(self.settings, Finisher("ends", lambda: spark))
        assert backfills.halfway(self.settings) is None
        done = [row for row in lake.rows_of(self.settings, tables.BACKFILLS) if row["state"] == "done"]
        assert [row["run_id"] for row in done] == ["ends"]
        return done[0]


@pytest.fixture(scope="module")
def followed(spark: SparkSession, judged_by_older: cases.Judged, tmp_path_factory: pytest.TempPathFactory) -> cases.Judged:
    """Five batches in silver and gold; not to be written to."""
    settings, log = judged_by_older.copy(tmp_path_factory.mktemp("ended") / "home")
    tables.ensure_tables(settings, tables.GOLD)
    gold.run(spark, settings, "gold")
    return cases.Judged(settings, log)


@pytest.fixture
def own(followed: cases.Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Judged]:
    """A copy for one test."""
    monkeypatch.setattr(backfill, "_PAUSE_SECONDS", 0)
    with cases.newer_rules(tmp_path / "rules"):
        yield Judged(*followed.copy(tmp_path / "home"), tmp_path / "rules")


def correct_one(own: Judged) -> cases.Place:
    """A record of unknown type gets a correction, which no re-drive has taken yet."""
    fields, row = next(
        (fields, row) for row in own.log.bronze["transactions"] if (fields := json.loads(row["value"]))["type"] == "Transfer"
    )
    place = oracle.place(row)
    own.log.values[place] = json.dumps(fields | {"type": "Debit", "eventTime": cases.START + 100 * cases.MINUTE}).encode()
    corrections.append(own.settings, [Correction(place, own.log.values[place], "Ada", "typed wrong")], datetime.now(UTC))
    return place


def judge(own: Judged) -> dict[str, int]:
    """The gates pass everything as it is now; returns the versions."""
    versions = {name: lake.version(own.settings, table) for name, table in tables.BY_NAME.items()}
    verdict = {"run_id": "gates", "success": True, "evaluated": 1, "failed": 0, "_first_batch": 1, "_judged_at": datetime.now(UTC)}
    rows = [
        verdict | {"layer": table.layer, "table": name, "suite": name, "version": versions[name], "_last_batch": last}
        for name, table in tables.BY_NAME.items()
        for last in [control.last_batch(own.settings, "silver", f"silver.{table.topic}")]
    ]
    control.append(own.settings, tables.QUALITY_RESULTS, rows)
    return versions


def test_a_step_that_died_after_its_last_write_of_silver_is_recorded_with_what_it_changed(spark: SparkSession, own: Judged) -> None:
    """Its rows are judged by the gates, a roll-back withdraws it, its correction is in effect, the next watermark is that of its rows."""
    settings, place, released = own.settings, correct_one(own), judge(own)
    staged = stage(spark, settings, TOPICS[0], read_rules("transactions"), *RANGE, settings.home / "staged")
    planned = rebuild_silver(spark, settings, staged, *RANGE, "none", None).changed
    assert {table.name for table in planned} >= {"silver.transactions", "silver.transactions_quarantine", "silver.transactions_late"}
    own.die(spark, "before redrives of silver.transactions")
    done = own.end(spark)

    own.judge_newer(2, 150.5, ONLY)
    split = cases.assert_silver(settings, own.log)
    changed = json.loads(done["_versions"])
    assert changed == {table.name: lake.version(settings, table) for table in planned}
    assert done["changed"] == sum(planned.values())
    assert done["_newest_event_at"] == max(row["event_at"] for row in split.first.values())
    assert not backfills.is_of_release(done, released)
    assert place in corrections.in_effect(settings, tables.SILVER_TRANSACTIONS)
    own.take(spark, range(6, 7), random.Random(4), judged_newer=True)
    cases.assert_silver(settings, own.log)
    first = {each.table.name: each.first_batch for each in scope.find_written(settings, "silver")[0]}
    assert {first[table.name] for table in (TOPICS[0].silver, TOPICS[0].quarantine)} == {1}


def test_a_step_that_died_is_ended_by_the_rules_that_it_was_begun_with(spark: SparkSession, own: Judged) -> None:
    """Other rules came in force meanwhile. The record says by which the step was judged."""
    own.die(spark, "after silver.transactions")
    cases.write_rules(own.rules, older=True)
    try:
        done = own.end(spark)
    finally:
        cases.write_rules(own.rules, older=False)
    own.judge_newer(2, 150.5, ONLY)
    cases.assert_silver(own.settings, own.log)
    assert json.loads(done["rules_versions"])["transactions"] == "new"
