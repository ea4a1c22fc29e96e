"""Rows as text: aligned columns, one line a row."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

import pyarrow as pa

from spark_jobs.runtime.text import shown
from spark_jobs.runtime.values import to_list

_FIRST_ROWS = 1000


def lay_out(schema: pa.Schema, batches: Iterable[pa.RecordBatch], most: int | None = None, widest: int | None = None) -> Iterator[str]:
    """The lines of a table: head, rows, and their number.

    No more than `most` rows, and `widest` characters of a cell. Columns are as wide as the first thousand rows need.
    """
    rows = (values for batch in batches for values in zip(*(to_list(column) for column in batch.columns), strict=True))
    if schema.names == ["plan_type", "plan"]:  # of EXPLAIN: pictures of many lines
        yield from (line for _, plan in rows for line in plan.splitlines())
        return
    first = [[_text(value, widest) for value in row] for row in islice(rows, most or _FIRST_ROWS)]
    widths = [max(map(len, column)) for column in zip(schema.names, *first, strict=True)]
    is_number = [pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind) for kind in schema.types]

    def line(cells: Iterable[str]) -> str:
        padded = (cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(cells, widths, is_number, strict=True))
        return " | ".join(padded).rstrip()

    yield line(schema.names)
    yield "-+-".join("-" * width for width in widths)
    yield from map(line, first)
    count = len(first)
    if most is not None and next(rows, None) is not None:
        yield f"(the first {count:,} rows: ask for less to see others)"
        return
    for row in rows:
        count += 1
        yield line(_text(value, widest) for value in row)
    yield f"({count:,} row{'' if count == 1 else 's'})"


def _text(value: Any, widest: int | None) -> str:
    """A value in one line, without characters that would move a terminal's cursor."""
    match value:
        case None:
            value = "null"
        case bytes():
            value = value.decode("utf-8", "backslashreplace")
        case datetime():  # all are UTC
            value = value.replace(tzinfo=None).isoformat(" ")
    return shown(value, widest)
