"""Districts, as the operators name them: a small table that is replaced as a whole, one version for each file that says something new."""

import csv
from pathlib import Path
from typing import Any

from spark_jobs import control
from spark_jobs.lake import leases
from spark_jobs.lake.tables import DISTRICTS
from spark_jobs.runtime import one_line
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import Settings

_LISTED = 5  # how many problems a message lists
_LARGEST = 2**31 - 1


def read_file(file: Path) -> list[dict[str, Any]]:
    """The districts of a CSV file in UTF-8 with the columns of control.districts: district_id (whole, >= 0), name, region (may be empty).

    Raises SettingsError, which lists the first problems, for other columns, a district twice, a line that cannot be used, or no line.
    """
    rows, problems, seen = list[dict[str, Any]](), list[str](), set[str]()
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            found = csv.reader(lines, strict=True)
            head = next(found, [])
            if head != list(DISTRICTS.columns):
                raise SettingsError(f"{file}: found the columns {','.join(head)[:200]!r}, expected {','.join(DISTRICTS.columns)}")
            for cells in found:
                if wrong := _problem(cells) or (f"found district {cells[0]} twice, expected it once" if cells[0] in seen else None):
                    problems.append(f"line {found.line_num}: {wrong}")
                    continue
                seen.add(cells[0])
                rows.append({"district_id": int(cells[0]), "name": cells[1], "region": cells[2] or None})
    except (OSError, ValueError, csv.Error) as error:
        raise SettingsError(f"{file}: cannot be read ({error}), expected CSV in UTF-8") from None
    if problems or not rows:
        more = f"; and {len(problems) - _LISTED} more" if len(problems) > _LISTED else ""
        raise SettingsError(
            f"{file}: {'; '.join(problems[:_LISTED]) or 'found no district, expected one or more'}{more}; nothing was written"
        )
    return rows


def replace(settings: Settings, rows: list[dict[str, Any]]) -> tuple[int, bool]:
    """Put these districts in place of all that are there, in one commit; the version of the table, and whether they are new to it.

    The same districts make no new version. Takes the table's lease.
    """
    with leases.hold(settings, [DISTRICTS], owner="run districts"):
        if is_new := sorted(rows, key=_number) != sorted(control.read(settings, DISTRICTS).to_pylist(), key=_number):
            control.replace_under_lease(settings, DISTRICTS, rows)
        return DISTRICTS.open(settings).version(), is_new


def _number(row: dict[str, Any]) -> int:
    return int(row["district_id"])


def _problem(cells: list[str]) -> str | None:
    """What is wrong with the cells of a line."""
    if len(cells) != len(DISTRICTS.columns):
        return f"found {len(cells)} values, expected {len(DISTRICTS.columns)}"
    number, name, region = cells
    if not (number.isascii() and number.isdigit() and len(number) < 11 and number == str(int(number)) and int(number) <= _LARGEST):
        return f"district_id: found {number[:20]!r}, expected a whole number from 0 to {_LARGEST}"
    for column, text, least in (("name", name, 1), ("region", region, 0)):
        if wrong := one_line.problem(text, least):
            return f"{column}: {wrong}"
    return None
