"""Date folders: what one holds, and which times of it were exported."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.times import midnight, to_text

Range = tuple[datetime, datetime]  # [start, end)

SUCCESS = "_SUCCESS"
STAGING = ".export-"  # folders of runs; readers skip names that begin with a dot or an underscore
ONLY_FILE = "part-00000.parquet"


@dataclass(frozen=True)
class Part:
    """A file that was written: its path in the staging folder, rows and bytes."""

    path: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class Day:
    """What `_SUCCESS` says of a date folder: where its rows come from, which times they cover, and its files, all of them."""

    day: date
    source: dict[str, Any]
    ranges: tuple[Range, ...]
    files: tuple[Part, ...]  # by the names in the folder

    @property
    def rows(self) -> int:
        """How many rows the folder holds."""
        return sum(file.rows for file in self.files)

    @property
    def names(self) -> set[str]:
        """The names of its files."""
        return {file.path for file in self.files}

    def to_json(self) -> str:
        """The text of `_SUCCESS`."""
        covers = [[to_text(time) for time in each] for each in self.ranges]
        files = [{"name": file.path, "rows": file.rows, "bytes": file.bytes} for file in self.files]
        facts = {"day": self.day.isoformat(), **self.source, "covers": covers, "rows": self.rows, "files": files}
        return json.dumps(facts, indent=1) + "\n"


def read_day(day: date, text: str | None, name: str, place: str) -> Day:
    """What `_SUCCESS` says; raises LedgerError when there is none, or it describes something other than an export of `name`."""
    try:
        facts = json.loads(text or "")
        ranges = tuple((datetime.fromisoformat(start), datetime.fromisoformat(end)) for start, end in facts["covers"])
        files = tuple(Part(file["name"], file["rows"], file["bytes"]) for file in facts["files"])
        if facts["table"] == name and facts["day"] == day.isoformat():
            return Day(day, {key: value for key, value in facts.items() if key not in ("day", "covers", "rows", "files")}, ranges, files)
    except (ValueError, KeyError, TypeError):
        pass
    raise LedgerError(f"{place} was not written by an export of {name}: found no such {SUCCESS} in it: export to another folder or move it")


def read_days(name: str, place: str, found: Mapping[date, set[str]], read: Callable[[str], str]) -> dict[date, Day]:
    """The date folders below `place` with the files that were found in each; `read` gives the text of a file by its path there.

    Raises LedgerError for a folder with a file that no export of `name` wrote.
    """
    days = {}
    for day, files in found.items():
        days[day] = read_day(day, read(f"{day}/{SUCCESS}") if SUCCESS in files else None, name, f"{place}/{day}")
        if others := sorted(file for file in files - days[day].names if not file.startswith(("_", "."))):
            raise LedgerError(f"{place}/{day} holds {others[0]}, which {SUCCESS} does not name: export to another folder or move it")
    return days


def to_day(folder: str) -> date | None:
    """The day of a date folder; None for a folder with another name."""
    try:
        day = date.fromisoformat(folder)
    except ValueError:
        return None
    return day if day.isoformat() == folder else None


def whole(day: date) -> Range:
    """The start of a day and of the next one."""
    start = midnight(day)
    return start, (start + timedelta(days=1) if day < date.max else datetime.max.replace(tzinfo=UTC))


def joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The same times in as few ranges as possible, in order."""
    found: list[Range] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return tuple(found)


def within(ranges: Iterable[Range], day: date) -> tuple[Range, ...]:
    """The part of the ranges that lies in a day."""
    first, after = whole(day)
    return tuple((max(start, first), min(end, after)) for start, end in ranges if start < after and end > first)


def named(parts: Iterable[Part], run: str) -> list[tuple[Part, str]]:
    """Each file of a day with its name in the date folder.

    The only file of a day always has the same name, so that it is replaced in one step. The names of several contain the run: a reader
    that has listed them before they are replaced finds a file missing, rather than half of one run and half of the other.
    """
    files = sorted(parts, key=lambda part: part.path.rpartition(".c")[2])
    if len(files) == 1:
        return [(files[0], ONLY_FILE)]
    return [(part, f"part-{number:05}-{run}.parquet") for number, part in enumerate(files)]
