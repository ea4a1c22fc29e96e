"""What a small change touches is read and merged in memory: the same rows as Spark's, in few executions; and when versions hold."""

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.gold import changes, inputs, interval_join, job
from spark_jobs.gold.changes import Feed, hold_versions
from spark_jobs.gold.declaration import GoldTable
from spark_jobs.gold.strategies import ALL, Inputs, Keys, Sql
from spark_jobs.gold.tables import account_balances, account_days, customer_activity, weekly_top_customers
from spark_jobs.lake import few_rows, ranges, sinks, sources, tables
from spark_jobs.runtime.session import HELD_PLANS
from spark_jobs.runtime.settings import Settings, read_settings
from tests.spark.gold.test_gold_job import Silver, histories, of_customers, silver_rows
from tests.support.frames import assert_same, at, frame
from tests.support.gold_model import model
from tests.support.lake import GENERATED, assert_equal, executions, gold_of

pytestmark = pytest.mark.spark

SILVER = tables.SILVER_TRANSACTIONS
FEED = "key string, valid_from timestamp, valid_to timestamp, is_current boolean, place string, _change_type string, _commit_version bigint"
T1, T2, T3 = "2013-01-01 08:00", "2013-02-01 08:00", "2013-03-01 08:00"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = read_settings({"LEDGER_HOME": str(tmp_path), "LEDGER_LARGE_CREDIT": "50000"})
    tables.ensure_tables(found, (*tables.SILVER, *tables.GOLD, *tables.CONTROL))
    return found


def add(settings: Settings, times: list[datetime]) -> None:
    """Rows of silver at these times, in files of small pages."""
    common = {"account_id": "A1", "customer_id": "C1", "type": "Debit", "amount": 1, "balance": 1, "_topic": "t", "_partition": 0}
    rows = [
        common | {"transaction_id": f"{at:%Y%m%d%H%M%S%f}", "event_at": at, "event_on": at.date(), "_offset": number, "_batch": 1}
        for number, at in enumerate(times)
    ]
    schema = pa.schema(SILVER.delta_schema().to_arrow())
    path = str(SILVER.path(settings))
    write_deltalake(path, pa.Table.from_pylist(rows, schema), mode="append", writer_properties=few_rows.writer(SILVER, 100))


def test_rows_in_memory_are_those_that_spark_finds_also_before_1970_and_beside_removed_ones(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(4)
    times = [datetime(1969, 12, 25, tzinfo=UTC) + timedelta(minutes=30 * number) for number in range(1500)]
    add(settings, times)
    sinks.mark_removed_rows(spark, settings, [SILVER])
    path = str(SILVER.path(settings))
    spark.sql(f"delete from delta.`{path}` where pmod(_offset, 7) = 3")
    spark.catalog.refreshByPath(path)
    actions = pa.table(DeltaTable(path).get_add_actions())
    assert actions.num_rows == 1, "the rows are marked in their file"
    for _ in range(6):
        hours = chance.sample(range(-150, 600), 3)
        days = [hour // 24 for hour in hours]
        for where in (
            ranges.near("event_at", "event_at", hours, 1, ranges.HOUR, None),
            ranges.near("event_on", "event_on", days, 0, ranges.DAY, None),
            ranges.since("event_at", chance.choice(hours) * 3_600_000_000 + 1),
            ALL,
        ):
            few = inputs.rows_where(settings, inputs.Source(SILVER), SILVER, where)
            assert few is not None
            assert_same(spark.createDataFrame(few), sources.read_table(spark, settings, SILVER).where(where.sql))
    monkeypatch.setattr(few_rows, "MOST_ROWS", 1000)
    assert inputs.rows_where(settings, inputs.Source(SILVER), SILVER, ALL) is None
    assert inputs.rows_where(settings, inputs.Source(SILVER), SILVER, ranges.since("event_at", -(10**13))) is None
    assert inputs.rows_where(settings, inputs.Source(SILVER), SILVER, ranges.since("event_at", 60 * 3_600_000_000)) is not None


def test_what_scattered_rows_touch_fits_into_memory_where_all_of_their_hours_would_not(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many late rows as an hour has, each in another one: of the hours between them, and of other customers, nothing is held."""
    hour = 3_600_000_000
    monkeypatch.setattr(few_rows, "MOST_ROWS", 400)
    path = str(SILVER.path(settings))
    schema = pa.schema(SILVER.delta_schema().to_arrow())
    common = {"account_id": "A1", "type": "Debit", "amount": 1, "balance": 1, "_topic": "t", "_partition": 0, "_batch": 1}
    start = datetime(2013, 1, 1, tzinfo=UTC)
    rows: list[dict[str, Any]] = [
        common | {"transaction_id": f"{number}", "customer_id": f"C{number % 5}", "_offset": number, "event_at": at, "event_on": at.date()}
        for number, at in enumerate(start + timedelta(minutes=10 * number) for number in range(6 * 24 * 60))
    ]
    write_deltalake(path, pa.Table.from_pylist(rows, schema), mode="append")
    late = pa.Table.from_pylist(rows[9::90], schema).select(["customer_id", "account_id", "event_at"])
    hours = tuple(ranges.numbers(late["event_at"], ranges.HOUR))
    assert len(hours) > ranges.MOST
    images = spark.createDataFrame(late)
    change = changes.Change(images, images, is_in_place=False, hours=hours, few=late)
    assert inputs.rows_where(settings, inputs.Source(SILVER), SILVER, ranges.Where(change.near("event_at", 1).sql)) is None
    assert inputs.rows_where(settings, inputs.Source(SILVER), SILVER, change.near("event_at", 6)) is None
    found = inputs.rows_where(settings, inputs.Source(SILVER), SILVER, change.near("event_at", 1, key="customer_id"))
    assert found is not None

    def micros(row: dict[str, Any]) -> int:
        return int(row["event_at"].timestamp() * 1_000_000)

    moments = [(row["customer_id"], micros(row)) for row in late.to_pylist()]
    wanted = [
        row["transaction_id"] for row in rows if any(key == row["customer_id"] and abs(micros(row) - at) <= hour for key, at in moments)
    ]
    assert sorted(found["transaction_id"].to_pylist()) == sorted(wanted)


def test_rows_are_grouped_in_memory_as_by_spark(spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last balance of a day among rows of one time, balances that are null, weeks before 1970."""
    chance = random.Random(5)
    moments = [datetime(1969, 12, 20, tzinfo=UTC) + timedelta(hours=7 * number) for number in range(80)]
    rows = [
        {"transaction_id": f"T{number}", "event_at": moment, "event_on": moment.date(), "type": chance.choice(["Credit", "Debit"])}
        | {
            "account_id": f"A{chance.randrange(3)}",
            "customer_id": f"C{chance.randrange(9) % 6}",
            "amount": Decimal(chance.randrange(10**18)) / 100,
        }
        | {"balance": chance.choice([None, Decimal(number)]), "_batch": chance.randrange(3), "_topic": chance.choice("st")}
        | {"_partition": chance.randrange(12), "_offset": number}
        for number, moment in enumerate(chance.choices(moments, k=600))
    ]
    write_deltalake(str(SILVER.path(settings)), pa.Table.from_pylist(rows, pa.schema(SILVER.delta_schema().to_arrow())), mode="append")
    where = ranges.Where(ranges.overlap("event_on", "event_on", [(-9, 3)], ranges.DAY))
    silver = sources.read_table(spark, settings, SILVER).where(where.sql)
    cases: list[tuple[tables.Table, Sql, Sql, DataFrame]] = [
        (tables.ACCOUNT_DAYS, account_days._EACH, account_days._SUMS, account_days.account_days(silver)),
        (
            tables.WEEKLY_TOP_CUSTOMERS,
            *(weekly_top_customers._EACH, weekly_top_customers._COUNT),
            weekly_top_customers.weekly_counts(silver.withColumn("window_start", weekly_top_customers.week_of("event_at"))),
        ),
    ]
    of_keys = [
        (account_balances.TABLE, {"account_id": "account_id"}, account_balances.account_balances(silver)),
        (customer_activity.TABLE, {"customer_id": "customer_id"}, customer_activity.customer_activity(silver)),
    ]
    for keyed, key, expected in of_keys:
        sums = few_sums(keyed)
        assert set(key) | set(sums) == set(keyed.columns)
        cases.append((keyed, key, sums, expected))
    for table, by, made, expected in cases:
        few = inputs.groups_where(settings, inputs.Source(SILVER), table, by, made, where)
        assert few is not None
        assert_same(spark.createDataFrame(few).select(*expected.columns), expected)
    del cases[2:]  # of few groups
    weekly, by, made, counts = cases[1]
    best = inputs.groups_where(settings, inputs.Source(SILVER), weekly, by, made, where, weekly_top_customers._BEST)
    assert best is not None
    assert_same(weekly_top_customers.best_of_weeks(spark.createDataFrame(best)), weekly_top_customers.best_of_weeks(counts))
    monkeypatch.setattr(few_rows, "MOST_ROWS", 6)
    assert all(inputs.groups_where(settings, inputs.Source(SILVER), *case[:3], where) is None for case in cases)
    assert inputs.groups_where(settings, inputs.Source(SILVER), weekly, by, made, where, "count(*) over () > 0") is None
    one = inputs.groups_where(settings, inputs.Source(SILVER), weekly, by, made, where, "window_start = min(window_start) over ()")
    assert one is not None, "more groups than rows are held, of which few are given"


@pytest.mark.parametrize(
    ("feed", "since"),
    [
        ([("a", T1, None, True, "Ely", "update_preimage"), ("a", T1, T2, False, "Ely", "update_postimage")], T2),
        ([("a", T1, T3, False, "Ely", "update_preimage"), ("a", T1, T2, False, "Ely", "update_postimage")], T2),
        ([("a", T1, T2, False, "Ely", "update_preimage"), ("a", T1, None, True, "Ely", "update_postimage")], T2),
        ([("a", T1, None, True, "Ely", "update_preimage"), ("a", T1, None, True, "Rye", "update_postimage")], T1),
        ([("a", T1, None, True, "Ely", "update_preimage"), ("a", T1, T2, False, "Rye", "update_postimage")], T1),
        ([("a", T1, None, True, "Ely", "delete")], T1),
        ([("a", T2, None, True, "Ely", "insert"), ("a", T1, T2, False, "Ely", "insert")], T1),
        ([("a", T1, None, True, "Ely", "delete"), ("a", T1, None, True, "Ely", "insert")], None),
    ],
)
def test_another_version_holds_from_the_first_time_that_its_history_says_so(
    spark: SparkSession, feed: list[tuple[Any, ...]], since: str | None
) -> None:
    found = hold_versions(Feed(frame(spark, FEED, [(*row, 7) for row in feed])), "key")
    assert found is not None
    assert found.last == 7
    assert found.first == (at(since).timestamp() * 1_000_000 if since else None)


def test_of_commits_the_earliest_time_counts_and_without_any_there_is_nothing(spark: SparkSession) -> None:
    feed = [("a", T1, None, True, "Ely", "update_preimage", 3), ("a", T1, T3, False, "Ely", "update_postimage", 3)]
    feed += [("a", T3, None, True, "Rye", "insert", 3), ("b", T2, None, True, "Ely", "insert", 5)]
    found = hold_versions(Feed(frame(spark, FEED, feed)), "key")
    assert found is not None
    assert found.last == 5
    assert sorted((row[0], f"{row[1]:%Y-%m-%d}") for row in found.since.collect()) == [("a", T3[:10]), ("b", T2[:10])]
    assert hold_versions(Feed(frame(spark, FEED, [])), "key") is None


def test_only_a_temporal_join_leaves_out_what_came_before(spark: SparkSession) -> None:
    """A SELECT of somebody's own may look up any version."""
    feed = frame(spark, FEED.replace("key", "customer_id"), [("C1", T2, None, True, "Ely", "insert", 1)])
    ddl = "transaction_id string, customer_id string, account_id string, event_at timestamp"
    silver = frame(spark, ddl, [("before", "C1", "A1", T1), ("at", "C1", "A1", T2), ("after", "C1", "A1", T3), ("other", "C2", "A1", T3)])
    versions = hold_versions(Feed(feed), "customer_id")
    assert versions is not None
    inputs = Inputs(lambda _: silver, Decimal(0))
    ids = {
        is_temporal: sorted(row[0] for row in versions.change(inputs, is_temporal=is_temporal).rows.collect())
        for is_temporal in (True, False)
    }
    assert ids == {True: ["after", "at"], False: ["after", "at", "before"]}


WAYS = {
    "all in memory": {},
    "held, and made by generated code": {"MOST_SMALL": 3, "MOST_PAIRS": 0},
    "all by Spark": {"MOST_SMALL": 3, "MOST_HELD": 3, "MOST_ROWS": 3, "MOST_BYTES": 0},
}


@pytest.mark.parametrize("limits", WAYS.values(), ids=WAYS)
def test_gold_is_the_same_in_memory_and_by_spark(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    """Rows come, change and go, customers and accounts change; in memory a run of new rows takes few executions.

    With more rows than each task can hold, each table is made by Spark, in several files, and what changes in it is merged in memory all
    the same, unless these are too many, too.
    """
    for module, name in ((module, name) for module in (job, changes, few_rows, interval_join) for name in limits):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, limits[name])
    if limits:
        monkeypatch.setattr(changes, "HELD_PLANS", HELD_PLANS | GENERATED)
    monkeypatch.setattr(sinks, "_ROWS_A_CUT", 30)
    chance = random.Random(11)
    rows = silver_rows(chance)
    (accounts, later), customers = histories(chance, rows), of_customers(chance, rows)
    silver = Silver(spark, settings, chance, rows)
    silver.append(100)
    silver.put(tables.SILVER_ACCOUNTS, accounts)
    job.run(spark, settings, "run-1")
    enriched = pa.table(DeltaTable(str(tables.ENRICHED_TRANSACTIONS.path(settings))).get_add_actions(flatten=True)).to_pylist()
    spans = sorted((file["min.event_at"], file["max.event_at"]) for file in enriched)
    assert len(spans) > 2 if limits else len(spans) == 1
    assert all(end < start for (_, end), (start, _) in pairwise(spans)), "each file has days of its own"
    silver.append(20)
    silver.change(10, on=SILVER.keys)
    silver.put(tables.SILVER_CUSTOMERS, customers)
    silver.put(tables.SILVER_ACCOUNTS, later)
    job.run(spark, settings, "run-2")
    assert_equal(gold_of(settings), model(list(silver.rows.values()), later, customers, Decimal(50000)))
    silver.append(20)
    before = executions(spark)
    job.run(spark, settings, "run-3")
    assert_equal(gold_of(settings), model(list(silver.rows.values()), later, customers, Decimal(50000)))
    marked = [table for table in tables.GOLD if "deletionVectors" in (protocol(settings, table).writer_features or [])]
    assert bool(marked) == ("MOST_BYTES" in limits)
    java: Any = spark._jsparkSession
    assert java.sharedState().cacheManager().isEmpty(), "the feed is cached no longer than a run"
    if "MOST_HELD" not in limits:
        assert executions(spark) - before <= 40


def few_sums(table: GoldTable) -> Sql:
    assert isinstance(table.strategy, Keys)
    assert table.strategy.sums is not None
    return table.strategy.sums


def protocol(settings: Settings, table: tables.Table) -> Any:
    return DeltaTable(str(table.path(settings))).protocol()
