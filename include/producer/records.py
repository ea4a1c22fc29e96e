"""Rows on their way to Kafka, and their JSON.

A record keeps each field as its JSON text ('"T00000001"', '12.50', 'null'), so an amount is never anything but the
digits it was written with.
"""

from typing import NamedTuple

from spark_jobs.lake.topics import BY_TOPIC, EVENTS, VERSIONS

CUSTOMERS, ACCOUNTS, TRANSACTIONS = BANK = ("customers", "accounts", "transactions")  # what can be generated
TOPICS = tuple(topic.name for topic in (*VERSIONS, *EVENTS))  # in the order of sending

FIELDS = {name: topic.names for name, topic in BY_TOPIC.items()}
_TEMPLATES = {topic: "{" + ",".join(f'"{name}":%s' for name in names) + "}" for topic, names in FIELDS.items()}

FIRST_VERSION_MS = "1356912000000"  # 2012-12-31T00:00:00Z: before the first transaction of the bank's data


class Record(NamedTuple):
    """One good row: `values` are JSON texts in the order of FIELDS[topic]; `event_ms` is None where time has no meaning."""

    topic: str
    key: bytes
    values: tuple[str, ...]
    event_ms: int | None = None

    def text(self, name: str) -> str:
        """The JSON text of a field."""
        return self.values[FIELDS[self.topic].index(name)]

    def replaced(self, **texts: str) -> "Record":
        """The same record with other JSON texts in the named fields."""
        names = FIELDS[self.topic]
        return self._replace(values=tuple(texts.get(name, old) for name, old in zip(names, self.values, strict=True)))


class Message(NamedTuple):
    """What Kafka gets. `injected` is None for a plain row, else what was done: duplicate, malformed:RULE, late, ..."""

    topic: str
    key: bytes
    value: bytes | None
    injected: str | None = None


def encode(record: Record) -> bytes:
    """The record's JSON in UTF-8. Bytes that were no UTF-8 in the source file stay as they were."""
    return (_TEMPLATES[record.topic] % record.values).encode("utf-8", "surrogateescape")


def encode_without(record: Record, name: str) -> bytes:
    """The record's JSON without one of its fields."""
    pairs = zip(FIELDS[record.topic], record.values, strict=True)
    return ("{" + ",".join(f'"{field}":{text}' for field, text in pairs if field != name) + "}").encode("utf-8", "surrogateescape")


def cents(amount: int) -> str:
    """An amount in cents as a JSON number without trailing zeros: 1460 -> 14.6, -5 -> -0.05."""
    if amount < 0:
        return "-" + cents(-amount)
    whole, rest = divmod(amount, 100)
    if not rest:
        return str(whole)
    return f"{whole}.{rest:02d}" if rest % 10 else f"{whole}.{rest // 10}"
