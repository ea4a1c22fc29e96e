"""A value of the ordinary shape is read in a quicker way: with what the strict way reads, field by field, on values of every kind."""

import json
import random
import re
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from expectations.row_rules import read_rules
from include.producer import Disturbances, generated_sources, plan_messages
from spark_jobs.lake.topic import Topic
from spark_jobs.lake.topics import BY_TOPIC
from spark_jobs.silver import events, parse
from spark_jobs.silver.judge import is_valid
from spark_jobs.silver.parse import parse_fields, parse_ordinary, usual_order
from tests.support.frames import frame
from tests.support.rows import placed

pytestmark = pytest.mark.spark

FEW, MANY = 4_000, 350_000  # values of each topic
NUMBERS = (
    *("0", "-0", "0.0", "-0.0", "-0.00", "1.10", "100.00", "0.000001", "0.0000001", "-12.5", "010", "1e2", "1E-2", "+1", ".5", "5.", "-"),
    *("123456789012345678", "1234567890123456789", "123456789012345678.123456", "99999999999999999.99", "1.1234567", "NaN", "1_0", "0x1"),
)
TEXTS = ('""', '" "', '"a\\u0041"', '"a\\n"', '"a\tb"', '"Zoë 😀"', '"\u2028"', '"\x7f"', "'a'", '"a', 'a"', '"5"', '"null"', "\ufeff")
OTHERS = ("null", "true", "{}", "[]", "[1]", '{"a":1}', "")


def values(topic: Topic, count: int, seed: int) -> Iterator[bytes]:
    """As the producer sends them, good and bad; and such with other values, names, orders, blanks, letters and bytes."""
    chance = random.Random(seed)
    disturbed = Disturbances(duplicates=0.0, malformed=0.3, late=0.0, seed=seed)
    sent = plan_messages(generated_sources(max(count // 2, 2_000), seed=seed, only=(topic.name,)), disturbed)
    good = [message.value for message in sent if message.value]
    for place in range(count):
        value = good[place % len(good)]
        if chance.random() < 0.5:  # customers have it as a text
            value = re.sub(rb'"districtId":"([0-9]+)"', rb'"districtId":\1', value)
        yield value if chance.random() < 0.3 else changed(value, topic, chance)


def changed(value: bytes, topic: Topic, chance: random.Random) -> bytes:
    try:
        fields = json.loads(value)
    except ValueError:
        return scratched(value, chance)
    if not isinstance(fields, dict) or chance.random() < 0.3:
        return scratched(value, chance)
    pairs = [(name, json.dumps(content, ensure_ascii=False)) for name, content in fields.items()]
    for _ in range(chance.randrange(4)):
        place = chance.randrange(len(pairs)) if pairs else 0
        name = chance.choice((*topic.names, "other", "N", "_end"))
        written = chance.choice((*NUMBERS, *TEXTS, *OTHERS))
        pairs[place : place + chance.randrange(2)] = chance.choice(([], [(name, written)], [(pairs[place][0] if pairs else name, written)]))
    if chance.random() < 0.3:
        chance.shuffle(pairs)
    colon, comma = chance.choice(((":", ","), (": ", ", "), (":", ",  "), (" :", ",")))
    return ("{" + comma.join(f'"{name}"{colon}{written}' for name, written in pairs) + "}").encode()


def scratched(value: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(value) + 1)
    put = chance.choice((*(each.encode() for each in '"\\,}{ \n0.e-\x00\x1f\ufffdé'), b"", b"\xff", b'"a":1,'))
    return value[:place] + put + value[place + chance.randrange(2) :]


def both_ways(spark: SparkSession, topic: Topic, rows: DataFrame, monkeypatch: pytest.MonkeyPatch) -> DataFrame:
    """Each value, with what either way reads of it."""
    names = ["is_json_object", *topic.names]

    def read() -> DataFrame:
        return parse_fields(rows, topic.texts, topic.numbers, order=topic.names).select("place", "value", F.struct(*names).alias("found"))

    quick = read()
    with monkeypatch.context() as strictly:
        strictly.setattr(parse, "_LONGEST_ORDINARY", -1)
        strict = read()
    return quick.withColumnRenamed("found", "quick").join(strict.drop("value").withColumnRenamed("found", "strict"), on="place")


def assert_agree(spark: SparkSession, topic: Topic, sample: list[bytes], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many values have the ordinary shape."""
    rows = frame(spark, "place int, value binary", enumerate(sample)).localCheckpoint()
    found = both_ways(spark, topic, rows, monkeypatch)
    assert found.where(~F.col("quick").eqNullSafe(F.col("strict"))).limit(3).collect() == []
    pattern = parse._ordinary(topic.names, topic.numbers)
    return rows.where(F.is_valid_utf8(F.col("value").cast("string")) & F.col("value").cast("string").rlike(pattern)).count()


@pytest.mark.parametrize("name", BY_TOPIC)
def test_both_ways_read_the_same(spark: SparkSession, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = list(values(BY_TOPIC[name], FEW, seed=1))
    assert FEW / 10 < assert_agree(spark, BY_TOPIC[name], sample, monkeypatch) < FEW * 4 / 5


def test_ordinary_rows_that_keep_all_rules_are_judged_alike(spark: SparkSession) -> None:
    """Of the others the quick way says only that they are not, with what the strict way reads."""
    topic, rules = BY_TOPIC["transactions"], read_rules("transactions")
    rows = [(b"k", value, topic.name, 0, offset, "2020-01-01T00:00:00Z", 1) for offset, value in enumerate(values(topic, FEW, seed=7))]
    bronze = placed(spark, rows).localCheckpoint()
    strict = events.judge_events(bronze, topic, rules)
    quick = events.judge_ordinary(bronze, topic, rules, topic.names).localCheckpoint()
    judged = quick.where("broken_rules is not null")
    assert FEW / 10 < judged.count() < strict.where(is_valid()).count()
    assert judged.select(*strict.columns).exceptAll(strict).count() == 0
    others = quick.where("broken_rules is null").select("key", "value", "_timestamp", "_offset")
    assert others.count() == FEW - judged.count()
    assert others.exceptAll(bronze.select(*others.columns)).count() == 0


def test_what_most_values_look_like_is_ordinary(spark: SparkSession) -> None:
    """In another order than the topic declares, and without some of its names."""
    topic = BY_TOPIC["transactions"]
    value = b'{"type": "Debit", "amount": -0.50, "transactionId": "T1", "operation": null}'
    order = usual_order([b"{}", value, None, value, b"[1]"], topic.names)
    rows = frame(spark, "value binary", [(value,), (b'{"transactionId":"T1","type":"Debit","amount":1,"operation":null}',)])
    found = parse_ordinary(rows, topic.texts, topic.numbers, order=order).collect()
    assert [row["is_json_object"] for row in found] == [True, False]
    assert {name: found[0][name]["text"] for name in topic.names if found[0][name]["kind"]} == {
        "type": "Debit",
        "amount": "-0.5",
        "transactionId": "T1",
        "operation": None,
    }
    assert found[0]["operation"]["kind"] == "null"
    assert not any(row[name]["kind"] for row in found[1:] for name in topic.names)


def test_a_value_that_is_what_another_one_is_cut_into_is_no_object(spark: SparkSession) -> None:
    topic = BY_TOPIC["transactions"]
    parts = ('"T1"', '"A00000001"', '"C00000001"', "1357028613001", '"x"', '"Debit"', '"y"', "1", "2")
    cut = "".join(f"\x1f{part}" for part in parts)
    rows = frame(spark, "value binary", [(text.encode(),) for text in (cut, "{" + cut, cut[1:], "{" + cut + "}")])
    assert not any(row["is_json_object"] for row in parse_fields(rows, topic.texts, topic.numbers, order=topic.names).collect())


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("name", BY_TOPIC)
def test_both_ways_read_the_same_of_a_million(spark: SparkSession, name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of it at a time."""
    sample = list(values(BY_TOPIC[name], MANY // 3, seed=10 * seed))
    assert assert_agree(spark, BY_TOPIC[name], sample, monkeypatch) > MANY / 30


@pytest.mark.parametrize("name", ["transactions", "accounts"])  # customers have a number as a text, and are few
def test_what_the_producer_sends_has_the_ordinary_shape(name: str) -> None:
    """Else nothing would be quicker."""
    topic = BY_TOPIC[name]
    pattern = re.compile(parse._ordinary(topic.names, topic.numbers).replace(r"\z", r"\Z"))
    sent = [message.value for message in plan_messages(generated_sources(2_000, seed=3, only=(name,)), Disturbances()) if message.value]
    assert len(sent) > 20
    assert sum(pattern.match(value.decode()) is not None for value in sent) / len(sent) > 0.95
