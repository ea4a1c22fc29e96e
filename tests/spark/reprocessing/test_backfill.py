"""Backfills: tables are afterwards what plain Python makes of bronze, with the range judged by today's rules and the rest by theirs."""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from expectations.row_rules import read_rules
from spark_jobs.control import backfills, rebuilt as rebuilt_records, rule_sets
from spark_jobs.control.unfinished import Finisher
from spark_jobs.gold import job as gold
from spark_jobs.lake import sources, tables
from spark_jobs.lake.topic import Topic
from spark_jobs.lake.topics import TOPICS
from spark_jobs.reprocessing import backfill, dry_run
from spark_jobs.reprocessing.backfill import Request
from spark_jobs.reprocessing.silver_range import _judge, rebuild_silver, stage
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings
from tests.support import kill_points, lake, oracle, redrive_cases as cases
from tests.support.gold_model import model
from tests.support.redrive_cases import MINUTE, START, Judged, Log

pytestmark = pytest.mark.spark


def at(minute: float) -> datetime:
    """A time of the test's records."""
    return oracle.at(START + round(minute * MINUTE))


@dataclass(frozen=True)
class Lake:
    """A warehouse, and what it was made of."""

    settings: Settings
    log: Log

    def take(self, spark: SparkSession, batches: range, chance: random.Random, *, judged_newer: bool = False) -> None:
        """New batches of records come, and silver takes them in one run; then gold does, once it has begun to."""
        for batch in batches:
            cases.arrive(self.settings, self.log, batch, chance)
        if judged_newer:
            rows = [row for rows in self.log.bronze.values() for row in rows if row["_batch"] >= batches[0]]
            self.log.newer |= {oracle.place(row) for row in rows}
        lake.run_silver(spark, self.settings, f"silver-{batches[-1]}")
        if DeltaTable.is_deltatable(str(tables.GOLD[0].path(self.settings))):
            gold.run(spark, self.settings, f"gold-{batches[-1]}")

    def judge_newer(self, first: float, last: float, only: tuple[str, ...] = tables.REBUILT) -> None:
        """From here on the records of these minutes count as judged by the newer rules."""
        for topic, time in (("transactions", "eventTime"), ("customers", "updateTime")):
            for row in self.log.bronze[topic] if f"silver.{topic}" in only else []:
                fields = json.loads(self.log.values.get(oracle.place(row)) or row["value"])
                if first * MINUTE <= fields[time] - START < last * MINUTE:
                    self.log.newer.add(oracle.place(row))

    def backfill(self, spark: SparkSession, first: float, last: float) -> None:
        """Rebuild a range of minutes, in steps of few rows."""
        self.judge_newer(first, last)
        rule_sets.register(self.settings, lake.BRONZE)
        backfill.run(spark, self.settings, Request(at(first), at(last), tables.REBUILT, step_rows=30), "backfill")

    def check(self) -> oracle.Transactions:
        """Silver is what the oracle makes of bronze, gold what the model makes of silver."""
        split = cases.assert_silver(self.settings, self.log)
        rows, accounts, customers = (
            lake.rows_of(self.settings, table) for table in (tables.SILVER_TRANSACTIONS, tables.SILVER_ACCOUNTS, tables.SILVER_CUSTOMERS)
        )
        masked = [row | {"full_name": "Z** S****"} for row in customers]
        expected = model(rows, accounts, masked, self.settings.large_credit)
        lake.assert_equal(lake.gold_of(self.settings), expected)
        return split

    def damage(self, first: float, last: float, chance: random.Random) -> None:
        """Silver and gold lose a row of a range, and gain one that stands for nothing."""
        for table in (tables.SILVER_TRANSACTIONS, *tables.GOLD):
            delta = DeltaTable(str(table.path(self.settings)))
            rows = lake.rows_of(self.settings, table)
            rows = [row for row in rows if lies_within(row[table.time_column or ""], at(first), at(last))] or rows  # a week begins before
            row, other = chance.choice(rows), chance.choice(rows)
            delta.delete(" and ".join(f"{key} = {literal(row[key])}" for key in table.keys))
            wrong = {name: changed(value) for name, value in other.items() if name not in ("event_on", table.time_column, "_batch")}
            if table != tables.DEBIT_SHARE:  # it has no other key than the day
                write_deltalake(delta, pa.Table.from_pylist([other | wrong], pa.schema(table.delta_schema().to_arrow())), mode="append")


def lies_within(time: datetime | date, first: datetime, last: datetime) -> bool:
    if isinstance(time, datetime):
        return first <= time < last
    return first.date() <= time <= last.date()


def rows_of_transactions(settings: Settings) -> set[tuple[Any, ...]]:
    """Every row of silver that comes of transactions: table, coordinates, and what it says."""
    every = ((table, row) for table in tables.SILVER if table.topic == "transactions" for row in lake.rows_of(settings, table))
    return {(table.name, oracle.place(row), str(sorted(row.items()))) for table, row in every}


def assert_noted(own: Lake, before: dict[str, int], held: set[tuple[Any, ...]], records: list[tuple[dict[str, Any], int]]) -> None:
    """The gate is to judge the records of minutes 2 to 150.5, and all rows that changed, wherever they are; and no others."""
    silver = [table for table in tables.SILVER if table.topic == "transactions"]
    now = {table.name: DeltaTable(str(table.path(own.settings))).version() for table in silver}
    found = rebuilt_records.find(own.settings, silver, before, now)
    assert found == rebuilt_records.folder(own.settings, "transactions")
    noted = [tuple(row.values()) for row in DeltaTable(str(found)).to_pyarrow_table().to_pylist()]
    changed = {place for _, place, _ in held ^ rows_of_transactions(own.settings)}
    in_range = {oracle.place(row) for row, time in records if 2 * MINUTE <= time < 150.5 * MINUTE}
    assert len(noted) == len(set(noted))
    assert set(noted) == in_range | changed
    assert changed - in_range, "no row changed but those of the range"
    assert rebuilt_records.find(own.settings, silver, {**before, "silver.transactions": -1}, now) is None


def literal(value: Any) -> str:
    return f"'{value}'" if not isinstance(value, int) else str(value)


def changed(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return f"{value}?"
    if isinstance(value, datetime):
        return value + timedelta(minutes=1)
    return value + 7 if isinstance(value, int | Decimal) else value


@pytest.fixture
def own(judged_by_older: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """Five batches, taken into silver by the older rules; the newer ones are in force by now."""
    monkeypatch.setattr(backfill, "_PAUSE_SECONDS", 0)
    with cases.newer_rules(tmp_path / "rules"):
        yield Lake(*judged_by_older.copy(tmp_path / "home"))


class Killed(Exception):
    """A job ended where a test wanted it to."""


def killed_at(point: str) -> Callable[[str], None]:
    def stop(name: str) -> None:
        if name == point:
            raise Killed(name)

    return stop


@pytest.fixture
def followed(spark: SparkSession, own: Lake) -> Lake:
    """A copy that gold has followed, too."""
    tables.ensure_tables(own.settings, tables.GOLD)
    gold.run(spark, own.settings, "gold")
    return own


@pytest.mark.soak
def test_a_range_is_judged_by_the_rules_of_today(spark: SparkSession, followed: Lake) -> None:
    """What reaches over its edges follows: first rows of ids, late rows, versions, windows, sessions, balances."""
    before = oracle.Transactions(followed.log.judged("transactions"))
    followed.backfill(spark, 2, 59.5)
    after = followed.check()
    assert after.first.keys() > before.first.keys()
    assert after.late != before.late
    assert any(after.first[name] != row for name, row in before.first.items()), "no row became the first of an id that was there"


@pytest.mark.soak
def test_a_backfill_that_dies_beside_the_live_flow(spark: SparkSession, followed: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the range are damaged; the first step dies between two tables; a live run ends it, and dies between two tables itself."""
    before = oracle.Transactions(followed.log.judged("transactions"))
    followed.damage(2, 150, random.Random(5))
    with monkeypatch.context() as patch:
        kill_points.reach(patch, killed_at("after silver.transactions"))
        with pytest.raises(Killed):
            followed.backfill(spark, 2, 150.5)
    with pytest.raises(LedgerError, match="stopped halfway"):
        backfills.refuse_halfway(followed.settings)

    backfill.finish_halfway(followed.settings, Finisher("live", lambda: spark))
    with monkeypatch.context() as patch:
        kill_points.reach(patch, killed_at("after silver.transactions"))
        with pytest.raises(LedgerError, match=r"silver\.transactions stopped"):
            followed.take(spark, range(6, 7), random.Random(4), judged_newer=True)
    followed.backfill(spark, 2, 150.5)
    after = followed.check()
    assert after.first.keys() > before.first.keys()
    rows = sorted(lake.rows_of(followed.settings, tables.BACKFILLS), key=lambda row: row["number"])
    steps = [(row["state"], row["part"], row["run_id"]) for row in rows]
    halfway = [("begun", "transactions", "backfill"), ("begun", "transactions", "live"), ("done", "transactions", "live")]
    assert steps[steps.index(halfway[0]) :][:3] == halfway
    assert [state for state, *_ in steps].count("started") == [state for state, *_ in steps].count("finished") == 1
    assert len({row["step_start"] for row in rows if row["part"] == "transactions"}) == 2


def test_silver_of_a_range_is_judged_by_the_rules_of_today(spark: SparkSession, own: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run tells how many rows that changes, and writes nothing, the record of backfills included."""

    def versions() -> dict[str, int]:
        every = (*tables.SILVER_OWNED, *tables.GOLD, tables.BACKFILLS, tables.REDRIVES)
        return {table.name: DeltaTable(str(table.path(own.settings))).version() for table in every}

    tables.ensure_tables(own.settings, tables.GOLD)
    before, only = versions(), ("silver.transactions", "gold.daily_totals")
    now = {row["transaction_id"]: row for row in lake.rows_of(own.settings, tables.SILVER_TRANSACTIONS)}
    times = [json.loads(row["value"] or b"")["eventTime"] - START for row in own.log.bronze["transactions"]]
    dry_run.run(own.settings, Request(at(2), at(150.5), only), lambda: spark)
    told = capsys.readouterr().out.splitlines()
    assert versions() == before
    assert not (own.settings.checkpoints / "backfill-dry-run").exists()

    own.judge_newer(2, 150.5, only)
    held = rows_of_transactions(own.settings)
    staged = stage(spark, own.settings, TOPICS[0], read_rules("transactions"), at(2), at(150.5), own.settings.home / "staged")
    rebuilt = rebuild_silver(spark, own.settings, staged, at(2), at(150.5), "run", lambda _: None)
    assert_noted(own, before, held, [(row, time) for row, time in zip(own.log.bronze["transactions"], times, strict=True)])
    wanted = cases.assert_silver(own.settings, own.log).first
    differing = [id_ for id_ in now.keys() | wanted.keys() if id_ not in now or oracle.place(now[id_]) != oracle.place(wanted[id_])]
    assert rebuilt.changed[tables.SILVER_TRANSACTIONS] == len(differing) > 0
    here = sum(at(2) <= row["event_at"] < at(150.5) for row in now.values())
    others = (tables.TRANSACTIONS_DUPLICATES, tables.TRANSACTIONS_QUARANTINE, tables.TRANSACTIONS_LATE)
    assert set(told[1:]) >= {
        f"  bronze.transactions: {sum(2 * MINUTE <= time < 150.5 * MINUTE for time in times)} rows to judge, on 2 days",
        f"  silver.transactions: {here} rows in 2 of 2 files, {len(differing)} rows would change",
        "  gold.daily_totals: 0 windows in 0 of 0 files",
    }
    assert all(
        any(f" {table.name}: " in line and f"{rebuilt.changed[table]} rows would change" in line for line in told) for table in others
    )
    assert not any("silver.customers" in line or "gold.sliding" in line for line in told)


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_a_record_is_parsed_once_though_its_time_is_asked_for(spark: SparkSession, own: Lake, topic: Topic) -> None:
    """Merged with the filter of times, parsing would be repeated for each use of its result: 15 times the cost."""
    bronze = sources.read_table(spark, own.settings, topic.bronze)
    judged = _judge(spark, own.settings, topic, read_rules(topic.name), bronze, sources.between("_at", at(2), at(150.5)))
    plan: Any = judged._jdf.queryExecution().executedPlan()
    filters = [line for line in plan.toString().splitlines() if "Filter " in line]
    assert filters
    assert not any("json" in line for line in filters)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8))
def test_random_ranges_deaths_and_live_runs(spark: SparkSession, followed: Lake, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Whatever is rebuilt in whatever order, and wherever it dies: the tables are those of a pipeline that judged each range so."""
    chance = random.Random(seed)
    points = [f"{when} {table.name}" for table in (*tables.SILVER, *tables.GOLD) for when in ("before", "after")]
    for number in range(3):
        first, last = sorted(chance.sample(range(-5, 210), 2))
        if chance.random() < 0.7:
            followed.damage(0, 200, chance)
            first, last = -5, 205
        with monkeypatch.context() as patch:
            kill_points.reach(patch, killed_at(chance.choice(points)))
            with suppress(Killed, LedgerError):
                followed.backfill(spark, first, last)
        if chance.random() < 0.5:
            backfill.finish_halfway(followed.settings, Finisher("live", lambda: spark))
            with monkeypatch.context() as patch, suppress(LedgerError):
                kill_points.reach(patch, killed_at(chance.choice([*points, "nowhere"])))
                followed.take(spark, range(6 + number, 7 + number), chance, judged_newer=True)
        followed.backfill(spark, first, last)
        lake.run_silver(spark, followed.settings, f"next-{number}")  # of a live run that died, a finished backfill brings nothing up
        gold.run(spark, followed.settings, f"next-{number}")
        followed.check()
