"""What Kafka holds of the three topics: records that come, stay and are never changed; and how each is judged."""

import json
import random
from dataclasses import dataclass, field
from typing import Any

from tests.support import oracle
from tests.support.redrive_cases import MINUTE, OLDER, START
from tests.support.rows import KEYS, MESSAGES, Record

Row = dict[str, Any]

TOPICS = ("transactions", "customers", "accounts")
MINUTES = 3000  # over which event times lie: three days
_PARTITIONS = 2


@dataclass
class Kafka:
    """The records of every topic in the order in which they came."""

    records: dict[str, list[Row]] = field(default_factory=lambda: {topic: [] for topic in TOPICS})

    def copied(self) -> "Kafka":
        """Another one with the same records."""
        return Kafka({topic: [*rows] for topic, rows in self.records.items()})

    def produce(self, topic: str, chance: random.Random) -> None:
        """A few more records of a topic: few ids, keys and times, so that they meet; some break a rule of both sets, some of one."""
        for _ in range({"transactions": 8, "customers": 4, "accounts": 2}[topic]):
            key, value = _MAKE[topic](chance)
            partition = len(self.records[topic]) % (_PARTITIONS if topic == "transactions" else 1)
            offset = sum(row["_partition"] == partition for row in self.records[topic])
            self.records[topic].append({"key": key, "value": value, "_topic": topic, "_partition": partition, "_offset": offset})


def _record(topic: str, fields: Row) -> Record:
    return str(fields[KEYS[topic]]).encode(), json.dumps(fields).encode()


def _transaction(chance: random.Random) -> Record:
    changes = {
        "transactionId": f"T{chance.randrange(30)}",
        "accountId": f"A0000000{chance.randrange(3)}",
        "customerId": f"C0000000{chance.randrange(3)}",
        "eventTime": START + chance.choice((chance.randrange(MINUTES), chance.randrange(60))) * MINUTE,
        "type": chance.choice(["Credit", "Credit", "Debit", "Debit", "Transfer"]),
        "amount": chance.choice([1, 2, 5000]),
        "balance": chance.randrange(1000),
    }
    return _record("transactions", MESSAGES["transactions"] | changes)


def _customer(chance: random.Random) -> Record:
    changes = {
        "customerId": f"C0000000{chance.randrange(3)}",
        "city": chance.choice("abc"),
        "zipcode": chance.choice(["1", "1", "0"]),
        "districtId": chance.choice(["1", "1", "1", "x"]),
        "updateTime": START + chance.randrange(6) * 30 * MINUTE,
    }
    return _record("customers", MESSAGES["customers"] | changes)


def _account(chance: random.Random) -> Record:
    changes = {
        "accountId": f"A0000000{chance.randrange(3)}",
        "districtId": chance.choice([1, 2, 3, "x"]),
        "updateTime": START + chance.randrange(6) * 30 * MINUTE,
    }
    return _record("accounts", MESSAGES["accounts"] | changes)


_MAKE = {"transactions": _transaction, "customers": _customer, "accounts": _account}


def broken_rules(topic: str, row: Row, version: str) -> list[str]:
    """The rules that a record breaks by the rule set `old` or `new`."""
    fields = json.loads(row["value"])
    found = {"transactions": ["type_known"] if fields.get("type") == "Transfer" else []}.get(
        topic, ["district_id_whole"] if fields.get("districtId") == "x" else []
    )
    of_older = {"transactions": fields.get("amount", 0) >= 1000, "customers": fields.get("zipcode") == "0"}.get(topic, False)
    return [*found, *([OLDER[topic][0]] if version == "old" and of_older else [])]


def event_minute(topic: str, row: Row) -> float:
    """The time of a record, in minutes after `START`."""
    fields = json.loads(row["value"])
    return float(fields["eventTime" if topic == "transactions" else "updateTime"] - START) / MINUTE


def marked(topic: str, row: Row, version: str) -> Row:
    """A record as the oracle takes it: one that breaks a rule carries a mark."""
    rules = broken_rules(topic, row, version)
    mark = [{"key": "ledger-injected", "value": f"malformed:{','.join(rules)}".encode()}] if rules else []
    return row | {"headers": mark}


def place(row: Row) -> tuple[str, int, int]:
    """Which Kafka record a row stands for."""
    return oracle.place(row)
