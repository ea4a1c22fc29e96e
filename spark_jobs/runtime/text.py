"""Values and tables as human-readable text: one line a row, without characters that move a terminal's cursor."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from spark_jobs.runtime.masking import mask_error

_WIDEST = 60


def shown(value: Any, widest: int | None = _WIDEST) -> str:
    """A value in one line of at most `widest` characters; times are UTC, a dash means null."""
    match value:
        case None:
            text = "-"
        case datetime():
            text = value.replace(tzinfo=None).isoformat(" ").removesuffix("000")
        case Decimal():
            text = format(value, "f")
        case bool():
            text = str(value).lower()
        case _:
            text = str(value)
    safe = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return safe if widest is None or len(safe) <= widest else f"{safe[: widest - 1]}…"


def listed(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """The lines of a table with its head; marks, in the last column, are not cut."""
    texts = [[*(shown(value) for value in row[:-1]), str(row[-1])] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *texts, strict=True)]
    for line in (names, *texts):
        yield "    " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def named_values(row: dict[str, Any], names: Sequence[str]) -> str:
    """Some columns of a row with their values."""
    return ", ".join(f"{name} {shown(row[name])}" for name in names)


def sql_text(text: str) -> str:
    """A text as a literal of SQL: DataFusion's, and DuckDB's."""
    return "'" + text.replace("'", "''") + "'"


def spark_text(text: str) -> str:
    """A text as a literal of Spark's SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quoted(names: Iterable[str]) -> list[str]:
    """Names of columns for `selectExpr`, which sends all of them to the JVM together; `select` calls it for each."""
    return [f"`{name}`" for name in names]


def print_masked(line: str) -> None:
    """Print a line to stdout, masked as a log is."""
    print_lines(mask_error(line))


def print_lines(lines: str) -> None:
    """Print a line or lines to stdout, for as long as it is read."""
    try:
        sys.stdout.write(f"{lines}\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
