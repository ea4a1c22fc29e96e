"""Kafka's side of ingestion: where the topics end now, and the consumer group in which lag tools see how far bronze has come."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_jobs.kafka.clients import client_config
from spark_jobs.kafka.offsets import OffsetSpec
from spark_jobs.runtime.errors import first_line
from spark_jobs.runtime.kafka_config import Broker

log = logging.getLogger(__name__)

GROUP = "ledger-bronze"
_EVERY_SECONDS = 1.0
_ANSWER_SECONDS = 10
_PARTITIONS_SECONDS = 15.0  # new partitions are found within

Offsets = dict[str, dict[int, int]]  # topic -> partition -> offset


class Watcher(threading.Thread):
    """Asks Kafka once a second, in a thread of its own, so that an unreachable broker delays no stream.

    `seen` is what it found last: when (time.monotonic()) and the ends by topic. Offsets given to `reached` are committed to the group.
    """

    def __init__(self, broker: Broker, topics: Sequence[str]) -> None:
        super().__init__(name="kafka watcher", daemon=True)
        self.seen: tuple[float, Offsets] = (0.0, {})
        self._config = client_config(broker) | {"log_level": 0}
        self._topics = topics
        self._reached: Offsets = {}
        self._ending = threading.Event()

    def reached(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Bronze holds all records before these offsets."""
        self._reached[topic] = dict(offsets)

    def end(self) -> None:
        """Commit what was reached and end."""
        self._ending.set()
        self.join(_ANSWER_SECONDS)

    def run(self) -> None:
        """Until `end`."""
        admin = AdminClient(self._config, logger=None)
        group = Consumer(self._config | {"group.id": GROUP, "enable.auto.commit": False})
        partitions: list[TopicPartition] = []
        asked, committed, is_away = 0.0, Offsets(), False
        while True:
            is_last = self._ending.is_set()
            try:
                if time.monotonic() - asked > _PARTITIONS_SECONDS:
                    known = admin.list_topics(timeout=_ANSWER_SECONDS).topics
                    partitions = [
                        TopicPartition(name, number) for name in self._topics if name in known for number in known[name].partitions
                    ]
                    asked = time.monotonic()
                ends = _ends(admin, partitions)
                self.seen = (time.monotonic(), ends)
                committed = _commit(group, {topic: offsets for topic, offsets in self._reached.copy().items() if topic in ends}, committed)
                is_away = False
            except (KafkaException, TimeoutError) as error:
                if not is_away:
                    log.warning("Kafka does not say where its topics end: %s", first_line(error))
                is_away, asked = True, 0.0
            if is_last:
                group.close()
                return
            self._ending.wait(_EVERY_SECONDS)


def _ends(admin: AdminClient, partitions: Sequence[TopicPartition]) -> Offsets:
    wanted = dict.fromkeys(partitions, OffsetSpec.latest())
    found = admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_ANSWER_SECONDS) if wanted else {}
    ends: Offsets = {}
    for partition, future in found.items():
        ends.setdefault(partition.topic, {})[partition.partition] = future.result(_ANSWER_SECONDS).offset
    return ends


def _commit(group: Consumer, reached: Offsets, committed: Offsets) -> Offsets:
    new = {topic: offsets for topic, offsets in reached.items() if committed.get(topic) != offsets}
    if new:
        places = [TopicPartition(topic, number, offset) for topic, offsets in new.items() for number, offset in offsets.items()]
        group.commit(offsets=places, asynchronous=False)
    return committed | new
