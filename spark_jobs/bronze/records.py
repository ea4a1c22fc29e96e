"""What Kafka holds of a topic between two broker times, and its records, read without Spark."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from spark_jobs.bronze.offsets import to_millis
from spark_jobs.errors import LedgerError
from spark_jobs.messages import EPOCH, MILLISECOND
from spark_jobs.settings import Settings
from spark_jobs.topics import ANSWER_SECONDS

_AT_ONCE = 1_000
_POLL_SECONDS = 0.1  # how long it waits for that many
_NO_TIME = 0  # confluent_kafka's type of a timestamp that a record does not have


@dataclass(frozen=True)
class Span:
    """The offsets [first, end) of one partition, of those [oldest, newest) that Kafka holds."""

    partition: int
    first: int
    end: int
    oldest: int
    newest: int


@contextmanager
def open_consumer(settings: Settings) -> Iterator[Consumer]:
    """A reader of committed records that leaves no trace at the broker; errors of the broker come out as LedgerError."""
    consumer = Consumer(
        {
            "bootstrap.servers": settings.broker(),
            "group.id": "ledger-replay",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    try:
        yield consumer
    except KafkaException as error:
        raise LedgerError(f"Kafka at {settings.broker()} does not answer ({error.args[0].str()}): is the broker up?") from None
    finally:
        consumer.close()


def find_spans(consumer: Consumer, topic: str, begin: datetime, end: datetime | None) -> list[Span]:
    """The records of each partition from the first one as late as `begin` to the one before the first as late as `end`."""
    numbers = sorted(consumer.list_topics(topic, ANSWER_SECONDS).topics[topic].partitions)
    spans = []
    for number in numbers:
        oldest, newest = consumer.get_watermark_offsets(TopicPartition(topic, number), ANSWER_SECONDS)
        first, behind = (_offset_at(consumer, topic, number, at) for at in (begin, end))
        first = newest if first is None else max(first, oldest)
        spans.append(Span(number, first, max(first, newest if behind is None else behind), oldest, newest))
    return spans


def read_records(consumer: Consumer, topic: str, partition: int, first: int, end: int) -> Iterator[dict[str, Any]]:
    """The records with offsets [first, end) that Kafka has, in order, as bronze has them (without batch; `_topic` is the name)."""
    consumer.assign([TopicPartition(topic, partition, first)])
    heard = time.monotonic()
    while True:
        messages = consumer.consume(_AT_ONCE, _POLL_SECONDS)
        heard = time.monotonic() if messages else heard
        if time.monotonic() - heard >= ANSWER_SECONDS:
            raise LedgerError(f"Kafka sent nothing of {topic} partition {partition} for {ANSWER_SECONDS} seconds: is the broker up?")
        for message in messages:
            if message.partition() != partition:
                continue  # left over from before
            if (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return
                _refuse(topic, partition, error)
            offset = message.offset() or 0
            if offset >= end:
                return
            if offset >= first:
                yield _bronze_row(message)


def _bronze_row(message: Message) -> dict[str, Any]:
    """A record as bronze has it, bytes as they came."""
    kind, millis = message.timestamp()
    headers: Any = message.headers() or ()
    return {
        "key": message.key(),
        "value": message.value(),
        "headers": [{"key": name, "value": value} for name, value in headers] or None,
        "_topic": message.topic(),
        "_partition": message.partition(),
        "_offset": message.offset(),
        "_timestamp": None if kind == _NO_TIME else EPOCH + millis * MILLISECOND,
    }


def _offset_at(consumer: Consumer, topic: str, partition: int, at: datetime | None) -> int | None:
    """The offset of the first record as late as a time; None where there is none, or no time."""
    if at is None:
        return None
    wanted = TopicPartition(topic, partition, to_millis(at))
    offset = int(consumer.offsets_for_times([wanted], ANSWER_SECONDS)[0].offset)
    return offset if offset >= 0 else None


def _refuse(topic: str, partition: int, error: KafkaError) -> None:
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise LedgerError(
            f"Kafka removed records of {topic} partition {partition} while they were read: replay once more; nothing was written"
        )
    raise LedgerError(f"Kafka cannot be read ({error.str()}): is the broker up? nothing was written")
