"""A cell of gold with what made it: cells to choose from, and the lines that `run explain` prints."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from include.quality_page.reading import Warehouse
from include.quality_page.words import counted
from spark_jobs.lake.table import Table
from spark_jobs.lake.tables import GOLD
from spark_jobs.runtime.errors import LedgerError, first_line
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import shown

TABLES = {table.name: table for table in GOLD}
CELLS = 50
RELEASES_OFFERED = 500

_RUN = re.compile(r"(?<=\brun )(\S+__\S+?)(?=[,:]?(?:\s|$))")


@dataclass(frozen=True)
class Cell:
    """A row of a gold table as text; `keys` find it again."""

    keys: dict[str, str]
    values: tuple[str, ...]
    numbers: tuple[bool, ...]  # which of the values are


@dataclass(frozen=True)
class Answer:
    """The cells that have the keys that were asked for, or, of one cell, the lines about what made it.

    `problem` says, in a line, why nothing was found, or where silver's rows do not make the cell.
    """

    head: str = ""
    cells: tuple[Cell, ...] = ()
    lines: tuple[str, ...] = ()
    problem: str = ""


def with_runs(line: str) -> list[str]:
    """The parts of a line about a cell: every second one is the id of a DAG run."""
    return _RUN.split(line)


def releases(warehouse: Warehouse, now: datetime | None = None) -> list[tuple[int, datetime]]:
    """The releases that readers are offered, number and time, the newest first; RELEASES_OFFERED of them at most."""
    from spark_jobs.releases import retention

    times = retention.times_of_offered(warehouse.settings, now or datetime.now(UTC))
    return list(reversed(times.items()))[:RELEASES_OFFERED]


def answer(settings: Settings, table: Table, keys: Mapping[str, str], release: int | None = None) -> Answer:
    """What made the cell that has all of the keys, as it is now or in a release; the first cells by key where some are left out.

    Shows no name in full: gold has its first letters, and so have the lines.
    """
    import pyarrow as pa  # these read Delta, without which Airflow starts sooner
    from deltalake.exceptions import DeltaError

    from spark_jobs.explain import cells, job
    from spark_jobs.explain.snapshot import Snapshot

    where = " and ".join(f"{name} = {cells.literal(value)}" for name, value in keys.items()) or "true"
    try:
        if len(keys) < len(table.keys):
            snapshot = Snapshot.now(settings, table) if release is None else Snapshot.of_release(settings, release)
            found = cells.find(table, snapshot.open(table), where, CELLS)
            head = counted(found.count, "cell") + (f", the first {CELLS} by key" if found.count > CELLS else "")
            head += f", {snapshot}" if release else ""
            return Answer(head, tuple(_cell(table, row) for row in found.cells))
        made = job.explain(settings, table.name, where, release)
    except LedgerError as error:
        return Answer(problem=str(error))
    except (DeltaError, pa.ArrowException, OSError) as error:
        return Answer(problem=f"{table.name} cannot be explained, its tables are not readable: {first_line(error)}")
    return Answer(made.head, lines=tuple(line for cell in made.cells for line in cell), problem="; ".join(made.wrong))


def _cell(table: Table, row: Mapping[str, object]) -> Cell:
    values = [row[name] for name in table.columns]
    numbers = tuple(isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in values)
    texts = tuple(f"{value:,}" if is_number else shown(value) for value, is_number in zip(values, numbers, strict=True))
    return Cell({name: shown(row[name], None) for name in table.keys}, texts, numbers)
