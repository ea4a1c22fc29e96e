"""Conditions in literals that hold some times, so that Delta can skip files and Parquet can skip pages.

They are texts of Spark's SQL; `to_datafusion` says them for DataFusion, which reads rows into memory and bears more ranges.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.runtime.late_spark import F
from spark_jobs.runtime.times import to_micros

if TYPE_CHECKING:
    from pyspark.sql import Column

MOST = 64  # ranges; to skip files by 100 of them, Delta would generate more code than a Java method may have
MOST_IN_MEMORY = 256  # of DataFusion, which compares every row of the pages that it reads with all of them
_MOST_OF_FILES, _MOST_NAMED = 16, 2_000
_TIME_BITS = 42  # seconds of more than 30,000 years on either side of the epoch; the bits above are for keys
_MICROS = 1_000_000
_LITERALS = {
    "timestamp_micros": """arrow_cast({}, 'Timestamp(Microsecond, Some("UTC"))')""",
    "date_from_unix_date": "arrow_cast(arrow_cast({}, 'Int32'), 'Date32')",
}

Range = tuple[int, int]  # numbers of hours, or of days, since the epoch; both ends included


@dataclass(frozen=True)
class Unit:
    """A unit of time: its seconds, and the type of the column."""

    seconds: int
    kind: str


SECOND, HOUR, DAY = Unit(1, "timestamp"), Unit(3_600, "timestamp"), Unit(86_400, "date")
DAY_OF_TIME = Unit(86_400, "timestamp")


@dataclass(frozen=True)
class Where:
    """Which rows of a table are read: `sql`, for Spark, is true of them, and may be true of others, too. Without an argument, all rows.

    In memory others are fewer: `finer`, where given, stands for `sql` there, and `is_wanted` tells of the rows of a part which are wanted.
    """

    sql: str = "true"
    finer: str | None = None
    is_wanted: Callable[[pa.Table], pa.Array] | None = None

    @property
    def datafusion(self) -> str:
        """The condition in the words of DataFusion."""
        return to_datafusion(self.finer or self.sql)


def unit_of(time: str) -> Unit:
    """By what a merge counts a column of gold: a date is called `day`."""
    return DAY if time == "day" else HOUR


def number(time: str, unit: Unit) -> Column:
    """The number of the hour or day since the epoch in which a time lies, a bigint."""
    seconds = F.unix_seconds(F.col(time).cast("timestamp"))
    return F.floor(seconds / unit.seconds)


def numbers(times: pa.ChunkedArray, unit: Unit) -> list[int]:
    """The numbers of the hours or days since the epoch in which times (or, of days, dates) in memory lie."""
    return [int(number) for number in np.unique(counted(times, unit).to_numpy())]


def counted(times: pa.ChunkedArray, unit: Unit) -> pa.ChunkedArray:
    """For each time (or date) the number of its hour or day since the epoch; null of null."""
    if pa.types.is_date32(times.type):
        return times.cast("int32").cast("int64")
    micros, size = times.cast(pa.timestamp("us", "UTC")).cast("int64"), unit.seconds * _MICROS
    towards_zero = pc.divide(micros, size)
    return pc.subtract(towards_zero, pc.less(micros, pc.multiply(towards_zero, size)).cast("int64"))


def around(numbers: Iterable[int], width: int, most: int = MOST) -> list[Range]:
    """Ranges of the numbers and of those at most `width` from one; of more than `most`, the nearest are joined."""
    ordered = sorted(set(numbers))
    if not ordered:
        return []
    gaps = sorted((after - before, place) for place, (before, after) in enumerate(pairwise(ordered), start=1))
    cuts = sorted(place for gap, place in gaps[1 - most :] if gap > 2 * width + 1)
    starts, ends = [0, *cuts], [*cuts, len(ordered)]
    return [(ordered[start] - width, ordered[end - 1] + width) for start, end in zip(starts, ends, strict=True)]


def overlap(start: str, end: str, found: Sequence[Range], unit: Unit) -> str:
    """Whether the span from one column to another overlaps one of the ranges; for one column, whether it lies in one."""
    parts = [f"({start} < {_literal(last + 1, unit)} and {end} >= {_literal(first, unit)})" for first, last in found]
    return any_of(parts)


def holding(column: str, numbers: Iterable[int], most: int = MOST) -> str:
    """Whether a column is one of these whole numbers, or lies between two neighbours of them."""
    parts = [f"{column} between {first} and {last}" for first, last in around(numbers, 0, most)]
    return any_of(parts)


def near(start: str, end: str, numbers: Iterable[int], width: int, unit: Unit, is_wanted: Callable[[pa.Table], pa.Array] | None) -> Where:
    """Whether the span from one column to another is at most `width` hours or days from one of these."""
    sql, finer = (overlap(start, end, around(numbers, width, most), unit) for most in (MOST, MOST_IN_MEMORY))
    return Where(sql, finer, is_wanted)


def beside(moments: pa.Table, key: str | None, start: str, end: str, width: int, unit: Unit) -> Callable[[pa.Table], pa.Array]:
    """Whether a row's span from one column to another is at most `width` units from an `event_at` of `moments` (of the same `key`).

    Both are counted in whole units, so others less than a unit farther away are wanted, too.
    """
    keys = pc.unique(moments[key]) if key else None

    def place(rows: pa.Table) -> np.ndarray | int:
        if key is None:
            return 0
        found: np.ndarray = pc.index_in(rows[key], value_set=keys).fill_null(-1).to_numpy().astype("int64") * 2**_TIME_BITS
        return found

    def coded(of_key: np.ndarray | int, times: pa.ChunkedArray, more: int) -> np.ndarray:  # key before time, so that one order holds both
        number = counted(times, unit).fill_null(0).to_numpy() + more
        coded: np.ndarray = of_key + np.clip(number, -(2 ** (_TIME_BITS - 2)), 2 ** (_TIME_BITS - 2))
        return coded

    ordered = np.append(np.unique(coded(place(moments), moments["event_at"], 0)), 2**63 - 1)

    def is_wanted(rows: pa.Table) -> pa.Array:
        of_key = place(rows)
        next_one = ordered[np.searchsorted(ordered[:-1], coded(of_key, rows[start], -width))]
        return pa.array(next_one <= coded(of_key, rows[end], width))

    return is_wanted


def is_among(column: str, values: pa.Array) -> Callable[[pa.Table], pa.Array]:
    """Whether a column of a row has one of some values."""
    return lambda rows: pc.is_in(rows[column], value_set=values)


def since(time: str, micros: int) -> Where:
    """Whether a time is at least so many microseconds after the epoch."""
    return Where(f"{time} >= timestamp_micros({micros})")


def within(time: str, start: datetime, end: datetime) -> str:
    """Whether a time lies in [start, end)."""
    return f"{time} >= timestamp_micros({to_micros(start)}) and {time} < timestamp_micros({to_micros(end)})"


def to_datafusion(condition: str) -> str:
    """A condition of this module in the words of DataFusion."""
    return re.sub(rf"({'|'.join(_LITERALS)})\((-?\d+)\)", lambda found: _LITERALS[found[1]].format(found[2]), condition)


def among(time: str, numbers: Sequence[int], unit: Unit) -> Column:
    """Whether a time lies in one of these hours or days, for a MERGE: it skips files, not pages, and checks every row of the other files.

    So for files there are few ranges, and the rows are looked up one by one.
    """
    is_in_file = F.expr(in_files(time, numbers, unit))
    return is_in_file & number(time, unit).isin(list(numbers)) if len(numbers) <= _MOST_NAMED else is_in_file


def in_files(time: str, numbers: Iterable[int], unit: Unit) -> str:
    """Whether a time lies in one of these hours or days, or near one: in few ranges, by which a merge skips files."""
    return overlap(time, time, of_files(numbers), unit)


def of_files(numbers: Iterable[int]) -> list[Range]:
    """The few ranges that hold these hours or days, by which a merge skips files."""
    return around(numbers, 0, _MOST_OF_FILES)


def any_of(parts: Sequence[str]) -> str:
    """The conditions joined by OR in a tree of least depth, because the work of generating code grows with the square of the depth.

    Of no conditions none holds.
    """
    half = len(parts) // 2
    return f"({any_of(parts[:half])} or {any_of(parts[half:])})" if half else "".join(parts) or "false"


def _literal(number: int, unit: Unit) -> str:
    return f"date_from_unix_date({number})" if unit.kind == "date" else f"timestamp_micros({number * unit.seconds * _MICROS})"
