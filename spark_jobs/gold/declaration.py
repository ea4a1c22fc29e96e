"""What the file of a gold table declares: the table, how changes of silver are applied to it, and how one of its cells is explained."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from spark_jobs.gold.strategies import Strategy
from spark_jobs.lake.silver_tables import SILVER_TRANSACTIONS
from spark_jobs.lake.table import Table

Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """How a cell (one row of the table) is explained: in SQL, where `$name` is the cell's own value, or one of explain/plans.py's parts.

    It is for DataFusion in place of Spark, and written apart from the function that makes the table, so that one checks the other.
    `rows` is a condition on silver.transactions that picks the cell's rows; it names `event_at` wherever it can, by which files are
    skipped. `steps` are tables that are kept in memory after `rows`, by name. `made` gives columns of the cell again, in one row, and
    `finish` what SQL cannot. `dimension` is the silver table of versions to join with. `aside` picks rows beside the cell's own: they
    explain one of its columns, and are not counted in the others. `by_day`: a cell is made of so many rows that their counts by day
    stand for them.
    """

    rows: str
    made: str
    steps: Mapping[str, str] = field(default_factory=dict)
    dimension: Table | None = None
    aside: str = "false"
    finish: Callable[[Row], Row] = lambda made: made
    note: str = ""
    by_day: bool = False


@dataclass(frozen=True, kw_only=True)
class GoldTable(Table):
    """A table of gold.

    `made_of` is another gold table that it is computed from; `of_windows`: its rows are windows of time; `is_temporal`: of the histories
    that it follows beside transactions, only the version that is valid at a transaction's event time counts for it.
    """

    strategy: Strategy = field(compare=False)
    cell: Cell = field(compare=False)
    topic: str = "transactions"
    follows: tuple[Table, ...] = (SILVER_TRANSACTIONS,)
    made_of: Table | None = None
    of_windows: bool = False
    is_temporal: bool = False

    def __reduce__(self) -> tuple[Callable[[str], "GoldTable"], tuple[str]]:
        """Another process, such as that of a gate, finds the table where it is declared."""
        return find, (self.name,)


def find(name: str) -> GoldTable:
    """The gold table of a name, as its file declares it."""
    table: GoldTable = import_module("spark_jobs.lake.tables").BY_NAME[name]
    return table
