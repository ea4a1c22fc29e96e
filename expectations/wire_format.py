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
from fastavro.types import Schema as AvroSchema

AVRO, JSON = "AVRO", "JSON"
MAGIC, HEADER_BYTES = b"\0", 5
_KEPT = ("decimal", "date")  # logical types that are read as what they mean: other times stay the whole numbers that they are


@dataclass(frozen=True)
class WireSchema:
    """A schema as its registry knows it, by an id that it never gives to another one. `references` are the schemas that it names."""

    id: int
    kind: str
    text: str
    references: tuple[str, ...] = ()

    @cached_property
    def avro(self) -> AvroSchema:
        """The schema, ready to be read by."""
        named: dict[str, Any] = {}
        for text in self.references:
            fastavro.parse_schema(_plain_types(json.loads(text)), named_schemas=named)
        return fastavro.parse_schema(_plain_types(json.loads(self.text)), named_schemas=named, expand=False)


def schema_id(value: bytes | None) -> int | None:
    """The id that stands before a record; None where the value has no such header."""
    if value is None or value[:1] != MAGIC or len(value) <= HEADER_BYTES:
        return None
    return int.from_bytes(value[1:HEADER_BYTES], "big")


def check(schema: WireSchema) -> None:
    """Raise ValueError for a schema by which no value is read: one of another kind, that cannot be parsed, or that has no bound.

    A type within itself can be nested without end, and an array of elements without a byte can have any number of them.
    """
    if schema.kind not in (AVRO, JSON):
        raise ValueError(f"found kind {schema.kind}, expected {AVRO} or {JSON}")
    if schema.kind == JSON:
        return
    try:
        parsed = [json.loads(text) for text in (*schema.references, schema.text)]
        top = schema.avro
    except (ValueError, TypeError, KeyError, RecursionError, fastavro.schema.SchemaParseException) as error:
        raise ValueError(f"found {type(error).__name__}: {error}, expected a schema of Avro") from None
    if not isinstance(top, dict) or top.get("type") != "record":
        raise ValueError("found no record at the top, expected one")
    named: dict[str, Any] = {}
    for each in parsed:
        _collect(each, "", named)
    _least_bytes(parsed[-1], "", named, ())


def decode(value: bytes | None, schemas: Mapping[int, WireSchema]) -> bytes | None:
    """A value as JSON, where one of these schemas is named before it; any other value, and one that its schema does not fit, as it is.

    A number of Avro becomes one in JSON by its shortest text (a double 98.9 is 98.9; a float of 32 bits may get more decimals). A
    decimal has its digits, a date is `yyyy-MM-dd`, any other time the whole number that it is. Bytes become an object, which no rule
    takes for a text.
    """
    schema = schemas.get(found) if (found := schema_id(value)) is not None else None
    if value is None or schema is None:
        return value
    if schema.kind == JSON:
        return value[HEADER_BYTES:]
    rest = BytesIO(value[HEADER_BYTES:])
    try:
        text = _json(fastavro.schemaless_reader(rest, schema.avro, None))
        return value if rest.read(1) else text.encode()
    except Exception:  # noqa: BLE001 whatever bytes and a schema make the reader raise: the record is not one of this schema
        return value


def decode_each(values: Iterable[bytes | None], schemas: Iterable[WireSchema]) -> list[bytes | None]:
    """`decode` for each value."""
    by_id = {schema.id: schema for schema in schemas}
    return [decode(value, by_id) for value in values]


def _json(value: Any) -> str:
    return _TEXTS[type(value)](value)


def _object(value: dict[Any, Any]) -> str:
    return f"{{{', '.join([f'{encode_basestring(name)}: {_json(each)}' for name, each in value.items()])}}}"


_TEXTS: dict[type, Callable[[Any], str]] = {
    str: encode_basestring,
    int: repr,
    float: repr,  # nan and inf are no JSON, and stay none
    bool: lambda value: "true" if value else "false",
    type(None): lambda _: "null",
    Decimal: lambda value: format(value, "f"),
    date: lambda value: f'"{value.isoformat()}"',
    bytes: lambda value: f'{{"bytes": "{value.hex()}"}}',
    list: lambda value: f"[{', '.join(map(_json, value))}]",
    dict: _object,
}


def _plain_types(schema: Any) -> Any:
    """The schema without the logical types that are read as the numbers and texts that they are written as."""
    if isinstance(schema, list):
        return [_plain_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _plain_types(each) for name, each in schema.items() if name != "logicalType" or each in _KEPT}


def _collect(schema: Any, space: str, named: dict[str, Any]) -> None:
    """Put the types that a schema names into `named`, with the namespace that holds within them."""
    if isinstance(schema, list):
        for each in schema:
            _collect(each, space, named)
    elif isinstance(schema, dict):
        if "name" in schema:
            full = _full(schema["name"], schema.get("namespace", space))
            space = full.rpartition(".")[0]
            named[full] = (schema, space)
        for each in (schema.get("type"), schema.get("items"), schema.get("values"), *(field["type"] for field in schema.get("fields", ()))):
            _collect(each, space, named)


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _least_bytes(schema: Any, space: str, named: dict[str, Any], within: tuple[str, ...]) -> int:
    """How many bytes a value takes at least. Raises ValueError for a type within itself, and for elements that may take none."""
    if isinstance(schema, list):
        return 1 + min((_least_bytes(each, space, named, within) for each in schema), default=0)
    if isinstance(schema, str):
        full = schema if schema in named else _full(schema, space)
        if full not in named:
            return {"null": 0, "float": 4, "double": 8}.get(schema, 1)
        if full in within:
            raise ValueError(f"found type {full} within itself, expected none")
        schema, space = named[full]
        within = (*within, full)
    kind = schema["type"]
    if kind == "record":
        full = _full(schema["name"], schema.get("namespace", space))
        within = within if full in within else (*within, full)
        return sum(_least_bytes(field["type"], full.rpartition(".")[0], named, within) for field in schema["fields"])
    if kind in ("array", "map"):
        if _least_bytes(schema["items" if kind == "array" else "values"], space, named, within) + (kind == "map") == 0:
            raise ValueError("found an array of elements that may take no byte, expected none")
        return 1
    if kind == "fixed":
        return int(schema["size"])
    return 1 if kind == "enum" else _least_bytes(kind, space, named, within)
