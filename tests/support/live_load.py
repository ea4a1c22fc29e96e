"""A load for the live queries: batches of bronze, written one after another, a ledger of all that was written, and a reader of topics."""

import json
import random
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, TopicPartition
from deltalake import CommitProperties, write_deltalake

from spark_jobs.kafka.topics import KafkaTopic
from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.settings import Settings
from tests.support.live_reference import DAY, HOUR, MINUTE, Called, Paid
from tests.support.rows import message

BEGIN = 1_704_067_200_000  # 2024-01-01
STEP = 30 * MINUTE  # of event time, for each batch
CUSTOMERS, ACCOUNTS = 500, 400
NAMES = ("Ann Mary Smith", "Zed Lee", "Tom", "Eve van Dyk")
PARTITIONS = 5
Sent = tuple[bytes | None, bytes | None, int, int, datetime]  # key, value, partition, offset, when Kafka took it


class Load:
    """Batch after batch of transactions and customers, the same for a seed.

    Of the customers most are there from the beginning, some come shortly after their first transaction, some too late, some never. Of the
    transactions some are late, twice there, or break a rule.
    """

    def __init__(self, settings: Settings, seed: int, rows_a_batch: int) -> None:
        self.paid = list[Paid]()
        self.called = list[Called]()
        self.batch = 0
        self._settings, self._rows, self._chance = settings, rows_a_batch, random.Random(seed)
        self._ends, self._customer_batch = [0] * PARTITIONS, 0
        self._weights = [1 / (1 + number) for number in range(CUSTOMERS)]
        self._account_weights = [1 / (1 + number) for number in range(ACCOUNTS)]
        self._coming: dict[int, list[str]] = {}
        self._seen, self._repeated, self._amended = set[str](), set[str](), set[str]()
        self._planned = {
            self._customer(number): self._chance.choices(("first", "in time", "late", "never"), (12, 4, 2, 2))[0]
            for number in range(CUSTOMERS)
        }
        first = [name for name, kind in self._planned.items() if kind == "first"]
        self._call([(name, BEGIN - self._chance.randint(1, 4000) * DAY, self._chance.choice(NAMES), "Springfield") for name in first])

    def write(self) -> None:
        """One more batch of transactions, after the versions of customers that come now."""
        start = BEGIN + self.batch * STEP
        self._call([*self._new(start), *self._changed(start)])
        self.batch += 1
        rows = list[Paid]()
        partitions: list[list[dict[str, Any]]] = [[] for _ in range(PARTITIONS)]
        for place in range(self._rows):
            fields = self._transaction(start, place)
            for each in [fields] * (2 if self._chance.random() < 0.02 else 1):
                partitions[self._chance.randrange(PARTITIONS)].append(each)
        for partition, held in enumerate(partitions):
            for each in held:
                rows.append(Paid(self.batch, partition, self._ends[partition], **each))
                self._ends[partition] += 1
        for row in rows:
            if row.is_valid and self._planned[row.customer] in ("in time", "late") and row.customer not in self._seen:
                self._seen.add(row.customer)
                soon = 1 if self._planned[row.customer] == "in time" else 6
                self._coming.setdefault(self.batch + soon, []).append(row.customer)
        now = datetime.now(UTC)
        sent = [(*_transaction_message(row), row.partition, row.offset, now) for row in rows]
        self._append(tables.BRONZE_TRANSACTIONS, self.batch, sent)
        self.paid += rows

    def _transaction(self, start: int, place: int) -> dict[str, Any]:
        chance = self._chance
        at = start + chance.randrange(STEP)
        if chance.random() < 0.02:
            at = start - chance.randrange(3 * HOUR)  # most are late, the first batch has none before it
        elif chance.random() < 0.02:
            at = start - chance.randrange(12_000)  # at the edge of the allowed lateness
        return {
            "at": at,
            "name": f"T{self.batch}-{place}",
            "account": f"A{chance.choices(range(ACCOUNTS), self._account_weights)[0]:08}",
            "customer": self._customer(chance.choices(range(CUSTOMERS), self._weights)[0]),
            "kind": chance.choice(("Credit", "Debit")),
            "amount": Decimal(round(100 * min(60_000.0, chance.lognormvariate(5, 2)))) / 100,
            "is_valid": chance.random() > 0.01,
        }

    def _new(self, start: int) -> list[tuple[str, int, str | None, str | None]]:
        names = self._coming.pop(self.batch + 1, [])
        return [(name, start - self._chance.randint(1, 1000) * DAY, self._chance.choice(NAMES), "Albany") for name in names]

    def _changed(self, start: int) -> list[tuple[str, int, str | None, str | None]]:
        """Some customers move, are called otherwise, say the same again, are deleted; now, soon, or as of a time that is over."""
        known = {version.customer: version for version in self.called}
        changed = list[tuple[str, int, str | None, str | None]]()
        for name in self._chance.sample(sorted(known), 3):
            before, at = known[name], start + self._chance.randrange(2 * STEP)
            kind = self._chance.random()
            if kind < 0.1:
                changed.append((name, at, None, None))
            elif kind < 0.2 and name not in self._amended:
                self._repeated.add(name)
                changed.append((name, at, before.name, before.city))
            elif kind < 0.4 and name not in self._repeated:
                self._amended.add(name)
                changed.append((name, at - 3 * HOUR, self._chance.choice(NAMES), f"Past {self.batch}"))
            else:
                changed.append((name, at, self._chance.choice(NAMES), f"City {self.batch}"))
        return changed

    def _call(self, versions: list[tuple[str, int, str | None, str | None]]) -> None:
        if not versions:
            return
        self._customer_batch += 1
        rows = list[Sent]()
        for name, at, full_name, city in versions:
            _, value = message("customers", customerId=name, fullName=full_name, city=city, updateTime=at)
            taken = datetime.fromtimestamp(at / 1000, UTC) if full_name is None else datetime.now(UTC)
            rows.append((name.encode(), None if full_name is None else value, 0, len(self.called), taken))
            self.called.append(Called(name, at, full_name, city, self.batch))
        self._append(tables.BRONZE_CUSTOMERS, self._customer_batch, rows)

    def _append(self, table: Table, batch: int, records: list[Sent]) -> None:
        now = datetime.now(UTC)
        rows = [
            {"key": key, "value": value, "_topic": table.topic, "_partition": partition, "_offset": offset, "_timestamp": taken}
            | {"_batch": batch, "_ingested_at": now, "_ingested_on": now.date()}
            for key, value, partition, offset, taken in records
        ]
        properties = CommitProperties(custom_metadata={"userMetadata": json.dumps({"batch": batch})})
        arrow = pa.Table.from_pylist(rows, pa.schema(table.delta_schema().to_arrow()))
        write_deltalake(str(table.path(self._settings)), arrow, mode="append", commit_properties=properties)

    def _customer(self, number: int) -> str:
        return f"C{number:08}"


def _transaction_message(row: Paid) -> tuple[bytes | None, bytes | None]:
    fields = {
        "transactionId": row.name,
        "accountId": row.account,
        "customerId": row.customer,
        "eventTime": row.at,
        "amount": float(row.amount),
    }
    return message("transactions", **fields, type=row.kind if row.is_valid else "Transfer")


def read(bootstrap: str, topic: KafkaTopic) -> list[tuple[int, dict[str, Any], list[str]]]:
    """Every committed message: partition, fields, and the parts of its source, in order within a partition."""
    config = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer, found, ended = Consumer(config), list[tuple[int, dict[str, Any], list[str]]](), set[int]()
    consumer.assign([TopicPartition(topic.name, number, 0) for number in range(topic.partitions)])
    deadline = time.monotonic() + 300
    while len(ended) < topic.partitions:
        assert time.monotonic() < deadline, "no end within five minutes"
        message = consumer.poll(1)
        if message is None:
            continue
        if error := message.error():
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(int(message.partition() or 0))
            continue
        source = dict(message.headers() or []).get("source", b"")
        assert isinstance(source, bytes)
        found.append((int(message.partition() or 0), json.loads(message.value() or b"", parse_float=Decimal), source.decode().split("/")))
    consumer.close()
    return found
