"""Records that are left out by their bytes have another time, or none: on values of every kind, as the whole parse reads them."""

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession, functions as F

from expectations.wire_format import MAGIC
from spark_jobs.lake.topic import Topic
from spark_jobs.lake.topics import BY_TOPIC
from spark_jobs.reprocessing.raw_times import may_lie_within
from spark_jobs.silver.records import parse_records
from tests.spark.silver.test_ordinary import values
from tests.support.frames import frame

pytestmark = pytest.mark.spark

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def respelled(value: bytes, name: str, chance: random.Random, middle: int) -> bytes:
    """Sometimes with the time's name in other letters, twice, in a text or an object of its own, or with a time at an end of the range."""
    written, other = f'"{name}":'.encode(), str(middle + chance.choice((-86_400_001, -86_400_000, -1, 0, 86_399_999, 86_400_000))).encode()
    nested = b'{"other":{' + written + b"5}," + value[1:]
    changes = (
        value,
        value.replace(written, written + other + b"," + written, 1),
        value.replace(written, b'"' + f"\\u{ord(name[0]):04x}".encode() + name[1:].encode() + b'":', 1),
        value.replace(written, f'"{name.upper()}":{other.decode()},'.encode() + written, 1),
        value.replace(written, written + other + b',"x":', 1),
        value.replace(written, written + b" \n" + other + b' ,"x":', 1),
        value.replace(written, written + b'"' + other + b'","x":', 1),
        value.replace(written, written + other + b'.0,"x":', 1),
        value.replace(written, written + other[:-3] + b'e3,"x":', 1),
        nested,
        nested.replace(written, written + other + b',"x":', 1),
        b'{"other":"\\"' + written + b'5,",' + value[1:],
        MAGIC + value,
    )
    return chance.choice(changes)


@pytest.mark.parametrize("name", BY_TOPIC)
def test_what_is_left_out_has_another_time_or_none(spark: SparkSession, name: str) -> None:
    topic: Topic = BY_TOPIC[name]
    chance = random.Random(6)
    plain = list(values(topic, 6_000, seed=6))
    times = [at for at in parsed_times(spark, topic, plain) if at is not None]
    middle = sorted(times)[len(times) // 2]
    sample = [respelled(value, topic.kind.time, chance, middle // 1000) for value in plain]
    sample += [b"", b"{}", f'{{"{topic.kind.time}":{middle // 1000}}}'.encode(), b'"' + topic.kind.time.encode() + b'":5,']
    start, end = (EPOCH + timedelta(microseconds=middle, days=days) for days in (-1, 1))
    records = pa.table({"value": pa.array([*sample, None], pa.binary()), "_offset": range(len(sample) + 1)})
    wanted = may_lie_within(topic.kind.time, start, end)(records).to_pylist()
    day = 86_400_000_000
    within = [at is not None and -day <= at - middle < day for at in parsed_times(spark, topic, sample)]
    lost = [value for value, is_wanted, is_within in zip(sample, wanted, within, strict=False) if is_within and not is_wanted]
    assert not lost
    assert sum(within) > 100
    assert wanted[-1], "a deletion has Kafka's time"
    assert sum(not each for each in wanted) > 100, "else nothing would be quicker"
    known = [number for number, each in enumerate(wanted) if not each][:3]
    again = may_lie_within(topic.kind.time, start, end, always=known)(records).to_pylist()
    assert [number for number in range(len(again)) if again[number] != wanted[number]] == known


def parsed_times(spark: SparkSession, topic: Topic, sample: list[bytes]) -> list[int | None]:
    """The time of each value in microseconds, as silver reads it; None where there is none."""
    rows = frame(spark, "place int, value binary", enumerate(sample)).withColumns({"key": F.lit(b"k"), "_timestamp": F.lit(EPOCH)})
    parsed = parse_records(rows, topic, ()).select("place", F.unix_micros("_at").alias("at")).collect()
    return [row["at"] for row in sorted(parsed, key=lambda row: int(row["place"]))]
