"""What Kafka holds of a topic between two broker times, and a record of it as a row of bronze, without Spark."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from spark_jobs.bronze.offsets import to_millis
from spark_jobs.bronze.record_batches import Record
from spark_jobs.kafka.messages import EPOCH, MILLISECOND
from spark_jobs.kafka.topics import ANSWER_SECONDS
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings


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
        first, stop = (_offset_at(consumer, topic, number, at) for at in (begin, end))
        first = newest if first is None else max(first, oldest)
        spans.append(Span(number, first, max(first, newest if stop is None else stop), oldest, newest))
    return spans


def bronze_row(record: Record, topic: str, partition: int) -> dict[str, Any]:
    """A record as bronze has it (without batch), bytes as they came."""
    return {
        "key": record.key,
        "value": record.value,
        "headers": [{"key": name, "value": value} for name, value in record.headers or ()] or None,
        "_topic": topic,
        "_partition": partition,
        "_offset": record.offset,
        "_timestamp": EPOCH + record.millis * MILLISECOND,
    }


def _offset_at(consumer: Consumer, topic: str, partition: int, at: datetime | None) -> int | None:
    """The offset of the first record as late as a time; None where there is none, or no time."""
    if at is None:
        return None
    wanted = TopicPartition(topic, partition, to_millis(at))
    offset = int(consumer.offsets_for_times([wanted], ANSWER_SECONDS)[0].offset)
    return offset if offset >= 0 else None
