"""Kafka offsets: what a topic has now, where a time lies in it, and from where a new reader starts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib import import_module
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_jobs.kafka.clients import client_config, reason
from spark_jobs.kafka.logins import check_login
from spark_jobs.kafka.messages import EPOCH, MILLISECOND
from spark_jobs.kafka.topics import ANSWER_SECONDS
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.kafka_config import Broker
from spark_jobs.runtime.settings import Settings

WORDS = ("earliest", "latest", "committed")
Positions = dict[str, int]  # partition -> offset
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_CONFIRM_SECONDS = 5
OffsetSpec: Any = import_module("confluent_kafka.admin").OffsetSpec  # it has no types


@dataclass(frozen=True)
class Present:
    """A topic as Kafka has it now: its id, and of each partition the first offset and the one after the last committed record."""

    topic_id: str
    begins: Positions
    ends: Positions


def check_start(start: str | None) -> None:
    """Refuse, with SettingsError, a starting point that is none."""
    if start is not None and start not in WORDS:
        parse_time(start, "--starting-offsets", *WORDS)


def read_topic(settings: Settings, topic: str) -> Present:
    """What Kafka has of a topic; raises LedgerError when the topic is not there, or the broker does not answer."""
    with _errors_of_kafka(settings, topic):
        admin = _connect(settings.broker())
        described = admin.describe_topics(TopicCollection([topic]), request_timeout=ANSWER_SECONDS)[topic].result(ANSWER_SECONDS)
        numbers = sorted(partition.id for partition in described.partitions)
        begins, ends = (_ask(admin, topic, numbers, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
        return Present(str(described.topic_id), begins, ends)


def is_another(settings: Settings, topic: str, topic_id: str) -> bool:
    """Whether Kafka answers, soon, that the topic has another id than this one: it was created again, or is gone."""
    try:
        described = connected(settings.broker()).describe_topics(TopicCollection([topic]), request_timeout=_CONFIRM_SECONDS)
        return str(described[topic].result(_CONFIRM_SECONDS).topic_id) != topic_id
    except KafkaException as error:
        return error.args[0].code() in _GONE
    except TimeoutError:
        return False


def find_start(
    settings: Settings, topic: str, start: str, present: Present, following: Positions
) -> tuple[Positions, list[dict[str, Any]]]:
    """The offset of each partition to start from, and the holes that this leaves in bronze: partition, first and last offset.

    `start` is `earliest`, `latest`, `committed` or an ISO 8601 time with zone. `following` is the offset after the last that bronze
    has, of each partition. A hole is what Kafka has and bronze would never get. Raises SettingsError for another `start`,
    LedgerError when the broker does not answer.
    """
    chosen = {"earliest": present.begins, "latest": present.ends, "committed": following}.get(start)
    if chosen is None:
        chosen = offsets_at(settings, topic, present, parse_time(start, "--starting-offsets", *WORDS))
    starts, holes = {}, []
    for number, begin in present.begins.items():
        starts[number] = max(begin, chosen[number])
        if starts[number] > (first := max(begin, following.get(number, 0))):
            holes.append({"_partition": int(number), "first_offset": first, "last_offset": starts[number] - 1})
    return starts, holes


def offsets_at(settings: Settings, topic: str, present: Present, at: datetime) -> Positions:
    """The offset of the first record of each partition as late as a time; where there is none, the one after the last record."""
    millis = max(0, -((EPOCH - at) // MILLISECOND))  # rounded up
    with _errors_of_kafka(settings, topic):
        found = _ask(
            _connect(settings.broker()),
            topic,
            [int(number) for number in present.begins],
            OffsetSpec.for_timestamp(millis),
        )
    return {number: offset if offset >= 0 else present.ends[number] for number, offset in found.items()}


def parse_time(text: str, option: str, *words: str) -> datetime:
    """An ISO 8601 time with a zone; raises SettingsError for one without, or for anything else. `words` are what else the option takes."""
    try:
        at = datetime.fromisoformat(text)
        at = at.astimezone(UTC) if at.tzinfo else at  # which years 1 to 9999 may not have
    except (ValueError, OverflowError):
        expected = f"{', '.join(words)}{' or ' if words else ''}a time such as 2026-01-01T01:00:00+02:00"
        raise SettingsError(f"{option}: found {text!r}, expected {expected}") from None
    if at.tzinfo is None:
        raise SettingsError(f"{option}: found {text!r} without a zone, expected one, such as {text}Z or {text}+02:00")
    return at


def _ask(admin: AdminClient, topic: str, numbers: list[int], spec: Any) -> Positions:
    """An offset of each partition, as a reader of committed records sees it."""
    asked = {TopicPartition(topic, number): spec for number in numbers}
    answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ANSWER_SECONDS)
    return {str(place.partition): int(answer.result(ANSWER_SECONDS).offset) for place, answer in answers.items()}


@contextmanager
def open_consumer(settings: Settings) -> Iterator[Consumer]:
    """A reader of committed records that leaves no trace at the broker; errors of the broker come out as LedgerError."""
    consumer = Consumer(
        client_config(settings.broker())
        | {
            "group.id": "ledger-reader",
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
        found = reason(error, settings.broker())
        raise LedgerError(f"Kafka at {settings.broker()} does not answer ({found}): is the broker up?") from None
    finally:
        consumer.close()


@contextmanager
def _errors_of_kafka(settings: Settings, topic: str) -> Iterator[None]:
    """Errors of the broker come out as LedgerError."""
    try:
        yield
    except KafkaException as error:
        if error.args[0].code() in _GONE:
            raise LedgerError(
                f"topic {topic}: found none at {settings.broker()}, expected it: it was deleted, or this is another broker; create it "
                "(or start a producer, or make up) and accept the new one, which this message will then offer"
            ) from None
        found = reason(error, settings.broker())
        raise LedgerError(f"Kafka at {settings.broker()} does not describe topic {topic} ({found}): is the broker up?") from None
    except TimeoutError:
        check_login(settings.broker())
        raise LedgerError(f"Kafka at {settings.broker()} does not describe topic {topic}: no answer in {ANSWER_SECONDS} seconds") from None


def _connect(broker: Broker) -> AdminClient:
    return AdminClient(client_config(broker) | {"log_level": 0}, logger=None)


@lru_cache(maxsize=1)
def connected(broker: Broker) -> AdminClient:
    """A connection that is kept, for what is asked often."""
    return _connect(broker)
