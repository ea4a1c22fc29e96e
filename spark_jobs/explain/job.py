"""`run explain`: prints which silver rows make a cell of gold, where they came from, and whether they make it.

Reads by delta-rs, starts no JVM, holds no lease and writes nothing.
"""

from dataclasses import dataclass
from itertools import chain
from string import Template

import pyarrow as pa
from deltalake.exceptions import DeltaError

from spark_jobs.control import backfills
from spark_jobs.explain.cell_report import CellReport
from spark_jobs.explain.cells import find
from spark_jobs.explain.evidence import Evidence, open_session
from spark_jobs.explain.runs import Runs
from spark_jobs.explain.snapshot import Snapshot
from spark_jobs.gold.declaration import GoldTable, find as find_table
from spark_jobs.lake import tables
from spark_jobs.runtime.errors import AuditDifference, LedgerError, SettingsError, first_line
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import named_values, print_lines

_DIFFERENT = Template(
    "$name: found $n of $all cells that are not what silver makes ($first), expected none: "
    "run backfill over their times rebuilds silver and gold from bronze, and with --dry-run shows what it would change"
)


@dataclass(frozen=True)
class Explanation:
    """What made some cells: a line about the table, the lines about each cell, and how many more cells match.

    `wrong` names each cell that silver's rows do not make, with what was found and what they give.
    """

    head: str
    cells: tuple[tuple[str, ...], ...]
    more: int
    wrong: tuple[str, ...]


def run(settings: Settings, name: str, where: str, as_of: int | None = None) -> None:
    """Print what made the cells of a gold table that match a condition, ten of them at most.

    Raises what `explain` raises, and AuditDifference when silver's rows do not make a cell.
    """
    explanation = explain(settings, name, where, as_of)
    print_lines("\n".join([explanation.head, *chain.from_iterable(explanation.cells)]))
    if explanation.more:
        print_lines(f"{explanation.more} more cells match: ask for fewer to see them")
    if wrong := explanation.wrong:
        words = {"name": explanation.head.partition(" (")[0], "n": len(wrong), "all": len(explanation.cells), "first": wrong[0]}
        raise AuditDifference(_DIFFERENT.substitute(words))


def explain(settings: Settings, name: str, where: str, as_of: int | None = None) -> Explanation:
    """What made the cells of a gold table that match a condition, ten of them at most.

    Without a release: gold as it is now, and silver as gold has read it. Raises SettingsError for a table, condition, cell or release
    that is none, LedgerError when silver cannot be read.
    """
    table = _table(name)
    snapshot = Snapshot.of_release(settings, as_of) if as_of is not None else Snapshot.now(settings, table)
    delta = snapshot.open(table)
    found = find(table, delta, where)
    head = f"{name} {snapshot} (version {snapshot.version(table, delta)}): {found.count} cell{'' if found.count == 1 else 's'}"
    if snapshot.release is None and (step := backfills.halfway(settings)):
        head += f"\n  a {step.backfill} is under way or stopped halfway: silver and gold need not agree"
    session, runs, cells, wrong = open_session(snapshot, table), Runs(snapshot, table), [], []
    for cell in found.cells:
        try:
            report = CellReport(table, cell, Evidence(session, table, cell), runs)
            cells.append(tuple(report.lines()))
        except (DeltaError, pa.ArrowException, OSError) as error:
            raise LedgerError(f"silver cannot be read ({first_line(error)}): run it again, or name a release by --as-of") from error
        if report.differences:
            wrong.append(f"{named_values(cell, table.keys)}: {'; '.join(report.differences)}")
    return Explanation(head, tuple(cells), found.count - len(found.cells), tuple(wrong))


def _table(name: str) -> GoldTable:
    names = [table.name for table in tables.GOLD]
    if name not in names:
        raise SettingsError(f"--table: found {name!r}, expected one of {', '.join(names)}")
    return find_table(name)
