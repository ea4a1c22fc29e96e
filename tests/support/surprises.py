"""A producer of odd records and of accidents, which knows what the broker has acknowledged."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from confluent_kafka import Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_jobs.kafka.topics import ensure_topics
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.kafka_config import Broker
from tests.support.ledger import await_that

Headers = list[tuple[str, str | bytes | None]]
Place = tuple[str, int, int]


@dataclass
class Sent:
    """A broker, and what it has acknowledged: key, value and headers by `_topic`, partition and offset."""

    bootstrap: str
    records: dict[Place, tuple[bytes | None, bytes | None, Headers]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)  # of topics that were made anew

    def send(
        self,
        topic: str,
        *values: bytes | None,
        partition: int = 0,
        key: bytes | None = None,
        headers: Headers | None = None,
        codec: str = "none",
    ) -> None:
        """Send values to a partition, and note where they came to lie."""
        conf = {
            "bootstrap.servers": self.bootstrap,
            "message.max.bytes": 10**9,  # before compression; the broker refuses what is larger than 12 MiB after it
            "batch.size": 2**31 - 1,
            "linger.ms": 60_000,  # so that what is sent together is one record batch, also on a busy machine; a flush does not wait for it
            "compression.type": codec,
        }
        producer = Producer(conf)
        for value in values:
            producer.produce(
                topic, value, key, partition=partition, headers=headers or [], on_delivery=self._note(key, value, headers or [])
            )
        assert producer.flush(60) == 0

    def in_transaction(self, topic: str, *values: bytes, partition: int = 0, is_good: bool) -> None:
        """The same in one transaction, which is committed or aborted; records of an aborted one are not noted."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": "surprise"})
        producer.init_transactions(15)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, b"K", partition=partition, on_delivery=self._note(b"K", value, []) if is_good else None)
        producer.flush(15)
        producer.commit_transaction(15) if is_good else producer.abort_transaction(15)

    def of(self, table: Table) -> dict[Place, tuple[bytes | None, bytes | None, Headers]]:
        """What must be in a bronze table."""
        topic = table.name.split(".")[1]
        return {place: record for place, record in self.records.items() if place[0].split("#")[0] == topic}

    def forget(self, topic: str, partition: int, upto: int) -> None:
        """Kafka removes the records before an offset, as its retention does."""
        self.admin.delete_records([TopicPartition(topic, partition, upto)])[TopicPartition(topic, partition)].result(15)

    def make_anew(self, topic: str, label: str) -> None:
        """A topic that was deleted is made once more."""
        ensure_topics(Broker(self.bootstrap))
        self.labels[topic] = label

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(15)
        await_that(lambda: topic not in self.topics())

    def topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=15).topics)

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def _note(self, key: bytes | None, value: bytes | None, headers: Headers) -> Callable[[object, Message], None]:
        def note(error: object, message: Message) -> None:
            assert error is None
            topic = message.topic() or ""
            self.records[self.labels.get(topic, topic), message.partition() or 0, message.offset() or 0] = (key, value, headers)

        return note
