"""A range of times for which gold is made again: the other kind of region (strategies.py) beside rows that came or went (changes.py)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame, functions as F

from spark_jobs.gold.strategies import Windows
from spark_jobs.lake import sources
from spark_jobs.lake.kept import kept
from spark_jobs.lake.ranges import Where
from spark_jobs.runtime.times import to_micros


@dataclass(frozen=True)
class Range:
    """The times [start, end); `silver` reads rows of silver. So rows of gold that stand for no row of silver are found, too.

    `is_all`: silver has no other rows.
    """

    start: datetime
    end: datetime
    silver: Callable[[Where], DataFrame]
    is_all: bool = False
    only_added: bool = False
    few: None = None

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """The range; None where it has all rows."""
        return None if self.is_all else (self.start, self.end)

    @cached_property
    def rows(self) -> DataFrame:
        """The silver rows of the range."""
        return self._within(self.silver(self.on_days("event_on", 0)), ["event_at"])

    def near(self, start: str, hours: float, end: str | None = None, *, key: str | None = None) -> Where:
        """Whether a time is at most so many hours from the range."""
        first, last = _shifted(self.start, -timedelta(hours=hours)), _shifted(self.end, timedelta(hours=hours))
        return Where(f"{start} <= {_literal(last)} and {end or start} >= {_literal(first)}")

    def on_days(self, day: str, around: int, *, key: str | None = None) -> Where:
        """Whether a day is one of the range, or at most so many days beside it. In literals, so that Delta skips files."""
        first, last, more = self.start.date(), (self.end - timedelta(microseconds=1)).date(), timedelta(days=around)
        return Where(f"{day} between date '{max(first, date.min + more) - more}' and date '{min(last, date.max - more) + more}'")

    def among(self, rows: DataFrame, few: DataFrame) -> DataFrame:
        """The rows that agree with one of the other frame in its columns."""
        return rows.join(few, on=few.columns, how="left_semi")

    def of_windows(self, rows: DataFrame, windows: Windows) -> DataFrame:
        """Of rows of windows those whose window has a part of the range."""
        first, end = (F.col(windows.column) + F.expr(f"interval {span}") for span in windows.span)
        return rows.where((end > sources.moment(self.start)) & (first < sources.moment(self.end)))

    def keys(self, key: str, present: DataFrame, time: str) -> DataFrame:
        """The customers or accounts that have a row of silver, or of the table, in the range."""
        here = present.where(self.on_days(time, 0).sql) if time == "day" else self._within(present, [time])
        return self.rows.select(key).union(here.select(key)).distinct().transform(kept)

    def of_ids(self, rows: DataFrame, _ids: Sequence[str], times: Sequence[str]) -> DataFrame:
        """Of rows of a table those of which one time lies in the range."""
        return self._within(rows, times)

    def _within(self, rows: DataFrame, times: Sequence[str]) -> DataFrame:
        return rows.where(reduce(Column.__or__, (sources.between(time, self.start, self.end) for time in times)))


def _literal(time: datetime) -> str:
    return f"timestamp_micros({to_micros(time)})"


def _shifted(moment: datetime, by: timedelta) -> datetime:
    """A moment so much later, or the first or last that there is."""
    try:
        return moment + by
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if by > timedelta(0) else datetime.min.replace(tzinfo=UTC)
