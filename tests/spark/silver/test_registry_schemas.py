"""Records behind the header of a schema registry: in quarantine until a registry is set, then read by its schemas, and audited as both.

The registry is a real one, and Confluent's serializer writes the records.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession

from include.quality_page import quarantine as quarantine_page
from include.quality_page.quarantine import Filter
from include.quality_page.reading import Warehouse
from spark_jobs import control, run
from spark_jobs.control import rule_sets
from spark_jobs.control.backfills import Backfill
from spark_jobs.lake import tables
from spark_jobs.reprocessing import backfill, dry_run, erasure, redrive, redrive_plan
from spark_jobs.reprocessing.backfill import Request
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support import lake
from tests.support.frames import at
from tests.support.rows import CUSTOMER, TRANSACTION, Record, message
from tests.support.schema_registry import running_registry

pytestmark = pytest.mark.spark

MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}
EVENT_AT = at("2013-01-01 08:23:33.001")
KINDS: dict[str, Any] = dict.fromkeys(TRANSACTION, "string") | {"eventTime": {"type": "long", "logicalType": "timestamp-millis"}}
KINDS |= {"amount": "double", "balance": MONEY}
OF_CUSTOMER = {name: ["null", "long" if name == "updateTime" else "string"] for name in CUSTOMER}
NOTE = "x" * 24  # the byte of its length is the digit 0, which then stands behind the customer's id
Values = dict[str, Any]


def avro(name: str, fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields.items()]})


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_registry(tmp_path_factory.mktemp("registry")) as url:
        yield url


@pytest.fixture
def job(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """A command in this session; returns its exit code."""

    def command(settings: Settings, *words: str) -> int:
        monkeypatch.setattr(run, "read_settings", lambda: settings)
        monkeypatch.setattr("spark_jobs.runtime.session.start_session", lambda *_, **__: spark)
        return run.main(["--run-id", "run", *words])

    return command


class Producer:
    """Writes records as a producer with Confluent's serializer of Avro does."""

    def __init__(self, url: str, name: str, fields: dict[str, Any]) -> None:
        self._write = AvroSerializer(SchemaRegistryClient({"url": url}), avro(name, fields))

    def transaction(self, number: int, **changes: Any) -> Record:
        values = TRANSACTION | {"transactionId": f"T{number}", "balance": Decimal("-12.30")} | changes
        return f"T{number}".encode(), self.value("transactions", values)

    def value(self, topic: str, values: Values) -> bytes:
        return bytes(self._write(values, SerializationContext(topic, MessageField.VALUE)))


def quarantine(settings: Settings, table: tables.Table = tables.TRANSACTIONS_QUARANTINE) -> Counter[str]:
    return Counter(rule for row in lake.rows_of(settings, table) for rule in row["broken_rules"])


def ids(settings: Settings) -> set[str]:
    return {row["transaction_id"] for row in lake.rows_of(settings, tables.SILVER_TRANSACTIONS)}


def versions(settings: Settings) -> list[str]:
    return [row["rules_version"] for row in control.batches(settings, "silver", "silver.transactions")]


def test_records_of_a_registry_come_to_silver_and_the_audit_agrees(
    spark: SparkSession, tmp_path: Path, registry: str, job: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    plain = read_settings({"LEDGER_HOME": str(tmp_path / "home")})
    settings = read_settings({"LEDGER_HOME": str(tmp_path / "home"), "LEDGER_SCHEMA_REGISTRY_URL": registry})
    producer = Producer(registry, "Transaction", KINDS)
    good, negative = producer.transaction(2), producer.transaction(3, amount=-1.0)
    assert good[1]
    cut, unknown = (b"T4", good[1][:-3]), (b"T5", b"\0\0\0\x03\xe7" + good[1][5:])
    lake.arrive(plain, "transactions", 1, [message("transactions"), good, negative, cut, unknown])
    of_customers = Producer(registry, "Customer", OF_CUSTOMER)
    lake.arrive(plain, "customers", 1, [message("customers"), (b"C00000001", of_customers.value("customers", CUSTOMER | {"city": "x"}))])
    lake.run_silver(spark, plain)
    assert (ids(plain), quarantine(plain), versions(plain)) == ({"T1"}, Counter(parseable=4), ["2"])

    # From here on a registry is set: new records are read, those in quarantine remain there.
    client = SchemaRegistryClient({"url": registry})
    in_json = client.register_schema("json", Schema('{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}', "JSON"))
    key, text = message("transactions", transactionId="T7")
    moved = of_customers.value("customers", CUSTOMER | {"city": "Hory", "updateTime": CUSTOMER["updateTime"] + 1})
    lake.arrive(settings, "transactions", 2, [producer.transaction(6), (key, b"\0" + in_json.to_bytes(4, "big") + (text or b""))])
    lake.arrive(settings, "customers", 2, [(b"C00000001", moved)])
    lake.run_silver(spark, settings)
    assert (ids(settings), quarantine(settings), versions(settings)) == ({"T1", "T6", "T7"}, Counter(parseable=4), ["2", "2+2"])
    row = next(row for row in lake.rows_of(settings, tables.SILVER_TRANSACTIONS) if row["transaction_id"] == "T6")
    assert (row["event_at"], row["amount"], row["balance"]) == (EVENT_AT, Decimal("900.50"), Decimal("-12.30"))
    assert {row["city"] for row in lake.rows_of(settings, tables.SILVER_CUSTOMERS)} == {"c", "Hory"}

    # Those of customers remain in quarantine to the end, so the audit finds records of one schema judged with and without it.
    redrive.run(spark, settings, redrive_plan.plan(settings, "parseable", "silver.transactions", None, ()), "redrive")
    assert (ids(settings), quarantine(settings)) == ({"T1", "T2", "T6", "T7"}, Counter(parseable=2, amount_not_negative=1))
    assert [row["detail"] for row in lake.rows_of(settings, tables.TRANSACTIONS_QUARANTINE) if "-1" in row["detail"]] == [
        "amount_not_negative: found number -1"
    ]

    # A schema that is on record is not asked for again, and a backfill would read by all of them.
    lake.arrive(plain, "transactions", 3, [producer.transaction(8), producer.transaction(2, amount=7.0)])
    lake.run_silver(spark, plain)
    assert (ids(plain), versions(plain)) == ({"T1", "T2", "T6", "T7", "T8"}, ["2", "2+2", "2+2"])
    tables.ensure_tables(plain, tables.GOLD)
    dry_run.run(plain, Request(at("2013-01-01"), at("2013-01-02"), ("silver.transactions",)), lambda: spark)
    out = capsys.readouterr().out
    assert "bronze.transactions: 7 rows to judge, on 1 days" in out  # all but those that nobody can read
    assert re.search(r"silver.transactions: 5 rows in .*, 0 rows would change", out)
    assert job(plain, "audit") == 0
    assert quarantine(plain, tables.CUSTOMERS_QUARANTINE) == Counter(parseable=1)


def test_a_registry_that_is_away_stops_only_what_needs_it(
    spark: SparkSession, tmp_path: Path, registry: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Records of a known schema go on; for one of a new schema nothing is taken, and nothing is lost when the registry answers."""
    home = {"LEDGER_HOME": str(tmp_path / "home")}
    settings = read_settings(home | {"LEDGER_SCHEMA_REGISTRY_URL": registry})
    away = read_settings(home | {"LEDGER_SCHEMA_REGISTRY_URL": "http://127.0.0.1:9/"})
    producer, other = (
        Producer(registry, "Transaction", KINDS),
        Producer(registry, "Transaction", {"customerId": "string", "note": "string"} | KINDS),
    )
    lake.arrive(settings, "transactions", 1, [producer.transaction(1)])
    lake.run_silver(spark, settings)
    lake.arrive(settings, "transactions", 2, [producer.transaction(2)])
    lake.run_silver(spark, away)
    assert ids(settings) == {"T1", "T2"}
    lake.arrive(settings, "transactions", 3, [other.transaction(3, note=NOTE), message("transactions", transactionId="T4")])
    with pytest.raises(LedgerError, match=r"schema registry http://127.0.0.1:9/: found .*, expected schema \d+, which new records name"):
        lake.run_silver(spark, away)
    assert (ids(settings), quarantine(settings)) == ({"T1", "T2"}, Counter())
    lake.run_silver(spark, settings)
    assert (ids(settings), quarantine(settings)) == ({"T1", "T2", "T3", "T4"}, Counter())
    assert [schema.kind for schema in rule_sets.schemas(settings, "transactions")] == ["AVRO", "AVRO"]

    # Nobody can make it ask without end, and a schema of another kind is told.
    protobuf = SchemaRegistryClient({"url": registry}).register_schema(
        "proto", Schema('syntax = "proto3"; message T { string a = 1; }', "PROTOBUF")
    )
    named = [protobuf, *range(5_000_000, 5_000_200)]
    body = (other.transaction(4, note=NOTE)[1] or b"")[5:]
    lake.arrive(settings, "transactions", 4, [(b"T", b"\0" + number.to_bytes(4, "big") + body) for number in named])
    lake.run_silver(spark, settings)
    assert quarantine(settings) == Counter(parseable=201)
    (told,) = [line for line in caplog.messages if "the registry knows no schema" in line]
    assert len(told) < 300
    assert f"transactions: schema {protobuf}: found kind PROTOBUF, expected AVRO or JSON: its records go to quarantine" in caplog.messages
    assert "transactions: found 201 new schemas, of which the first 100 were asked for" in caplog.messages

    # Whoever is erased is found in all of them, whether they can be read or not; and the page shows what a record says.
    plan = erasure.make_plan(spark, settings, "e", "C00000001", "who", "why")
    assert len(plan.places["transactions"]) == 4 + len(named)
    assert {"T1", "T2", "T3", "T4"} >= set(plan.ids)

    # A backfill that began before a schema was known ends before a step: silver may have judged rows of its range by it.
    begun = Backfill("b", at("2013-01-01"), at("2013-01-02"), tables.REBUILT, dict.fromkeys(lake.BRONZE, "2"))
    work = backfill._Work(spark, settings, Request(begun.start, begun.end, begun.tables), begun, "run")
    with pytest.raises(LedgerError, match=r"a schema became known meanwhile: found rules '2\+2' of transactions, .*run it again"):
        work.take_turn([])


def test_the_page_shows_what_a_record_says(spark: SparkSession, tmp_path: Path, registry: str) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path / "home"), "LEDGER_SCHEMA_REGISTRY_URL": registry})
    producer = Producer(registry, "Transaction", KINDS)
    lake.arrive(settings, "transactions", 1, [producer.transaction(1, amount=1.5, type="Transfer"), (b"T2", b"\0\0\0\x03\xe7xy")])
    lake.run_silver(spark, settings)
    rows = quarantine_page.rows_of(Warehouse(settings), tables.TRANSACTIONS_QUARANTINE, Filter())
    assert [(dict(row.fields).get("amount"), [reason.rule for reason in row.reasons]) for row in rows] == [
        ("1.5", ["type_known"]),
        (None, ["parseable"]),
    ]
    assert rows[1].fields == (
        ("", "the header of a schema registry (schema 999) before 2 bytes that are not JSON, as of Avro or Protobuf"),
    )
