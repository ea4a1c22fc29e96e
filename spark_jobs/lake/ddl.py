"""Columns as `name type` pairs in Spark's DDL words, read without Spark."""

import re
from typing import Any

_PRIMITIVES = {"bigint": "long", "int": "integer"}


def parse_columns(ddl: str) -> list[tuple[str, str, bool]]:
    """(name, type, nullable) of each column of a comma-separated list; commas within brackets do not separate."""
    columns = []
    for part in re.split(r",(?![^<(]*[>)])\s*", " ".join(ddl.split())):
        column = re.fullmatch(r"(\w+)[ :](\S+)( not null)?", part.strip())
        if column is None:
            raise ValueError(f"found {part!r}, expected a column as `name type`")
        columns.append((column[1], column[2], column[3] is None))
    return columns


def delta_struct(ddl: str) -> dict[str, Any]:
    """The same columns as a schema in Delta's words."""
    fields = [{"name": name, "type": _type(kind), "nullable": nullable, "metadata": {}} for name, kind, nullable in parse_columns(ddl)]
    return {"type": "struct", "fields": fields}


def _type(kind: str) -> Any:
    if inner := re.fullmatch(r"array<(.*)>", kind):
        return {"type": "array", "elementType": _type(inner[1]), "containsNull": True}
    if inner := re.fullmatch(r"struct<(.*)>", kind):
        return delta_struct(inner[1])
    return _PRIMITIVES.get(kind, kind)
