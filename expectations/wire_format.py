"""What a producer with a schema registry sends: five bytes that name a schema, then the record in Avro or JSON. Read as plain JSON, here.

The wire format: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop. Avro: https://avro.apache.org/docs/1.12.0/specification
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cached_property
from io import BytesIO
from json.encoder import encode_basestring
from typing import Any

import fastavro
from fastavro.read import LOGICAL_READERS
from fastavro.schema import SchemaParseException, UnknownType
from fastavro.types import Schema as AvroSchema

AVRO, JSON = "AVRO", "JSON"
MAGIC, HEADER_BYTES = b"\0", 5
LONGEST = 2**20  # bytes of a record in Avro that is read: its elements take much more in memory
_LONGEST_SCHEMA, _LONGEST_TEXT = 2**20, 2**24  # characters of a schema with those that it names, and of a record as JSON
_DEEPEST = 32
_MOST_DIGITS = 38
_DECIMAL = "exact-decimal"  # instead of `decimal`, which fastavro rounds to the precision that the schema states
_UNUSABLE = (TypeError, KeyError, AttributeError, RecursionError, json.JSONDecodeError, SchemaParseException, UnknownType)
_INNER = {"array": "items", "map": "values"}
_PRIMITIVES = ("boolean", "int", "long", "float", "double", "bytes", "string")


@dataclass(frozen=True)
class WireSchema:
    """A schema as its registry knows it, by an id that it never gives to another one. `references` are the schemas that it names."""

    id: int
    kind: str
    text: str
    references: tuple[str, ...] = ()

    @cached_property
    def avro(self) -> tuple[AvroSchema, dict[str, Any]]:
        """The schema of Avro, ready to be read by, and all types with a name by their full names."""
        named: dict[str, Any] = {}
        for text in self.references:
            fastavro.parse_schema(_exact(json.loads(text)), named_schemas=named)
        return fastavro.parse_schema(_exact(json.loads(self.text)), named_schemas=named), named


def schema_id(value: bytes | None) -> int | None:
    """The id that stands before a record; None where the value has no such header."""
    if value is None or value[:1] != MAGIC or len(value) <= HEADER_BYTES:
        return None
    return int.from_bytes(value[1:HEADER_BYTES], "big")


def check(schema: WireSchema) -> None:
    """Raise ValueError for a schema by which no value is read: one of another kind, that cannot be parsed, or that has no bound.

    Every value of Avro takes a byte at least, and no type is within itself: else few bytes could stand for any number of values.
    """
    if schema.kind not in (AVRO, JSON):
        raise ValueError(f"found kind {schema.kind}, expected {AVRO} or {JSON}")
    texts = (schema.text, *schema.references)
    if (size := sum(map(len, texts))) > _LONGEST_SCHEMA:
        raise ValueError(f"found {size:,} characters, expected at most {_LONGEST_SCHEMA:,}")
    for text in texts:
        text.encode()  # raises UnicodeEncodeError, which is a ValueError, for a half of a character
    if schema.kind == JSON:
        return
    try:
        top, named = schema.avro
        depth = _depth(top, named, {})
    except _UNUSABLE as error:
        raise ValueError(f"found {type(error).__name__}, expected a schema of Avro") from None
    if not isinstance(top, dict) or top.get("type") != "record":
        raise ValueError("found no record at the top, expected one")
    if depth > _DEEPEST:
        raise ValueError(f"found {depth} types within one another, expected at most {_DEEPEST}")


def decode(value: bytes | None, schemas: Mapping[int, WireSchema]) -> bytes | None:
    """A value as JSON, where one of these schemas is named before it; any other value, and one that its schema does not fit, as it is.

    A number of Avro becomes one in JSON by its shortest text (a double 98.9 is 98.9; a float of 32 bits may get more decimals). A
    decimal has its digits, a date is `yyyy-MM-dd`, any other time the whole number that it is. Bytes become an object, which no rule
    takes for a text. A record of more than LONGEST bytes does not fit.
    """
    schema = schemas.get(found) if (found := schema_id(value)) is not None else None
    if value is None or schema is None:
        return value
    if schema.kind == JSON:
        return value[HEADER_BYTES:]
    if len(value) > LONGEST:
        return value
    rest = BytesIO(value[HEADER_BYTES:])
    try:
        text = _json(fastavro.schemaless_reader(rest, schema.avro[0], None))
        return value if rest.read(1) else text.encode()
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 whatever bytes and a schema make the reader raise: the record is not one of this schema
        return value


def decode_each(values: Iterable[bytes | None], schemas: Iterable[WireSchema]) -> list[bytes | None]:
    """`decode` for each value."""
    by_id = {schema.id: schema for schema in schemas}
    return [decode(value, by_id) for value in values]


def _exact_decimal(data: bytes, schema: dict[Any, Any] | None, _: Any = None) -> Decimal:
    """A decimal with its digits, whatever precision is stated. Raises ValueError for one with too many, as JSON's numbers have a limit."""
    if len(data) > _MOST_DIGITS:
        raise ValueError(f"found {len(data)} bytes of a decimal, expected at most {_MOST_DIGITS}")
    number = int.from_bytes(data, "big", signed=True)
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -int((schema or {}).get("scale", 0))))


LOGICAL_READERS |= {f"bytes-{_DECIMAL}": _exact_decimal, f"fixed-{_DECIMAL}": _exact_decimal}


def _json(value: Any) -> str:
    return _TEXTS[type(value)](value)


def _object(value: dict[Any, Any]) -> str:
    return f"{{{_joined(f'{encode_basestring(name)}: {_json(each)}' for name, each in value.items())}}}"


def _joined(texts: Iterable[str]) -> str:
    parts, size = list[str](), 0
    for text in texts:
        parts.append(text)
        if (size := size + len(text)) > _LONGEST_TEXT:
            raise ValueError(f"found more than {_LONGEST_TEXT:,} characters of JSON")
    return ", ".join(parts)


_TEXTS: dict[type, Callable[[Any], str]] = {
    str: encode_basestring,
    int: repr,
    float: repr,  # nan and inf are no JSON, and stay none
    bool: lambda value: "true" if value else "false",
    type(None): lambda _: "null",
    Decimal: lambda value: format(value, "f"),
    date: lambda value: f'"{value.isoformat()}"',
    bytes: lambda value: f'{{"bytes": "{value.hex()}"}}',
    list: lambda value: f"[{_joined(map(_json, value))}]",
    dict: _object,
}


def _exact(schema: Any) -> Any:
    """The schema with decimals that are read exactly, and without the logical types that are read as the numbers or texts they are."""
    if isinstance(schema, list):
        return [_exact(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _exact(each) for name, each in schema.items() if name != "logicalType"}
    logical = schema.get("logicalType")
    if logical == "decimal" and schema.get("type") in ("bytes", "fixed"):
        if not isinstance(scale := schema.get("scale", 0), int) or not 0 <= scale <= _MOST_DIGITS:
            raise ValueError(f"found scale {scale!r}, expected a whole number from 0 to {_MOST_DIGITS}")
        return found | {"logicalType": _DECIMAL}
    return found | ({"logicalType": "date"} if logical == "date" and schema.get("type") == "int" else {})


def _depth(schema: Any, named: Mapping[str, Any], known: dict[str, int], within: tuple[str, ...] = ()) -> int:
    """How many types lie within one another. Raises ValueError for one within itself, or that may take no byte (null, but in a union)."""
    if isinstance(schema, str) and schema in named:
        if schema in within:
            raise ValueError(f"found type {schema[:100]} within itself, expected none")
        if schema not in known:
            known[schema] = _depth(named[schema], named, known, (*within, schema))
        return known[schema]
    if isinstance(schema, list):
        inner = [each for each in schema if each != "null"]
    elif isinstance(schema, dict) and schema["type"] == "record" and schema["fields"]:
        within = (*within, schema["name"])
        inner = [field["type"] for field in schema["fields"]]
    elif isinstance(schema, dict) and schema["type"] in _INNER:
        inner = [schema[_INNER[schema["type"]]]]
    else:
        kind = schema["type"] if isinstance(schema, dict) else schema
        if not (kind in _PRIMITIVES or kind == "enum" or (kind == "fixed" and schema["size"] > 0)):
            raise ValueError(f"found a value of type {str(kind)[:100]}, expected one that takes a byte")
        inner = []
    return 1 + max((_depth(each, named, known, within) for each in inner), default=0)
