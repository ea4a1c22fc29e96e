"""A cell of gold with what made it: cells to choose from, and the lines that `run explain` prints."""

from collections.abc import Mapping
from dataclasses import dataclass

from include.quality_page.words import counted
from spark_jobs.lake.table import Table
from spark_jobs.lake.tables import GOLD
from spark_jobs.runtime.errors import LedgerError, first_line
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import shown

TABLES = {table.name: table for table in GOLD}
CELLS = 50


@dataclass(frozen=True)
class Cell:
    """A row of a gold table as text; `keys` find it again."""

    keys: dict[str, str]
    values: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """The cells that have the keys that were asked for, or, of one cell, the lines about what made it.

    `problem` says, in a line, why nothing was found, or where silver's rows do not make the cell.
    """

    head: str = ""
    cells: tuple[Cell, ...] = ()
    lines: tuple[str, ...] = ()
    problem: str = ""


def answer(settings: Settings, table: Table, keys: Mapping[str, str]) -> Answer:
    """What made the cell that has all of the keys, as it is now; the first cells by key where some are left out.

    Shows no name in full: gold has its first letters, and so have the lines.
    """
    import pyarrow as pa  # these read Delta, without which Airflow starts sooner
    from deltalake.exceptions import DeltaError

    from spark_jobs.explain import cells, job
    from spark_jobs.explain.snapshot import Snapshot

    where = " and ".join(f"{name} = {cells.literal(value)}" for name, value in keys.items()) or "true"
    try:
        if len(keys) < len(table.keys):
            found = cells.find(table, Snapshot.now(settings, table).open(table), where, CELLS)
            head = counted(found.count, "cell") + (f", the first {CELLS} by key" if found.count > CELLS else "")
            return Answer(head, tuple(_cell(table, row) for row in found.cells))
        made = job.explain(settings, table.name, where)
    except LedgerError as error:
        return Answer(problem=str(error))
    except (DeltaError, pa.ArrowException, OSError) as error:
        return Answer(problem=f"{table.name} cannot be explained, its tables are not readable: {first_line(error)}")
    return Answer(made.head, lines=tuple(line for cell in made.cells for line in cell), problem="; ".join(made.wrong))


def _cell(table: Table, row: Mapping[str, object]) -> Cell:
    texts = {name: shown(row[name], None) for name in table.columns}
    return Cell({name: texts[name] for name in table.keys}, tuple(shown(row[name]) for name in table.columns))
