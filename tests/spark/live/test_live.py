"""The live queries: which rows they take, what they write and when, and that no cut of the input or crash changes it."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs.gold.tables import cumulative_totals, customer_sessions, daily_totals, debit_credit_pairs, sliding_totals
from spark_jobs.lake import sources, tables
from spark_jobs.lake.tables import Table
from spark_jobs.live import intake
from spark_jobs.live.queries import BY_NAME
from spark_jobs.runtime.settings import Settings
from tests.support import lake
from tests.support.frames import at, frame, values
from tests.support.live_lake import arrive, run_live

Rows = list[tuple[Any, ...]]
BATCH_FORM: dict[Table, Callable[[DataFrame], DataFrame]] = {
    tables.LIVE_DAILY_TOTALS: daily_totals.daily_totals,
    tables.LIVE_SLIDING_TOTALS: sliding_totals.sliding_totals,
    tables.LIVE_CUMULATIVE_TOTALS: cumulative_totals.cumulative_totals,
    tables.LIVE_CUSTOMER_SESSIONS: customer_sessions.customer_sessions,
    tables.LIVE_DEBIT_CREDIT_PAIRS: lambda rows: debit_credit_pairs.pair(rows, rows),
}
AFTER_ALL = 2**62
END = {"window_end", "session_end"}


# At the very start of a day; a credit 1 h after a debit, and one a second later; a row 12 h after the last of its customer.
EDGES = (
    ("e1", "2023-12-30 00:00:00", {"type": "Debit"}),
    ("e2", "2023-12-30 01:00:00", {"type": "Credit"}),
    ("e3", "2023-12-30 01:00:01", {"type": "Credit"}),
    ("e4", "2023-12-30 13:00:01", {"type": "Debit"}),
)


@dataclass(frozen=True)
class Case:
    """What arrives, batch by batch, and what is refused of it."""

    says: str
    batches: Sequence[Sequence[tuple[Any, ...]]]
    refused: Rows


CASES = (
    Case(
        "a row of the watermark's own moment is late, one of a millisecond later is not",
        [[("a", "2024-01-01 10:00:10")], [("b", "2024-01-01 10:00:00"), ("c", "2024-01-01 10:00:00.001")]],
        [("b", "late", "2024-01-01 10:00:00")],
    ),
    Case(
        "the watermark is that of earlier batches: nothing is late for a row of its own batch",
        [[("a", "2024-01-01 10:00:10"), ("b", "2023-12-01 10:00:00")]],
        [],
    ),
    Case(
        "a duplicate is refused while its id is remembered, in the same batch and in a later one",
        [[("a", "2024-01-01 10:00:00"), ("a", "2024-01-01 10:00:00")], [("a", "2024-01-01 10:00:00")]],
        [("a", "duplicate", None), ("a", "duplicate", "2024-01-01 09:59:50")],
    ),
    Case(
        "a duplicate of a row that the watermark has passed is late, whatever its id",
        [[("a", "2024-01-01 10:00:00")], [("b", "2024-01-01 11:00:00")], [("a", "2024-01-01 10:00:00")]],
        [("a", "late", "2024-01-01 10:59:50")],
    ),
    Case(
        "an id is forgotten with the watermark: another row of it is taken",
        [[("a", "2024-01-01 10:00:00")], [("b", "2024-01-01 11:00:00")], [("a", "2024-01-01 11:00:01")]],
        [],
    ),
    Case(
        "a duplicate is remembered as its first row is: a third one is a duplicate of the second",
        [
            [("a", "2024-01-01 10:00:00"), ("a", "2024-01-01 11:00:00")],
            [("b", "2024-01-01 11:00:05")],
            [("a", "2024-01-01 11:00:02")],
        ],
        [("a", "duplicate", None), ("a", "duplicate", "2024-01-01 10:59:55")],
    ),
    Case(
        "an event of a far future would close every window: its rule refuses it, and the watermark does not move",
        [[("a", "2024-01-01 10:00:00")], [(None, "2099-01-01 10:00:00")], [("c", "2024-01-01 10:00:05")]],
        [(None, "invalid", "2024-01-01 09:59:50")],
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says.split(":")[0].replace(" ", "-"))
def test_a_row_is_taken_or_refused_by_bronze_alone(spark: SparkSession, case: Case) -> None:
    """Taken one batch at a time, or all of them at once: the same rows are refused, for the same reasons."""
    batches = list(enumerate(case.batches, 1))
    assert decide(spark, [[batch] for batch in batches]) == decide(spark, [batches]) == case.refused


def test_each_table_is_the_batch_computation_of_what_the_watermark_has_closed(live: SparkSession, settings: Settings) -> None:
    """Rows at the edges, then random ones, some late and some twice, in batches that the runs cut at random: each result once."""
    chance = random.Random(11)
    number = 1
    arrive(settings, number, *EDGES)
    for run in range(3):
        for _ in range(chance.randint(1, 3)):
            number += 1
            arrive(settings, number, *some_rows(chance, number))
        if run != 1:  # the second run takes nothing but what came with it
            run_live(live, settings)
        else:
            run_live(live, settings, queries=[BY_NAME["daily_totals"]])
    taken = sources.read_table(live, settings, tables.LIVE_TRANSACTIONS)
    newest = taken.agg(F.max("event_at").cast("string")).collect()[0][0]
    passed = at(newest).timestamp() - settings.allowed_lateness_seconds
    refused = lake.rows_of(settings, tables.LIVE_REFUSED)
    assert {row["reason"] for row in refused} == {"late", "duplicate"}
    assert len(refused) + taken.count() == len(lake.rows_of(settings, tables.BRONZE_TRANSACTIONS))
    for table, make in BATCH_FORM.items():
        found = Counter(map(str, lake.rows_of(settings, table)))
        expected = Counter(map(str, closed(settings.home / "expected" / table.name, make(taken), table, passed)))
        assert found == expected, table.name
        assert found, f"{table.name} is empty"


def test_a_type_that_does_not_come_does_not_hold_the_pairs_back(live: SparkSession, settings: Settings) -> None:
    """Only debits come for a day: the watermark of the join moves on, and forgets the debits that no credit can meet any more."""
    query = BY_NAME["debit_credit_pairs"]
    arrive(settings, 1, ("d1", "2024-01-01 10:00:00", {"type": "Debit"}), ("c1", "2024-01-01 11:00:00", {"type": "Credit"}))
    run_live(live, settings, queries=[query])
    for hour in range(12, 15):
        arrive(settings, hour, (f"d{hour}", f"2024-01-01 {hour}:00:00", {"type": "Debit"}))
    run_live(live, settings, queries=[query])
    assert [(row["debit_id"], row["credit_id"]) for row in lake.rows_of(settings, query.table)] == [("d1", "c1")]
    state = live.read.format("statestore").option("joinSide", "left").load(str(settings.checkpoints / "live" / query.name / "1"))
    assert sorted(row["value"]["debit_id"] for row in state.collect()) == ["d13", "d14"]


def decide(spark: SparkSession, runs: Iterable[Iterable[tuple[int, Sequence[tuple[Any, ...]]]]]) -> Rows:
    """What the intake refuses, with an allowed lateness of 10 s, when runs take these batches. A row without id breaks a rule."""
    known, newest, refused = spark.createDataFrame([], "transaction_id string, event_at timestamp, _batch bigint"), None, []
    for batches in runs:
        rows = [
            (id_, time if id_ else None, batch, n, bool(id_)) for batch, batch_rows in batches for n, (id_, time) in enumerate(batch_rows)
        ]
        judged = frame(spark, "transaction_id string, event_at timestamp, _batch bigint, _offset bigint, _is_valid boolean", rows)
        others = [name for name in tables.LIVE_TRANSACTIONS.columns if name not in judged.columns]
        judged = judged.withColumns({name: F.lit(None) for name in others} | {"_topic": F.lit("t"), "_partition": F.lit(0)})
        marks, newest = intake.watermarks(intake.batches(judged), newest, 10)
        found = intake.decide(judged, marks, known).localCheckpoint()
        known = intake.remembered(known.unionByName(intake.accepted(found).select(*known.columns)), intake.refused(found), AFTER_ALL, None)
        known = known.withColumn("_batch", F.lit(0).cast("bigint"))
        told = values(intake.refused(found).orderBy("_batch", "_offset"))
        refused += [(row["transaction_id"], row["reason"], row["watermark_at"]) for row in told]
    return refused


def closed(path: Path, rows: DataFrame, table: Table, passed: float) -> lake.Rows:
    """The rows of a batch computation, written to a new folder, whose end the watermark has passed; of those without an end all."""
    ends = END & set(table.columns)
    rows.select(*table.columns).write.format("delta").save(str(path))
    found = lake.rows_at(path)
    return [row for row in found if all(row[end].timestamp() <= passed for end in ends)]


def some_rows(chance: random.Random, number: int) -> Iterator[tuple[Any, ...]]:
    """Rows of about 14 hours around a moment that moves on by 20 hours a batch."""
    for place in range(12):
        hours = 20 * number + chance.uniform(-14, 14)
        text = f"{at('2024-01-01') + timedelta(seconds=round(hours * 3600)):%Y-%m-%d %H:%M:%S}"
        fields = {
            "customerId": f"C0000000{chance.randint(1, 2)}",
            "type": chance.choice(("Credit", "Debit")),
            "amount": chance.randrange(100_000) / 100,
        }
        yield (f"T{number}-{place}", text, fields)
        if chance.random() < 0.2:
            yield (f"T{number}-{place}", text, fields)
