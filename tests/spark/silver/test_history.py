"""Dimension histories: a function of all valid messages of a key, whatever the order and the batches they came in."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given, settings, strategies as st
from pyspark.sql import DataFrame, SparkSession, functions as F

from expectations.row_rules import read_rules
from spark_jobs.lake import sinks, sources, tables
from spark_jobs.lake.topic import Topic
from spark_jobs.lake.topics.accounts import TOPIC as ACCOUNTS
from spark_jobs.lake.topics.customers import TOPIC as CUSTOMERS
from spark_jobs.lake.txn import Txn
from spark_jobs.runtime.settings import read_settings
from spark_jobs.silver.history import versions, with_outcomes
from spark_jobs.silver.judge import is_valid
from spark_jobs.silver.records import judge_records, type_records
from tests.support.frames import assert_same, at, frame, values
from tests.support.model import Message, fold
from tests.support.rows import ACCOUNT, CUSTOMER, placed

pytestmark = pytest.mark.spark

DAY = "2013-01-{:02d} 00:00:00"
OUTCOMES = "account_id string, _offset bigint, outcome string"
HISTORY = """account_id string, frequency string, district_id int, valid_from timestamp, valid_to timestamp, is_current boolean,
    is_deleted boolean, _offset bigint"""
HISTORY_COLUMNS = ["account_id", "frequency", "district_id", "valid_from", "valid_to", "is_current", "is_deleted", "_offset"]


@dataclass(frozen=True)
class Case:
    """What arrives, in this order: (day of its time, frequency; None deletes); beside it what becomes of each, and the history."""

    name: str
    arrives: list[tuple[int, str | None]]
    outcomes: list[str]
    history: list[tuple[str | None, int, int | None]]  # frequency, valid from and to, as days


V, S, N = "version", "superseded", "no_change"
CASES = [
    Case("one version", [(1, "a")], [V], [("a", 1, None)]),
    Case("two versions", [(1, "a"), (2, "b")], [V, V], [("a", 1, 2), ("b", 2, None)]),
    Case("equal to the version before", [(1, "a"), (2, "a"), (3, "a")], [V, N, N], [("a", 1, None)]),
    Case("back to what it was", [(1, "a"), (2, "b"), (3, "a")], [V, V, V], [("a", 1, 2), ("b", 2, 3), ("a", 3, None)]),
    Case("a late version in between", [(1, "a"), (3, "c"), (2, "b")], [V, V, V], [("a", 1, 2), ("b", 2, 3), ("c", 3, None)]),
    Case("a late version before all", [(2, "b"), (1, "a")], [V, V], [("a", 1, 2), ("b", 2, None)]),
    Case("a late version makes its successor redundant", [(1, "a"), (3, "b"), (2, "b")], [V, N, V], [("a", 1, 2), ("b", 2, None)]),
    Case("a late version that says nothing new", [(1, "a"), (3, "b"), (2, "a")], [V, V, N], [("a", 1, 3), ("b", 3, None)]),
    Case("a late first version equal to the first", [(2, "a"), (1, "a")], [N, V], [("a", 1, None)]),
    Case("the same time twice: the last arrival stays", [(1, "a"), (1, "b")], [S, V], [("b", 1, None)]),
    Case("the same time and content twice", [(1, "a"), (1, "a")], [S, V], [("a", 1, None)]),
    Case("the last arrival of a time brings back what was", [(1, "a"), (2, "b"), (2, "a")], [V, S, N], [("a", 1, None)]),
    Case("a superseded one makes a later one new", [(1, "a"), (2, "b"), (1, "b")], [S, N, V], [("b", 1, None)]),
    Case("deleted", [(1, "a"), (2, None)], [V, V], [("a", 1, 2), (None, 2, None)]),
    Case("deleted but unknown", [(1, None)], [N], []),
    Case("deleted before it is known", [(1, None), (2, "a")], [N, V], [("a", 2, None)]),
    Case("deleted twice", [(1, "a"), (2, None), (3, None)], [V, V, N], [("a", 1, 2), (None, 2, None)]),
    Case("twice deleted but unknown", [(1, None), (2, None)], [N, N], []),
    Case("made again", [(1, "a"), (2, None), (3, "a")], [V, V, V], [("a", 1, 2), (None, 2, 3), ("a", 3, None)]),
    Case("deleted at the time of a version, after it", [(1, "a"), (2, "b"), (2, None)], [V, S, V], [("a", 1, 2), (None, 2, None)]),
    Case("deleted at the time of a version, before it", [(1, "a"), (2, None), (2, "b")], [V, S, V], [("a", 1, 2), ("b", 2, None)]),
    Case("known late, after its deletion came", [(2, None), (1, "a")], [V, V], [("a", 1, 2), (None, 2, None)]),
    Case("a late deletion in between", [(1, "a"), (3, "a"), (2, None)], [V, V, V], [("a", 1, 2), (None, 2, 3), ("a", 3, None)]),
]


def key_of(place: int) -> str:
    return f"A{place:08d}"


def account(key: str, day: int, content: str | None, **changes: Any) -> tuple[bytes, bytes | None, str]:
    """Key, value and Kafka time of a message; of a deletion the Kafka time is what counts, of others it must not."""
    if content is None:
        return key.encode(), None, DAY.format(day)
    millis = int(at(DAY.format(day)).timestamp() * 1000)
    value = {**ACCOUNT, "accountId": key, "frequency": content, "updateTime": millis, **changes}
    return key.encode(), json.dumps(value).encode(), "2026-01-01"


def judged_arrivals(spark: SparkSession, arrivals: Sequence[tuple[bytes, bytes | None, str]], rows_a_batch: int = 10**6) -> DataFrame:
    """The messages, arrived in this order, in batches of so many rows. They lie in another order in the frame."""
    records = [(key, value, "accounts", 0, n, time, 1 + n // rows_a_batch) for n, (key, value, time) in enumerate(arrivals)]
    return judge_records(placed(spark, records[::-1]), ACCOUNTS, read_rules("accounts"))


def classify_messages(judged: DataFrame, topic: Topic) -> DataFrame:
    return with_outcomes(type_records(judged.where(is_valid()), topic), topic)


def classified(spark: SparkSession, arrivals: Sequence[tuple[bytes, bytes | None, str]], rows_a_batch: int = 10**6) -> DataFrame:
    return with_outcomes(type_records(judged_arrivals(spark, arrivals, rows_a_batch).where(is_valid()), ACCOUNTS), ACCOUNTS)


def test_each_history_is_what_its_messages_say(spark: SparkSession) -> None:
    arrivals: list[tuple[bytes, bytes | None, str]] = []
    outcomes, history = [], []
    for place, case in enumerate(CASES):
        by_time: dict[int, int] = {}
        for (day, content), outcome in zip(case.arrives, case.outcomes, strict=True):
            outcomes.append((key_of(place), len(arrivals), outcome))
            by_time[day] = by_time[day] if outcome == S and day in by_time else len(arrivals)
            arrivals.append(account(key_of(place), day, content))
        for content, start, end in case.history:
            times = (DAY.format(start), DAY.format(end) if end else None)
            district = 55 if content else None
            history.append((key_of(place), content, district, *times, end is None, content is None, by_time[start]))
    messages = classified(spark, arrivals).localCheckpoint()
    assert_same(messages.select("account_id", "_offset", "outcome"), frame(spark, OUTCOMES, outcomes))
    assert_same(versions(messages, ACCOUNTS).select(*HISTORY_COLUMNS), frame(spark, HISTORY, history))


def test_null_counts_as_a_value(spark: SparkSession) -> None:
    arrivals = [
        account(key_of(1), 1, "a", districtId=None),
        account(key_of(1), 2, "a", districtId=None),
        account(key_of(1), 3, "a", districtId=1),
        account(key_of(1), 4, "a", districtId="1"),
        account(key_of(1), 5, "a", districtId=None),
        account(key_of(2), 1, "a", frequency=None),
        account(key_of(2), 2, "a", frequency=""),
        account(key_of(2), 3, "a", frequency=None, creationDate=None),
    ]
    found = values(classified(spark, arrivals).orderBy("_offset").select("outcome"))
    assert [row["outcome"] for row in found] == [V, N, V, N, V, V, V, V]


def test_every_field_of_a_customer_counts_and_is_typed(spark: SparkSession) -> None:
    fields = [name for name in CUSTOMER if name not in ("customerId", "updateTime", "districtId", "birthDate")]
    changes: list[dict[str, Any]] = [
        {},
        *({name: "other"} for name in fields),
        {"districtId": "19"},
        {"birthDate": "1990-12-14"},
        {},
        {"more": 1},
    ]
    start = int(at("2013-01-01").timestamp() * 1000)
    messages = [{**CUSTOMER, "updateTime": start + n, **change} for n, change in enumerate(changes)]
    records = [(b"C00000001", json.dumps(message).encode(), "customers", 0, n, "2026-01-01", 1) for n, message in enumerate(messages)]
    judged = judge_records(placed(spark, records), CUSTOMERS, read_rules("customers"))
    found = values(versions(classify_messages(judged, CUSTOMERS), CUSTOMERS).orderBy("_offset"))
    assert [row["_offset"] for row in found] == list(range(len(changes) - 1))
    assert found[0] == {
        "customer_id": "C00000001",
        "sex": "Female",
        "social": "1-2-3",
        "full_name": "Zoë Smith",
        "phone": "p",
        "email": "e",
        "address1": "a1",
        "address2": None,
        "city": "c",
        "state": "NM",
        "zipcode": "4",
        "district_id": 18,
        "birth_date": "1990-12-13",
        "valid_from": "2013-01-01 00:00:00",
        "valid_to": "2013-01-01 00:00:00.001",
        "is_current": False,
        "is_deleted": False,
        "_topic": "customers",
        "_partition": 0,
        "_offset": 0,
        "_batch": 1,
    }


def test_an_invalid_message_takes_no_part(spark: SparkSession) -> None:
    broken = account(key_of(1), 2, "b", districtId="x")
    found = classified(spark, [account(key_of(1), 1, "a"), broken, account(key_of(1), 3, "a")])
    assert sorted((row["_offset"], row["outcome"]) for row in values(found)) == [(0, V), (2, N)]


def random_messages(random: Random) -> list[Message]:
    """Messages of 300 keys, 1 to 8 each, interleaved: few times and few contents, so that they often meet."""
    keys = [key_of(n) for n in range(300) for _ in range(random.randint(1, 8))]
    random.shuffle(keys)
    contents = [None, ("a", None), ("a", 1), ("b", 1), ("", 1)]
    return [Message(key, random.randint(1, 5), random.choice(contents), (0, n)) for n, key in enumerate(keys)]


def arrivals_of(messages: Sequence[Message]) -> list[tuple[bytes, bytes | None, str]]:
    """The same messages as they come from Kafka."""
    return [
        account(m.key, m.at, None)
        if m.content is None
        else account(m.key, m.at, str(m.content[0]), frequency=m.content[0], districtId=m.content[1])
        for m in messages
    ]


def wanted(messages: Sequence[Message]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """What the model makes of them: rows of OUTCOMES and of HISTORY."""
    outcomes: list[tuple[Any, ...]] = []
    history: list[tuple[Any, ...]] = []
    for key in {message.key for message in messages}:
        folded = fold(message for message in messages if message.key == key)
        for outcome, arrivals in ((S, folded.superseded), (N, folded.no_change), (V, {v.arrival for v in folded.versions})):
            outcomes += [(key, offset, outcome) for _, offset in arrivals]
        for version in folded.versions:
            times = (DAY.format(version.start), DAY.format(version.end) if version.end else None)
            content = version.content or (None, None)
            history.append((key, *content, *times, version.end is None, version.content is None, version.arrival[1]))
    return outcomes, history


def check_against_model(spark: SparkSession, seed: int, rows_a_batch: int) -> None:
    messages = random_messages(Random(seed))
    outcomes, history = wanted(messages)
    assert {outcome for _, _, outcome in outcomes} == {V, S, N}
    found = classified(spark, arrivals_of(messages), rows_a_batch).localCheckpoint()
    assert_same(found.select("account_id", "_offset", "outcome"), frame(spark, OUTCOMES, outcomes))
    assert_same(versions(found, ACCOUNTS).select(*HISTORY_COLUMNS), frame(spark, HISTORY, history))


SEEDS = {"seed": st.integers(0, 2**32 - 1), "rows_a_batch": st.sampled_from([1, 7, 300, 10**6])}


@settings(max_examples=2, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
@given(**SEEDS)
def test_random_histories_are_those_of_the_model(spark: SparkSession, seed: int, rows_a_batch: int) -> None:
    """However the messages were cut into batches: the model knows of none."""
    check_against_model(spark, seed, rows_a_batch)


@pytest.mark.soak
@settings(max_examples=100, deadline=None, database=None, phases=[Phase.generate])
@given(**SEEDS)
def test_many_random_histories_are_those_of_the_model(spark: SparkSession, seed: int, rows_a_batch: int) -> None:
    check_against_model(spark, seed, rows_a_batch)


def test_merged_step_by_step_a_table_ends_with_the_same_history(spark: SparkSession, tmp_path: Path) -> None:
    """As the job does it: the histories so far, their difference to the table, merged; here after each half of the messages."""
    home, table = read_settings({"LEDGER_HOME": str(tmp_path)}), tables.SILVER_ACCOUNTS
    tables.ensure_tables(home, [table])
    messages = random_messages(Random(5))[:300]
    judged = judged_arrivals(spark, arrivals_of(messages), 30).localCheckpoint()
    for upto in (150, 300):
        found = versions(classify_messages(judged.where(F.col("_offset") < upto), ACCOUNTS), ACCOUNTS).select(*table.columns)
        changes = sinks.difference(sources.read_table(spark, home, table), found, on=table.keys).localCheckpoint()
        sinks.merge_rows(changes, home, table, Txn("test", upto), on=table.keys, deletes_where="s._is_gone")
    assert changes.where("_is_gone").count() > 0
    assert_same(sources.read_table(spark, home, table).select(*HISTORY_COLUMNS), frame(spark, HISTORY, wanted(messages)[1]))
