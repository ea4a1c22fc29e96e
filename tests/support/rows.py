"""Rows that these tests start from: bronze records of the three topics, and silver rows."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.lake import tables
from tests.support.frames import at, frame, to_json

TRANSACTION: dict[str, Any] = {
    "transactionId": "T1",
    "accountId": "A00000001",
    "customerId": "C00000001",
    "eventTime": 1357028613001,
    "eventTimeFormatted": "2013-01-01 08:23:33.001",
    "type": "Credit",
    "operation": "Credit in Cash",
    "amount": 900.5,
    "balance": -12.34,
}
CUSTOMER: dict[str, Any] = {
    "customerId": "C00000001",
    "sex": "Female",
    "social": "1-2-3",
    "fullName": "Zoë Smith",
    "phone": "p",
    "email": "e",
    "address1": "a1",
    "address2": None,
    "city": "c",
    "state": "NM",
    "zipcode": "4",
    "districtId": "18",
    "birthDate": "1990-12-13",
    "updateTime": 1356912000000,
}
ACCOUNT: dict[str, Any] = {
    "accountId": "A00000001",
    "districtId": 55,
    "frequency": "Monthly Issuance",
    "creationDate": "2013-01-01",
    "updateTime": 1356912000000,
}
MESSAGES = {"transactions": TRANSACTION, "customers": CUSTOMER, "accounts": ACCOUNT}
KEYS = {"transactions": "transactionId", "customers": "customerId", "accounts": "accountId"}
LOADED = "2026-01-01 00:00:00"
_RECORD = "key binary, value binary, _topic string, _partition int, _offset bigint, _timestamp timestamp, _batch bigint"

Record = tuple[bytes | None, bytes | None]


def message(topic: str, *without: str, **changes: Any) -> Record:
    """The key and value of a good message of a topic with some fields changed or left out."""
    fields = {name: value for name, value in {**MESSAGES[topic], **changes}.items() if name not in without}
    return str(MESSAGES[topic][KEYS[topic]]).encode(), to_json(**fields)


def written(topic: str, name: str, text: str) -> Record:
    """A good message of which one field is this JSON text."""
    key, value = message(topic, **{name: "@"})
    return key, (value or b"").replace(b'"@"', text.encode())


def bronze(spark: SparkSession, topic: str, records: Sequence[Record], *, loaded: str = LOADED) -> DataFrame:
    """Records of one batch in this order, all in partition 0."""
    rows = [(key, value, topic, 0, offset, loaded, 1) for offset, (key, value) in enumerate(records)]
    return frame(spark, _RECORD, rows)


def placed(spark: SparkSession, records: Sequence[tuple[bytes | None, bytes | None, str, int, int, str, int]]) -> DataFrame:
    """Records with their places: key, value, topic, partition, offset, Kafka time, batch."""
    return frame(spark, _RECORD, records)


def silver(spark: SparkSession, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    """silver.transactions rows: id, account, customer, event_at, type, amount, balance; the offset is the place in the list."""
    places = [
        (id_, account, customer, event_at, at(event_at).date(), kind, None, amount, balance, "transactions", 0, offset, 1)
        for offset, (id_, account, customer, event_at, kind, amount, balance) in enumerate(rows)
    ]
    return frame(spark, tables.SILVER_TRANSACTIONS.ddl, places)
