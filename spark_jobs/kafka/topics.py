"""The Kafka topics of the pipeline, and how they are made."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from spark_jobs.kafka.clients import client_config, reason
from spark_jobs.kafka.logins import check_login
from spark_jobs.lake.topics import TOPICS
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.kafka_config import Broker


@dataclass(frozen=True)
class KafkaTopic:
    """A topic of the broker: how many partitions, and its settings where they differ from the broker's defaults."""

    name: str
    partitions: int
    config: dict[str, str] = field(default_factory=dict)


# The broker stamps the records, so that `_timestamp` says when a record really came. Records of 10 MB fit.
_STAMPED = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "12582912"}
_COMPACTED = {**_STAMPED, "cleanup.policy": "compact"}

SOURCE_TOPICS = tuple(KafkaTopic(topic.name, topic.partitions, _COMPACTED if topic.has_versions else _STAMPED) for topic in TOPICS)
DEBITS = KafkaTopic("transactions.debits", 5, _STAMPED)
CREDITS = KafkaTopic("transactions.credits", 5, _STAMPED)
ALERTS = KafkaTopic("alerts", 1, _COMPACTED)  # each id once, so that compaction removes none: it says which were published
PUBLISHED = KafkaTopic("ledger.published", 1, _COMPACTED)  # how far live/outbox.py has come

ANSWER_SECONDS = 15


def ensure_topics(broker: Broker, topics: Iterable[KafkaTopic] = SOURCE_TOPICS) -> None:
    """Make the topics that the broker lacks; those that exist stay as they are.

    Raises LedgerError when the broker does not answer within 15 seconds, SettingsError when it refuses the login or is not trusted.
    """
    check_login(broker)  # at once and in one line, where a client library tries for long and says little
    admin = AdminClient(client_config(broker) | {"log_level": 0}, logger=None)
    try:
        existing = admin.list_topics(timeout=ANSWER_SECONDS).topics
        missing = [topic for topic in topics if topic.name not in existing]
        wanted = [NewTopic(topic.name, num_partitions=topic.partitions, config=topic.config) for topic in missing]
        for future in admin.create_topics(wanted).values() if wanted else ():
            future.result(ANSWER_SECONDS)
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":  # another process was quicker
            found = reason(error, broker)
            raise LedgerError(f"Kafka at {broker} does not answer ({found}): is the broker up? (make status, make up)") from None
