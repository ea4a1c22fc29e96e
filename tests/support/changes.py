"""What a case is, and the ways to break rows that cases are made of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.warehouse import Row, Rows

Change = Callable[[Rows], None]


@dataclass(frozen=True)
class Case:
    """`change` breaks good rows; of `table`, exactly the expectations in `failed` must fail."""

    table: str
    failed: frozenset[str]
    change: Change
    which: str = ""

    def __str__(self) -> str:
        return f"{self.table}-{'+'.join(sorted(self.failed))}{self.which}"


def case(table: str, failed: str, change: Change, which: str = "") -> Case:
    return Case(table, frozenset(failed.split()), change, which)


def put(table: str, row: int = -1, **values: Any) -> Change:
    """Overwrite values of one row."""
    return lambda rows: rows[table][row].update(values)


def add(table: str, *new: Row) -> Change:
    return lambda rows: rows[table].extend(new)


def drop(table: str, row: int = -1) -> Change:
    return lambda rows: rows[table].__delitem__(row)


def again(table: str, row: int = -1, **values: Any) -> Change:
    """Add a copy of a row, with other values."""
    return lambda rows: rows[table].append(rows[table][row] | values)
