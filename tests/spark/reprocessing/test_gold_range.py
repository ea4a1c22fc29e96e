"""Gold of a large range, made from silver again."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.gold import job
from spark_jobs.gold.strategies import Inputs, Keys, Parts
from spark_jobs.gold.tables import customer_sessions
from spark_jobs.lake import sinks, tables
from spark_jobs.lake.table import Table
from spark_jobs.reprocessing import gold_range
from spark_jobs.runtime.settings import Settings, read_settings
from tests.spark.gold.test_gold_job import silver_rows
from tests.spark.gold.test_gold_near import add
from tests.support.frames import at
from tests.support.lake import gold_of, rows_of

pytestmark = pytest.mark.spark


def test_the_rows_of_a_large_range_are_not_sent_to_each_task(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the bytes of silver's files they could be; in memory a million filled the heap, because Spark does not count what it sends."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    tables.ensure_tables(settings, (*tables.SILVER, *tables.GOLD, *tables.CONTROL))
    add(settings, silver_rows(random.Random(3), count=150))
    job.run(spark, settings, "run-1")
    before, plans, changes_of = gold_of(settings), dict[str, str](), sinks.changes_of

    def noted(table: Table, present: DataFrame, wanted: DataFrame) -> DataFrame:
        plans[table.name] = sinks.difference(present, wanted, on=table.keys)._jdf.queryExecution().executedPlan().toString()
        return changes_of(table, present, wanted)

    monkeypatch.setattr(sinks, "changes_of", noted)
    files = pa.table(DeltaTable(str(tables.SILVER_TRANSACTIONS.path(settings))).get_add_actions())
    with sinks.configured(spark, {"spark.sql.autoBroadcastJoinThreshold": str(sum(files["size_bytes"].to_pylist()))}):
        pairs = [tables.DEBIT_CREDIT_PAIRS.name]
        changed = gold_range.rebuild_gold(spark, settings, at("2000-01-01"), at("2100-01-01"), pairs, lambda: None, are_few=False)
    assert (changed, list(plans)) == ({}, pairs)
    assert "Join" in plans[pairs[0]]
    assert "Broadcast" not in plans[pairs[0]]
    assert gold_of(settings) == before
    assert before[tables.DEBIT_CREDIT_PAIRS.name]


BEGIN, RANGE = datetime(2013, 1, 1, tzinfo=UTC), (at("2013-01-20"), at("2013-01-22"))
FAR = {"before": (BEGIN, RANGE[0]), "behind": (RANGE[1], BEGIN + timedelta(days=40))}  # of each one session, longer than what is read
Session = tuple[str, datetime, datetime, int]


def sessions(rows: Iterable[tuple[str, datetime]], gap: timedelta = timedelta(hours=customer_sessions.GAP_HOURS)) -> list[Session]:
    """The sessions of rows (customer, time)."""
    found: dict[str, list[list[datetime]]] = defaultdict(list)
    for customer, time in sorted(rows):
        of_customer = found[customer]
        if of_customer and time - of_customer[-1][-1] < gap:
            of_customer[-1].append(time)
        else:
            of_customer.append([time])
    return [(customer, times[0], times[-1] + gap, len(times)) for customer, each in found.items() for times in each]


def is_in_range(session: Session) -> bool:
    return session[1] < RANGE[1] and session[2] > RANGE[0]


def lost(right: list[Session], _rows: list[tuple[str, datetime]]) -> list[Session]:
    return [session for session in right if not is_in_range(session)]


def foreign(right: list[Session], _rows: list[tuple[str, datetime]]) -> list[Session]:
    hour = timedelta(hours=1)
    return [*right, ("C1", RANGE[0] + hour / 7, RANGE[0] + hour, 1), ("nobody", RANGE[0] - hour, RANGE[0] + hour, 3)]


def cut(right: list[Session], _rows: list[tuple[str, datetime]]) -> list[Session]:
    """Each session that reaches over an edge of the range is two, one of them outside of it."""
    parts = []
    for name, start, end, count in right:
        edges = [edge for edge in RANGE if start < edge < end]
        bounds = [start, *edges, end]
        parts += [(name, first, last, count) for first, last in pairwise(bounds)]
    return parts


def of_shorter_gaps(_right: list[Session], rows: list[tuple[str, datetime]]) -> list[Session]:
    return sessions(rows, timedelta(hours=4))


def of_longer_gaps(_right: list[Session], rows: list[tuple[str, datetime]]) -> list[Session]:
    return sessions(rows, timedelta(hours=40))


@pytest.fixture(scope="module")
def bank(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, list[tuple[str, datetime]]]:
    """Forty days of silver, and gold; the times of the rows by customer."""
    chance, rows = random.Random(7), list[tuple[str, datetime]]()
    times = {f"C{number}": (BEGIN, BEGIN + timedelta(days=40)) for number in range(9)} | FAR
    for customer, (time, end) in times.items():
        while time < end:
            rows.append((customer, time))
            time += timedelta(hours=11 if customer in FAR else chance.choice((1, 3, 5, 11.999, 12, 30, 60)))
    settings = read_settings({"LEDGER_HOME": str(tmp_path_factory.mktemp("bank"))})
    tables.ensure_tables(settings, (*tables.SILVER, *tables.GOLD, *tables.CONTROL))
    like = silver_rows(random.Random(1), count=len(rows))
    add(
        settings,
        [row | {"customer_id": name, "event_at": time, "event_on": time.date()} for row, (name, time) in zip(like, rows, strict=True)],
    )
    job.run(spark, settings, "run-1")
    return settings, rows


def present(settings: Settings) -> list[Session]:
    """What gold.customer_sessions has, in order."""
    rows = rows_of(settings, tables.CUSTOMER_SESSIONS)
    return sorted((row["customer_id"], row["session_start"], row["session_end"], row["transactions"]) for row in rows)


@pytest.mark.parametrize("damage", [None, lost, foreign, cut, of_shorter_gaps, of_longer_gaps])
def test_sessions_of_a_range_are_right_again_whatever_they_were(
    spark: SparkSession,
    bank: tuple[Settings, list[tuple[str, datetime]]],
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[list[Session], list[tuple[str, datetime]]], list[Session]] | None,
) -> None:
    """Of most customers only rows near the range are read; a session that reaches further is found, too, and none of its parts stay."""
    settings, rows = bank
    right, all_of, asked = sorted(sessions(rows)), Keys._all_of, list[set[str]]()

    def noted(self: Keys, touched: DataFrame, present: DataFrame, table: Table, inputs: Inputs) -> Parts:
        asked.append({row[0] for row in touched.collect()})
        return all_of(self, touched, present, table, inputs)

    monkeypatch.setattr(Keys, "_all_of", noted)
    if damage:
        schema = pa.schema(tables.CUSTOMER_SESSIONS.delta_schema().to_arrow())
        damaged = [dict(zip(schema.names, (*session, 1), strict=True)) for session in damage(right, rows)]
        write_deltalake(str(tables.CUSTOMER_SESSIONS.path(settings)), pa.Table.from_pylist(damaged, schema), mode="overwrite")
        assert present(settings) != right
    names = [tables.CUSTOMER_SESSIONS.name]
    changed = gold_range.rebuild_gold(spark, settings, *RANGE, names, lambda: None, are_few=True)
    found = present(settings)
    assert (not changed) == (damage is None)
    assert asked == [set(FAR)]
    assert list(filter(is_in_range, found)) == list(filter(is_in_range, right))
    assert sum(map(is_in_range, right)) > 8
    if damage in (None, lost, foreign, cut):
        assert found == right
    touching = [(one, other) for one in found for other in found if one[0] == other[0] and one < other and other[1] < one[2]]
    assert not [pair for pair in touching if any(map(is_in_range, pair))]
