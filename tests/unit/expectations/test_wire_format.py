"""Values behind the header of a schema registry: read as the JSON that they stand for, and left as they are where they stand for none."""

import json
from datetime import date
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest

from expectations.wire_format import WireSchema, check, decode, schema_id

MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
FIELDS = {
    "transactionId": "string",
    "eventTime": {"type": "long", "logicalType": "timestamp-millis"},
    "type": {"type": "enum", "name": "Type", "symbols": ["Credit", "Debit"]},
    "operation": ["null", "string"],
    "amount": "double",
    "balance": MONEY,
    "day": {"type": "int", "logicalType": "date"},
    "rate": "float",
    "isNew": "boolean",
    "raw": "bytes",
    "tags": {"type": "array", "items": "string"},
    "more": {"type": "map", "values": "long"},
}
RECORD = {"type": "record", "name": "Transaction", "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()]}
VALUES = {
    "transactionId": 'Ä"\n1',
    "eventTime": 1_357_028_613_001,
    "type": "Debit",
    "operation": None,
    "amount": 98.9,
    "balance": Decimal("-12.30"),
    "day": date(2013, 1, 2),
    "rate": 98.9,
    "isNew": True,
    "raw": b"\x00\xff",
    "tags": ["a"],
    "more": {"n": 1},
}
SCHEMA = WireSchema(7, "AVRO", json.dumps(RECORD))


def record(name: str, *kinds: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{n}", "type": kind} for n, kind in enumerate(kinds)], **more}


def written(schema: dict[str, Any] = RECORD, values: dict[str, Any] = VALUES, number: int = 7) -> bytes:
    """A value as Confluent's serializers write it."""
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), values)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def test_a_record_of_avro_is_read_as_json() -> None:
    text = decode(written(), {7: SCHEMA})
    assert text is not None
    assert b'"amount": 98.9, "balance": -12.30,' in text  # by value, with the digits that it has
    assert json.loads(text) == VALUES | {
        "balance": -12.3,
        "day": "2013-01-02",
        "rate": 98.9000015258789,  # what 32 bits hold: the rule of two decimals refuses it
        "raw": {"bytes": "00ff"},
    }


def test_a_number_that_is_none_is_no_json() -> None:
    schema = record("R", "double")
    for value in (float("nan"), float("inf")):
        text = decode(written(schema, {"f0": value}, 1), {1: WireSchema(1, "AVRO", json.dumps(schema))})
        assert text in (b'{"f0": nan}', b'{"f0": inf}')


def test_a_record_of_json_is_what_stands_behind_the_header() -> None:
    assert decode(b'\0\0\0\0\x08{"a": 1}', {8: WireSchema(8, "JSON", "{}")}) == b'{"a": 1}'


def test_a_value_that_is_no_record_of_a_known_schema_stays_as_it_is() -> None:
    good = written()
    others = (None, b"", b"\0", b"\0\0\0\0\7", good[:-1], good + b"x", good[:9], written(number=8), b'{"a": 1}', b"\xff" * 40)
    longest = b"\0\0\0\0\7" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" + b"x"  # a text of 2^62 characters
    for value in (*others, longest):
        assert decode(value, {7: SCHEMA}) == value
    assert [schema_id(value) for value in (good, b'{"a": 1}', b"\0\0\0\0\7", None)] == [7, None, None, None]


def test_names_of_other_schemas_are_found() -> None:
    address = record("Address", "string", namespace="bank")
    customer = record("Customer", "bank.Address", ["null", "Address"], namespace="bank")
    schema = WireSchema(9, "AVRO", json.dumps(customer), (json.dumps(address),))
    check(schema)
    out = BytesIO()
    fastavro.schemaless_writer(out, schema.avro[0], {"f0": {"f0": "Hory"}, "f1": None})
    assert decode(b"\0\0\0\0\x09" + out.getvalue(), {9: schema}) == b'{"f0": {"f0": "Hory"}, "f1": null}'


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        ("PROTOBUF", "message T {}", "found kind PROTOBUF"),
        ("AVRO", "not JSON", "expected a schema of Avro"),
        ("AVRO", "[" * 100_000, "expected a schema of Avro"),
        ("AVRO", '"string"', "found no record at the top"),
        ("AVRO", json.dumps(record("R", "Unknown")), "found UnknownType"),
        ("AVRO", json.dumps(record("R", {"type": "fixed", "name": "F", "size": "9"})), "found TypeError"),
        ("AVRO", json.dumps({"type": "int", "name": 5}), "expected"),
        ("AVRO", json.dumps(record("R", {"type": "int", "fields": 5}, {"type": "record", "name": "S"})), "expected"),
        ("AVRO", json.dumps(record("R")) + '"\ud800"', "surrogates not allowed"),
        ("AVRO", '"' + "x" * 2**20 + '"', "found 1,048,578 characters"),
        ("AVRO", json.dumps(record("R", "null")), "found a value of type null, expected one that takes a byte"),
        ("AVRO", json.dumps(record("R", record("S"))), "found a value of type record"),
        ("AVRO", json.dumps(record("R", {"type": "error", "name": "E", "fields": [{"name": "n", "type": ["null", "E"]}]})), "type error"),
        ("AVRO", json.dumps(record("R", {"type": "array", "items": {"type": "error", "name": "E", "fields": []}})), "type error"),
        ("AVRO", json.dumps(record("R", MONEY | {"scale": 900_000})), "found scale 900000"),
        ("AVRO", json.dumps(record("R", ["null", "R"])), "found type R within itself"),
        (
            "AVRO",
            json.dumps(record("R", {"type": "array", "items": record("S", ["null", "x.R"], namespace="x")}, namespace="x")),
            "within itself",
        ),
        ("AVRO", json.dumps(record("R", {"type": "array", "items": "null"})), "takes a byte"),
        ("AVRO", json.dumps(record("R", {"type": "array", "items": record("S")})), "takes a byte"),
        ("AVRO", json.dumps(record("R", {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}})), "takes a byte"),
    ],
)
def test_a_schema_by_which_nothing_can_be_read_safely_is_refused(kind: str, text: str, found: str) -> None:
    """A value of a few bytes must not fill the memory, nor a deep one end the process."""
    with pytest.raises(ValueError, match=found):
        check(WireSchema(1, kind, text))


def test_ordinary_schemas_are_accepted() -> None:
    check(SCHEMA)
    check(WireSchema(1, "JSON", "{}"))
    check(WireSchema(1, "AVRO", json.dumps(record("R", record("S", "string"), "S", {"type": "map", "values": ["null", "int"]}))))


def test_a_decimal_keeps_its_digits_whatever_precision_is_stated() -> None:
    """Who writes in another language may not check it; a reader must not round money."""
    schema = WireSchema(1, "AVRO", json.dumps(record("R", MONEY)))
    check(schema)
    for number, text in ((123_456, "1234.56"), (-1, "-0.01"), (0, "0.00"), (10**38 - 1, f"{10**36 - 1}.99")):
        data = number.to_bytes(17, "big", signed=True)
        assert decode(b"\0\0\0\0\1" + bytes([2 * len(data)]) + data, {1: schema}) == f'{{"f0": {text}}}'.encode()
    long = b"\0\0\0\0\1\x80\x0e" + b"\x7f" * 896  # as text it would take a time that grows with the square of its size
    assert decode(long, {1: schema}) == long


def test_few_bytes_do_not_become_a_long_text() -> None:
    kind = {"type": "array", "items": {"type": "enum", "name": "E", "symbols": ["x" * 100_000]}}
    schema = WireSchema(1, "AVRO", json.dumps(record("R", kind)))
    check(schema)
    value = b"\0\0\0\0\1\xd0\x0f" + b"\0" * 1000 + b"\0"  # a thousand elements, and the end
    assert decode(value, {1: schema}) == value
    assert decode(b"\0\0\0\0\7" + b"x" * 2**20, {7: SCHEMA}) == b"\0\0\0\0\7" + b"x" * 2**20


def test_types_that_double_are_checked_at_once() -> None:
    schema: Any = record("R0", "int")
    for number in range(1, 30):
        schema = record(f"R{number}", schema, f"R{number - 1}")
    check(WireSchema(1, "AVRO", json.dumps(schema)))
    for number in range(30, 40):
        schema = record(f"R{number}", schema)
    with pytest.raises(ValueError, match="found 41 types within one another"):
        check(WireSchema(1, "AVRO", json.dumps(schema)))
