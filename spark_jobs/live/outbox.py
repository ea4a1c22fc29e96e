"""The topics transactions.debits and transactions.credits: each row of gold.live_transactions once for a `read_committed` reader.

The table is the outbox. Its rows go to Kafka in order of arrival, in transactions that also hold a token: how far they reach. Whoever
publishes first fences who did so before, which ends what that one left open, and continues after the newest token. So neither a kill nor
a restart of the broker loses a row or shows it twice. (Spark's own sink writes at least once.)
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from deltalake import DeltaTable

from spark_jobs import control
from spark_jobs.kafka.messages import EPOCH, MILLISECOND, NULL, format_time, quoted, quoted_or_null
from spark_jobs.kafka.topics import ANSWER_SECONDS, CREDITS, DEBITS, PUBLISHED, ensure_topics
from spark_jobs.lake.tables import LIVE_TRANSACTIONS
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.values import to_rows

log = logging.getLogger(__name__)

TOPICS = {"Debit": DEBITS, "Credit": CREDITS}
ROWS_AT_ONCE = 20_000  # in one transaction
_TRANSACTION_SECONDS = 120  # then the broker ends what a killed publisher left open, if none was started before
_COUNTS = Template("select _batch, count(*) as n from t where _batch between $first and $last group by _batch order by _batch")
_ROWS = Template("select * from t where _batch between $first and $last order by _batch, _topic, _partition, _offset")
_PRODUCER = {"acks": "all", "linger.ms": 20, "compression.type": "lz4", "partitioner": "murmur2_random", "log_level": 0}
_CONSUMER = {"group.id": "ledger-outbox", "enable.auto.commit": False, "isolation.level": "read_committed", "log_level": 0}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Token:
    """How far was published: all batches of bronze before this one, and of it so many rows of the outbox."""

    batch: int = 0
    rows: int = 0


class Outbox:
    """Publishes to a broker, which it is the only one to do for this table. Raises LedgerError where the broker does not let it."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._bootstrap = settings, settings.broker()
        self._name = f"ledger-outbox-{self._table().metadata().id}"  # a new table has new rows, whatever an earlier one has published
        ensure_topics(self._bootstrap, [*TOPICS.values(), PUBLISHED])
        self._producer = Producer(
            {
                **_PRODUCER,
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self._name,
                "transaction.timeout.ms": _TRANSACTION_SECONDS * 1000,
            }
        )
        try:
            self._producer.init_transactions(ANSWER_SECONDS)
            self.token = self._newest_token()
        except KafkaException as error:
            raise self._refused(error) from None

    def publish(self, upto: int) -> int:
        """Publish all rows of batches of bronze up to this one that were not published before; returns how many these are.

        After a LedgerError another Outbox must be made: it finds out how far this one came.
        """
        count = 0
        for rows in self._waiting(upto):
            try:
                self._send(rows)
            except KafkaException as error:
                raise self._refused(error) from None
            count += len(rows)
        return count

    def _waiting(self, upto: int) -> Iterator[list[tuple[Row, Token]]]:
        """The rows to be published, each with the token after it, in parts of one transaction."""
        table, done = self._table(), self.token
        counts = [(row["_batch"], row["n"]) for row in self._query(table, _COUNTS, done.batch, upto)]
        for first, last in _spans(counts, ROWS_AT_ONCE):
            place, rows = Token(), list[tuple[Row, Token]]()
            for row in self._query(table, _ROWS, first, last):
                place = Token(row["_batch"], place.rows + 1 if place.batch == row["_batch"] else 1)
                if (place.batch, place.rows) > (done.batch, done.rows):
                    rows.append((row, place))
            for start in range(0, len(rows), ROWS_AT_ONCE):
                yield rows[start : start + ROWS_AT_ONCE]

    def _send(self, rows: Sequence[tuple[Row, Token]]) -> None:
        token = rows[-1][1]
        self._producer.begin_transaction()
        for row, _ in rows:
            source = f"{row['_topic']}/{row['_partition']}/{row['_offset']}"
            self._produce(TOPICS[row["type"]].name, row["transaction_id"], to_message(row), {"source": source})
        self._produce(PUBLISHED.name, self._name, json.dumps({"batch": token.batch, "rows": token.rows}), {})
        self._producer.flush(ANSWER_SECONDS)
        kill_point("before a part of the outbox is committed")
        self._producer.commit_transaction(_TRANSACTION_SECONDS)
        kill_point("after a part of the outbox is committed")
        self.token = token

    def _produce(self, topic: str, key: str, value: str, headers: dict[str, str]) -> None:
        while True:
            try:
                self._producer.produce(topic, value.encode(), key.encode(), headers=dict(headers))
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(1)

    def _newest_token(self) -> Token:
        """The token of the last transaction that was committed. What the publisher before left open has ended by now."""
        consumer, found = Consumer({**_CONSUMER, "bootstrap.servers": self._bootstrap, "enable.partition.eof": True}), Token()
        try:
            partition = TopicPartition(PUBLISHED.name, 0)
            oldest, end = consumer.get_watermark_offsets(partition, ANSWER_SECONDS)
            consumer.assign([TopicPartition(PUBLISHED.name, 0, oldest)])
            waited = 0
            while True:  # to the very end: another table's publisher may hold a transaction open before our newest token
                message = consumer.poll(1)
                error = message.error() if message else None
                if message and not error and message.key() == self._name.encode():
                    found = Token(**json.loads(message.value() or b"{}"))
                if error and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                if message is None or error:
                    position = consumer.position([partition])[0].offset
                    if end <= max(position, oldest):
                        return found
                    waited += 1
                    if waited > 2 * _TRANSACTION_SECONDS:
                        raise LedgerError(f"{PUBLISHED.name}: found no end of a transaction of another publisher, expected one by now")
        finally:
            consumer.close()

    def _table(self) -> DeltaTable:
        return DeltaTable(str(LIVE_TRANSACTIONS.path(self._settings)))

    def _query(self, table: DeltaTable, sql: Template, first: int, last: int) -> list[dict[str, Any]]:
        return to_rows(control.query(table, sql.substitute(first=first, last=last), LIVE_TRANSACTIONS))

    def _refused(self, error: KafkaException) -> LedgerError:
        reason = error.args[0]
        if reason.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
            return LedgerError(
                f"another process publishes to {' and '.join(topic.name for topic in TOPICS.values())} now: stop one of them"
            )
        return LedgerError(f"Kafka at {self._bootstrap} does not take what is published ({reason.str()}): is the broker up?")


def to_message(row: Row) -> str:
    """The value of a row as the topic `transactions` has it: numbers with all digits, no float in between."""
    millis = (row["event_at"] - EPOCH) // MILLISECOND
    fields = {
        "transactionId": quoted(row["transaction_id"]),
        "accountId": quoted(row["account_id"]),
        "customerId": quoted(row["customer_id"]),
        "eventTime": str(millis),
        "eventTimeFormatted": quoted(format_time(millis)),
        "type": quoted(row["type"]),
        "operation": quoted_or_null(row["operation"] or ""),
        "amount": _money(row["amount"]),
        "balance": _money(row["balance"]),
    }
    return "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"


def _money(amount: Any) -> str:
    return NULL if amount is None else format(amount, "f")


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
