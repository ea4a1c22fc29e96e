"""Rows of a live table on their way to Kafka: each once for a `read_committed` reader. publications.py says which tables.

The table is the outbox. Its rows go to Kafka in order, in transactions. Whoever publishes first fences who did so before, which ends what
that one left open, and then asks the broker how far it came: by a token that each transaction also holds, or by the keys that the topic
has. So neither a kill nor a restart of the broker loses a row or shows it twice. (Spark's own sink writes at least once.)
"""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message as Received, Producer, TopicPartition
from deltalake import DeltaTable

from spark_jobs import control
from spark_jobs.kafka.clients import client_config, reason
from spark_jobs.kafka.offsets import open_consumer
from spark_jobs.kafka.topics import ANSWER_SECONDS, PUBLISHED, KafkaTopic, ensure_topics
from spark_jobs.live.publications import TRANSACTIONS, Message, Publication
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.values import to_rows

log = logging.getLogger(__name__)

ROWS_AT_ONCE = 20_000  # in one transaction
_TRANSACTION_SECONDS = 120  # then the broker ends what a killed publisher left open, if none was started before
_COUNTS = Template("select $batch as batch, count(*) as n from t where $batch between $first and $last group by $batch order by $batch")
_ROWS = Template("select * from t where $batch between $first and $last and $where order by $batch, $order")
_PRODUCER = {"acks": "all", "linger.ms": 20, "compression.type": "lz4", "partitioner": "murmur2_random", "log_level": 0}


@dataclass(frozen=True)
class Token:
    """How far was published: all batches before this one, and of it so many rows of the outbox."""

    batch: int = 0
    rows: int = 0


class Outbox:
    """Publishes to a broker, which it is the only one to do for this table. Raises LedgerError where the broker does not let it."""

    def __init__(self, settings: Settings, of: Publication = TRANSACTIONS) -> None:
        self._settings, self._of, self._broker = settings, of, settings.broker()
        self._name = f"ledger-outbox-{self._table().metadata().id}"  # a new table has new rows, whatever an earlier one has published
        ensure_topics(self._broker, [*of.topics, PUBLISHED])
        self._producer = Producer(
            {
                **_PRODUCER,
                **client_config(self._broker),
                "transactional.id": self._name,
                "transaction.timeout.ms": _TRANSACTION_SECONDS * 1000,
            }
        )
        try:
            self._producer.init_transactions(ANSWER_SECONDS)
            self.token = Token() if of.by_key else self._newest_token()
            self._held = self._held_keys() if of.by_key else set[str]()
        except KafkaException as error:
            raise self._refused(error) from None

    def publish(self, upto: int) -> int:
        """Publish all rows of batches up to this one that were not published before; returns how many these are.

        After a LedgerError another Outbox must be made: it finds out how far this one came.
        """
        count = 0
        for rows in self._waiting(upto):
            try:
                self._send(rows)
            except KafkaException as error:
                raise self._refused(error) from None
            count += len(rows)
        if self._of.by_key:
            self.token = Token(upto + 1)
        return count

    def _waiting(self, upto: int) -> Iterator[list[tuple[Message, Token]]]:
        """The rows to be published, each with the token after it, in parts of one transaction."""
        table, done, batch = self._table(), self.token, self._of.batch
        counts = [(row["batch"], row["n"]) for row in self._query(table, _COUNTS, done.batch, upto)]
        for first, last in _spans(counts, ROWS_AT_ONCE):
            place, rows = Token(), list[tuple[Message, Token]]()
            for row in self._query(table, _ROWS, first, last):
                place = Token(row[batch], place.rows + 1 if place.batch == row[batch] else 1)
                message = self._of.to_message(row)
                if (place.batch, place.rows) > (done.batch, done.rows) and message.key not in self._held:
                    rows.append((message, place))
            for start in range(0, len(rows), ROWS_AT_ONCE):
                yield rows[start : start + ROWS_AT_ONCE]

    def _send(self, rows: Sequence[tuple[Message, Token]]) -> None:
        token = rows[-1][1]
        self._producer.begin_transaction()
        for message, _ in rows:
            self._produce(message)
        if not self._of.by_key:
            self._produce(Message(PUBLISHED.name, self._name, json.dumps({"batch": token.batch, "rows": token.rows}), {}))
        self._producer.flush(ANSWER_SECONDS)
        kill_point("before a part of the outbox is committed")
        self._producer.commit_transaction(_TRANSACTION_SECONDS)
        kill_point("after a part of the outbox is committed")
        self.token = token
        if self._of.by_key:
            self._held |= {message.key for message, _ in rows}

    def _produce(self, message: Message) -> None:
        while True:
            try:
                self._producer.produce(message.topic, message.value.encode(), message.key.encode(), headers=dict(message.headers))
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(1)

    def _newest_token(self) -> Token:
        """The token of the last transaction that was committed. What the publisher before left open has ended by now."""
        found = Token()
        for message in self._read(PUBLISHED):
            if message.key() == self._name.encode():
                found = Token(**json.loads(message.value() or b"{}"))
        return found

    def _held_keys(self) -> set[str]:
        """The keys of all records of the topics."""
        return {(message.key() or b"").decode() for topic in self._of.topics for message in self._read(topic)}

    def _read(self, topic: KafkaTopic) -> Iterator[Received]:
        """Every committed record of a topic, to the very end: another table's publisher may hold a transaction open before it."""
        with open_consumer(self._settings) as consumer:
            for number in sorted(consumer.list_topics(topic.name, ANSWER_SECONDS).topics[topic.name].partitions):
                oldest, end = consumer.get_watermark_offsets(TopicPartition(topic.name, number), ANSWER_SECONDS)
                consumer.assign([TopicPartition(topic.name, number, oldest)])
                yield from _until(consumer, TopicPartition(topic.name, number), oldest, end)

    def _table(self) -> DeltaTable:
        return self._of.table.open(self._settings)

    def _query(self, table: DeltaTable, sql: Template, first: int, last: int) -> list[dict[str, Any]]:
        of = self._of
        text = sql.substitute(first=first, last=last, batch=of.batch, order=of.order, where=of.where)
        return to_rows(control.query(table, text, of.table))

    def _refused(self, error: KafkaException) -> LedgerError:
        if error.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
            return LedgerError(
                f"another process publishes to {' and '.join(topic.name for topic in self._of.topics)} now: stop one of them"
            )
        found = reason(error, self._broker)
        return LedgerError(f"Kafka at {self._broker} does not take what is published ({found}): is the broker up?")


def _until(consumer: Consumer, partition: TopicPartition, oldest: int, end: int) -> Iterator[Received]:
    """The records of a partition up to an offset. Raises LedgerError where a transaction before it does not end."""
    waited = 0
    while True:
        message = consumer.poll(1)
        error = message.error() if message else None
        if error and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        if message and not error:
            yield message
            continue
        if end <= max(consumer.position([partition])[0].offset, oldest):
            return
        waited += 1
        if waited > 2 * _TRANSACTION_SECONDS:
            raise LedgerError(f"{partition.topic}: found no end of a transaction of another publisher, expected one by now")


def _spans(counts: Sequence[tuple[int, int]], most: int) -> Iterator[tuple[int, int]]:
    """Batches next to one another in spans (first, last) of at most so many rows, or of a single batch."""
    first = last = rows = 0
    for batch, count in counts:
        if rows and rows + count > most:
            yield first, last
            rows = 0
        first, last, rows = batch if not rows else first, batch, rows + count
    if rows:
        yield first, last
