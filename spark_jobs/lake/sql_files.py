"""Tables that are declared in SQL: a file with a header of comment lines and one SELECT, read without Spark.

What the files of gold and of the live tables have in common; include/docs/sql-products.md has the fields.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from spark_jobs.lake.ddl import parse_columns
from spark_jobs.runtime.errors import SettingsError

SECONDS = {"minute": 60, "hour": 3600, "day": 86400}
_TYPES = r"string|boolean|int|bigint|date|timestamp|decimal\((?:[1-9]|[12]\d|3[0-8]),\d{1,2}\)"
_NAME = r"[a-z][a-z0-9_]*"
# Pieces of SQL in which a semicolon or a word means nothing, one of them at a time.
_QUOTED = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True)
class Field:
    """A field of a header: its value, and its line in the file."""

    value: str
    line: int


@dataclass(frozen=True)
class SqlFile:
    """A file, cut into its header and its SELECT, which begins at `line`."""

    file: Path
    fields: Mapping[str, Field]
    select: str
    line: int

    @property
    def description(self) -> str:
        """What the table is for, empty where the header does not say."""
        return self.fields["description"].value if "description" in self.fields else ""

    def refuse(self, line: int, found: str, expected: str) -> NoReturn:
        """Raise SettingsError with file and line."""
        raise SettingsError(f"{self.file}:{line}: found {found}, expected {expected}")

    def refuse_field(self, name: str, found: str, expected: str) -> NoReturn:
        """Refuse the value of a field."""
        self.refuse(self.fields[name].line, f"{name}: {found}", expected)

    def refuse_at(self, place: int, found: str, expected: str) -> NoReturn:
        """Refuse what stands at a place of the SELECT."""
        self.refuse(self.line + self.select.count("\n", 0, place), found, expected)

    def check_name(self, name: str, known: Collection[str], expected: str, *, fits: bool = True) -> None:
        """Refuse a file whose table has the name of another one, or whose own name is not in snake_case or does not fit otherwise."""
        if not re.fullmatch(_NAME, self.file.stem) or not fits or name in known:
            self.refuse(1, f"the table {name}" + (", which there is already" if name in known else ""), expected)

    def columns(self) -> dict[str, str]:
        """The declared columns with their types."""
        text = re.sub(r"\(\s*(\d+)\s*,\s*(\d+)\s*\)", r"(\1,\2)", self.fields["columns"].value).lower()
        try:
            found = parse_columns(text)
        except ValueError as error:
            self.refuse_field("columns", str(error).partition(", expected")[0].removeprefix("found "), "`name type, name type, ...`")
        for name, kind, is_nullable in found:
            if not re.fullmatch(_NAME, name):
                self.refuse_field("columns", name, "names in snake_case that begin with a letter")
            if not re.fullmatch(_TYPES, kind) or not is_nullable:
                types = (
                    "string, boolean, int, bigint, date, timestamp or decimal(precision,scale): sums of others depend on the order of rows"
                )
                self.refuse_field("columns", f"{name} {kind}" + ("" if is_nullable else " not null"), types)
        names = [name for name, _, _ in found]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            self.refuse_field("columns", f"{', '.join(repeated)} more than once", "each column once")
        return {name: kind for name, kind, _ in found}

    def keys(self, columns: Mapping[str, str]) -> tuple[str, ...]:
        """The declared keys, of these columns."""
        keys = tuple(name.strip() for name in self.fields["keys"].value.split(","))
        if unknown := [name for name in keys if name not in columns] or [name for name in keys if keys.count(name) > 1][:1]:
            self.refuse_field("keys", ", ".join(unknown), f"columns of the table, each once: {', '.join(columns)}")
        return keys

    def time(self, columns: Mapping[str, str]) -> str:
        """The declared time column, of these columns."""
        time = self.fields["time"].value
        if columns.get(time) != ("date" if time == "day" else "timestamp"):
            self.refuse_field(
                "time", f"{time} {columns.get(time, '(no such column)')}", "a column of type timestamp, or a date called `day`"
            )
        return time

    def one_select(self) -> str:
        """The SELECT without a semicolon at its end. Refuses what is more than one statement, or another one."""
        bare = _QUOTED.sub(lambda quoted: re.sub(r"[^\n]", " ", quoted[0]), self.select)  # of the same length
        end = len(bare.rstrip())
        end -= bare[:end].endswith(";")
        if not re.match(r"\s*(select|with)\b", bare, re.IGNORECASE):
            self.refuse_at(0, repr(self.select.strip()[:30]), "one SELECT")
        if other := re.search(r";|\b(insert|update|delete|merge)\s+into\b|\.\s*`", bare[:end], re.IGNORECASE):
            self.refuse_at(other.start(), repr(other[0]), "one SELECT over the tables that its placeholders name")
        return self.select[:end].rstrip()

    def placeholders(self, query: str) -> Iterator[tuple[str, re.Match[str]]]:
        """What is in braces in the SELECT, and where; empty for a brace that is none of a placeholder's."""
        return ((found[1] or "", found) for found in _BRACES.finditer(query) if found[0] not in ("{{", "}}"))


def read_files(folder: Path) -> list[tuple[Path, str]]:
    """The text of each `.sql` file in a folder and below it."""
    return [(file, file.read_text(encoding="utf-8-sig", errors="replace")) for file in sorted(folder.rglob("*.sql"))]


def cut(file: Path, text: str, required: Collection[str], optional: Collection[str]) -> SqlFile:
    """A file with the fields of its header, of which some are required.

    Header lines are `-- field: value`, or `--` and at least three blanks where a value continues; the SELECT begins after them. Raises
    SettingsError, with file and line, for other lines, and for fields that are unknown, missing or there twice.
    """
    fields, lines, last = dict[str, Field](), text.splitlines(), ""
    number = next((number for number, line in enumerate(lines) if line.strip() and not line.startswith("--")), len(lines))
    given = SqlFile(file, fields, "\n".join(lines[number:]), number + 1)
    for line, content in enumerate(lines[:number], start=1):
        if (more := re.fullmatch(r"-- {3,}(\S.*)", content.rstrip())) and last:
            fields[last] = Field(f"{fields[last].value} {more[1]}", fields[last].line)
        elif field := re.fullmatch(r"-- ?(\w+):\s*(\S.*)", content.rstrip()):
            last = field[1]
            if last in fields:
                given.refuse(line, f"{last} a second time", "each field once")
            if last not in (*required, *optional):
                given.refuse(line, f"the field {last}", f"one of {', '.join((*required, *optional))}")
            fields[last] = Field(field[2], line)
        elif content.strip():
            given.refuse(line, repr(content), "`-- field: value`, or `--` and three blanks where a value continues")
    if missing := [name for name in required if name not in fields]:
        given.refuse(1, f"no {', '.join(missing)} in the header", "lines `-- field: value` at the top of the file")
    return given
