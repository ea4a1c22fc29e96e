"""Which of the rows with one id is the first, which is a duplicate, and whether they conflict."""

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from expectations.row_rules import read_rules
from spark_jobs.lake import tables
from spark_jobs.lake.topics.transactions import TOPIC as TRANSACTIONS
from spark_jobs.silver.events import judge_events, mark_duplicates
from tests.support.frames import assert_same, frame
from tests.support.rows import LOADED, TRANSACTION, placed

pytestmark = pytest.mark.spark

Arrived = tuple[int, str, int, int, bytes]  # batch, topic, partition, offset, value
MARKS = "transaction_id string, is_first boolean, is_conflicting boolean, first string, _place string"


def value(id_: str, **changes: Any) -> bytes:
    return json.dumps({**TRANSACTION, "transactionId": id_, **changes}).encode()


# In order of arrival; what comes out of it is MARKED below.
LOG: list[Arrived] = [
    (1, "transactions", 0, 0, b"not a row"),
    (1, "transactions", 0, 7, value("twice in a batch")),
    (1, "transactions", 0, 8, value("twice in a batch")),
    (1, "transactions", 1, 2, value("another partition")),
    (1, "transactions", 4, 3, value("three times")),
    (1, "transactions", 4, 4, value("no operation", operation=None)),
    (1, "transactions", 4, 5, value("no operation", operation="")),
    (1, "transactions", 4, 6, value("broken first", type="Transfer")),
    (1, "transactions", 4, 7, value("broken between")),
    (1, "transactions", 4, 8, value("transactions/0")),
    (2, "file:old", 9, 9, value("a topic before")),
    (2, "transactions", 0, 1, value("another partition", balance=1)),
    (2, "transactions", 0, 9, value("three times", amount=1)),
    (2, "transactions", 0, 10, value("a topic before")),
    (2, "transactions", 2, 0, value("broken first")),
    (2, "transactions", 2, 1, value("broken between", amount=-1)),
    (3, "transactions", 0, 2, value("three times", amount=900.50)),
    (3, "transactions", 2, 2, value("broken between", eventTimeFormatted="another text")),
    (3, "transactions", 2, 3, value("Broken Between")),
    (3, "transactions", 2, 4, value("broken between ")),
    (3, "transactions", 3, 0, value("each field")),
    (3, "transactions", 3, 1, value("each field", accountId="A00000002")),
    (3, "transactions", 3, 2, value("each field", customerId="C00000002")),
    (3, "transactions", 3, 3, value("each field", eventTime=1357028613002)),
    (3, "transactions", 3, 4, value("each field", type="Debit")),
    (3, "transactions", 3, 5, value("each field", operation="another")),
    (3, "transactions", 3, 6, value("each field", operation=None)),
    (3, "transactions", 3, 7, value("each field", amount=900.51)),
    (3, "transactions", 3, 8, value("each field", balance=-12.35)),
    (3, "transactions", 3, 9, value("each field", amount=9.005e2)),
]
MARKED = [
    (None, False, None, None, "0/0"),
    ("twice in a batch", True, False, "transactions/0/7", "0/7"),
    ("twice in a batch", False, False, "transactions/0/7", "0/8"),
    ("another partition", True, False, "transactions/1/2", "1/2"),
    ("three times", True, False, "transactions/4/3", "4/3"),
    ("no operation", True, False, "transactions/4/4", "4/4"),
    ("no operation", False, False, "transactions/4/4", "4/5"),
    (None, False, None, None, "4/6"),
    ("broken between", True, False, "transactions/4/7", "4/7"),
    ("transactions/0", True, False, "transactions/4/8", "4/8"),
    ("a topic before", True, False, "file:old/9/9", "9/9"),
    ("another partition", False, True, "transactions/1/2", "0/1"),
    ("three times", False, True, "transactions/4/3", "0/9"),
    ("a topic before", False, False, "file:old/9/9", "0/10"),
    ("broken first", True, False, "transactions/2/0", "2/0"),
    (None, False, None, None, "2/1"),
    ("three times", False, False, "transactions/4/3", "0/2"),
    ("broken between", False, False, "transactions/4/7", "2/2"),
    ("Broken Between", True, False, "transactions/2/3", "2/3"),
    ("broken between ", True, False, "transactions/2/4", "2/4"),
    ("each field", True, False, "transactions/3/0", "3/0"),
    *(("each field", False, True, "transactions/3/0", f"3/{offset}") for offset in range(1, 9)),
    ("each field", False, False, "transactions/3/0", "3/9"),
]


@pytest.fixture(scope="module")
def judged(spark: SparkSession) -> DataFrame:
    """The whole log, judged, in an order that is not that of arrival."""
    log = [(b"k", value, topic, partition, offset, LOADED, batch) for batch, topic, partition, offset, value in LOG[::-1]]
    return judge_events(placed(spark, log), TRANSACTIONS, read_rules("transactions")).localCheckpoint()


def marks(marked: DataFrame) -> DataFrame:
    first = F.concat_ws("/", "first_topic", "first_partition", "first_offset")
    place = F.concat_ws("/", "_partition", "_offset")
    return marked.select("transaction_id", "is_first", "is_conflicting", F.nullif(first, F.lit("")).alias("first"), place.alias("_place"))


def nothing(spark: SparkSession) -> DataFrame:
    return frame(spark, tables.SILVER_TRANSACTIONS.ddl, [])


def test_the_first_valid_row_of_an_id_stays_by_arrival(spark: SparkSession, judged: DataFrame) -> None:
    assert_same(marks(mark_duplicates(judged, nothing(spark), TRANSACTIONS)), frame(spark, MARKS, MARKED))


@pytest.mark.parametrize("cut", [[(1,), (2,), (3,)], [(1,), (2, 3)], [(1, 2), (3,)]])
def test_the_cut_into_micro_batches_does_not_matter(spark: SparkSession, judged: DataFrame, cut: list[tuple[int, ...]]) -> None:
    silver, found = nothing(spark), frame(spark, MARKS, [])
    for batches in cut:
        marked = mark_duplicates(judged.where(F.col("_batch").isin(*batches)), silver, TRANSACTIONS)
        silver = silver.unionByName(marked.where("is_first").select(*tables.SILVER_TRANSACTIONS.columns)).localCheckpoint()
        found = found.unionByName(marks(marked))
    assert_same(found, frame(spark, MARKS, MARKED))


def test_every_row_has_exactly_one_place(spark: SparkSession, judged: DataFrame) -> None:
    is_valid = F.size("broken_rules") == 0
    sides = (F.count("*"), F.count_if("is_first"), F.count_if(is_valid & ~F.col("is_first")), F.count_if(~is_valid))
    assert tuple(mark_duplicates(judged, nothing(spark), TRANSACTIONS).select(*sides).collect()[0]) == (30, 11, 16, 3)
