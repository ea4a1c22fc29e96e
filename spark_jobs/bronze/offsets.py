"""Kafka offsets: what bronze holds, and from where a new checkpoint starts."""

from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from spark_jobs import control
from spark_jobs.errors import LedgerError, SettingsError
from spark_jobs.settings import Settings
from spark_jobs.tables import Table
from spark_jobs.topics import ANSWER_SECONDS

WORDS = ("earliest", "latest", "committed")
Offsets = dict[str, dict[str, int]]  # topic -> partition -> offset


def check_start(start: str | None) -> None:
    """Refuse, with SettingsError, a starting point that is none."""
    if start is not None and start not in WORDS:
        parse_time(start)


def known_offsets(settings: Settings, table: Table) -> Offsets:
    """The last offset that bronze holds of each partition."""
    sql = "select _topic, _partition, max(_offset) as last from t group by _topic, _partition"
    known: Offsets = {}
    for row in control.query(DeltaTable(str(table.path(settings))), sql).to_pylist():
        known.setdefault(row["_topic"], {})[str(row["_partition"])] = row["last"]
    return known


def find_topic_id(settings: Settings, topic: str) -> str:
    """The id that Kafka gave a topic when it was made; raises LedgerError when the broker does not answer."""
    admin = AdminClient({"bootstrap.servers": settings.broker(), "log_level": 0})
    try:
        described = admin.describe_topics(TopicCollection([topic]), request_timeout=ANSWER_SECONDS)
        return str(described[topic].result(ANSWER_SECONDS).topic_id)
    except KafkaException as error:
        raise LedgerError(f"Kafka at {settings.broker()} does not tell of topic {topic}: {error.args[0].str()}") from None


def find_start(settings: Settings, topic: str, start: str, known: Offsets) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """The offset of each partition to start from, and the holes that this leaves in bronze, as rows of control.holes.

    `start` is `earliest`, `latest`, `committed` (behind bronze's last) or an ISO 8601 time with zone. A hole is what Kafka has
    and bronze would never get. Raises SettingsError for another `start`, LedgerError when the broker does not answer.
    """
    consumer = Consumer({"bootstrap.servers": settings.broker(), "group.id": "ledger-offsets", "enable.auto.commit": False, "log_level": 0})
    try:
        numbers = sorted(consumer.list_topics(topic, ANSWER_SECONDS).topics[topic].partitions)
        edges = {n: consumer.get_watermark_offsets(TopicPartition(topic, n), ANSWER_SECONDS) for n in numbers}
        at: dict[int, int] = {}
        if start not in WORDS:
            millis = round(parse_time(start).timestamp() * 1000)
            wanted = [TopicPartition(topic, n, millis) for n in numbers]
            at = {p.partition: p.offset for p in consumer.offsets_for_times(wanted, ANSWER_SECONDS)}
    except KafkaException as error:
        raise LedgerError(f"Kafka at {settings.broker()} does not answer ({error.args[0].str()}): is the broker up?") from None
    finally:
        consumer.close()
    starts, holes = {}, []
    for number, (begin, end) in edges.items():
        following = max(known.get(topic, {}).get(str(number), -1) + 1, begin)
        chosen = {"earliest": begin, "latest": end, "committed": following}.get(start, at.get(number, end))
        starts[str(number)] = end if chosen < 0 else chosen  # Kafka says -1 where no record is as late as that
        if starts[str(number)] > following:
            holes.append({"_topic": topic, "_partition": number, "first_offset": following, "last_offset": starts[str(number)] - 1})
    return starts, holes


def parse_time(text: str) -> datetime:
    """An ISO 8601 time with a zone; raises SettingsError for one without, or for anything else."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(
            f"--starting-offsets: found {text!r}, expected earliest, latest, committed or a time such as 2026-01-01T01:00:00+02:00"
        ) from None
    if at.tzinfo is None:
        raise SettingsError(f"--starting-offsets: found {text!r} without a zone, expected one, such as {text}Z or {text}+02:00")
    return at
