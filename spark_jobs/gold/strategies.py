"""How a change of silver is applied to a gold table: a table names one of these, with the pure function that makes its rows.

Each tells, for a region of silver (rows that came or went, or a range of times), the part of the table that the region has
a share in: as it is, and as it should be. So a change and a backfill go by the same geometry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol

from spark_jobs.lake.kept import kept
from spark_jobs.lake.ranges import Where
from spark_jobs.lake.silver_tables import SILVER_TRANSACTIONS
from spark_jobs.lake.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

HOURS_A_DAY = 24
Sql = Mapping[str, str]  # names of columns, each with the SQL of its value
ALL = Where()


@dataclass(frozen=True)
class Inputs:
    """What tables are made of: silver.transactions as the change left it, others as they are now.

    `table` gives a table for Spark to read, `few` the rows that meet a condition in memory (None: they are many), and `hold` computes
    rows once for several uses. `groups` sums up the rows of silver.transactions that meet a condition: columns of a table by their names,
    in DataFusion's SQL, by those of the first mapping (None: these may be many). It reads and groups a busy day while Spark plans to. Of
    the groups it gives all, or those that meet its last argument, which may rank them.
    `held` gives some columns of the rows of a table that meet a condition, for this process (None: they are many).
    `span` are the first and last day that a table by days may have.
    """

    table: Callable[[Table], DataFrame]
    large_credit: Decimal
    few: Callable[[Table, Where], DataFrame | None] = lambda _table, _where: None
    groups: Callable[[Table, Sql, Sql, Where, str | None], DataFrame | None] = lambda _table, _by, _made, _where, _best: None
    held: Callable[[Table, Sequence[str], Where], pa.Table | None] = lambda _table, _columns, _where: None
    hold: Callable[[DataFrame], DataFrame] = lambda rows: rows.transform(kept)
    span: Callable[[Table], tuple[date, date]] = lambda _table: (date.min, date.max)

    def read(self, table: Table, where: Where = ALL) -> DataFrame:
        """The rows of a table that meet a condition, which is one of a region."""
        few = self.few(table, where)
        return self.table(table).where(where.sql) if few is None else few

    def silver(self, where: Where = ALL) -> DataFrame:
        """Rows of silver.transactions."""
        return self.read(SILVER_TRANSACTIONS, where)


class Region(Protocol):
    """A part of silver.transactions: rows that came or went (changes.Change), or a range of times (ranges.Range).

    Conditions `near` and `on_days` may be true of other rows, too: by them files are skipped. With a `key`, customer_id or account_id,
    fewer rows are read into memory: those of the customers or accounts that have a row in the region near this time.
    """

    @property
    def rows(self) -> DataFrame:
        """The rows of silver.transactions of the region, as they are now."""

    @property
    def few(self) -> pa.Table | None:
        """What came and went, in memory; None where it is much, or may be anything."""

    @property
    def only_added(self) -> bool:
        """Whether nothing else happened than that these rows came."""

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """The times [start, end) that it is; None where it is single rows, or all of silver."""

    def near(self, start: str, hours: float, end: str | None = None, *, key: str | None = None) -> Where:
        """Whether a time, or the span from it to `end`, is at most so many hours from the region."""

    def on_days(self, day: str, around: int, *, key: str | None = None) -> Where:
        """Whether a date is one of the region, or at most so many days beside it."""

    def among(self, rows: DataFrame, few: DataFrame) -> DataFrame:
        """The rows that agree with one of the other frame in its columns; that one is made of this region, and not much larger."""

    def of_windows(self, rows: DataFrame, windows: Windows) -> DataFrame:
        """Of rows of windows those whose window has a part of the region."""

    def keys(self, key: str, present: DataFrame, time: str) -> DataFrame:
        """The customers or accounts that have a row in the region: of silver or, by this column, of the table."""

    def of_ids(self, rows: DataFrame, ids: Sequence[str], times: Sequence[str]) -> DataFrame:
        """Of rows of a table those that name a silver row of the region in one of `ids`, at one of `times`."""


Pure = Callable[["DataFrame"], "DataFrame"]
Parts = tuple["DataFrame", "DataFrame"]  # of a table: as they are, and as they should be
Added = Callable[["Region", Inputs], Parts]


@dataclass(frozen=True)
class Strategy(ABC):
    """The base of them all. `added` is a cheaper way to the parts where rows of silver only came, and may not be repeatable."""

    added: Added | None = field(default=None, kw_only=True)

    def parts(self, table: Table, region: Region, inputs: Inputs) -> Parts:
        """The part of the table that the region has a share in: as it is, and as it should be."""
        return self.added(region, inputs) if self.added and region.only_added else self.rebuilt(table, region, inputs)

    @abstractmethod
    def whole(self, table: Table, inputs: Inputs) -> DataFrame:
        """The whole table, of all rows of silver."""

    @abstractmethod
    def rebuilt(self, table: Table, region: Region, inputs: Inputs) -> Parts:
        """The parts, made from silver again; may be repeated."""


@dataclass(frozen=True)
class Windows(Strategy):
    """Windows of time, each made of the rows within it, by `make` of silver rows and the inputs.

    `starts` gives the windows that hold a time, as values of the `column` that names them: one, or several in rows of their own. A window
    lies between `span`, intervals after the column's value. Its rows are at most `days` calendar days apart, or so many `hours`, where
    given, from whatever it is made again for. `adds`: how a contribution of new rows changes a row that is there (`t` the table, `s` the
    contribution), where sums can be added.
    """

    make: Callable[[DataFrame, Inputs], DataFrame]
    starts: Callable[[str], Column]
    days: int = 0
    hours: float | None = None
    column: str = "window_start"
    span: tuple[str, str] = ("0 hours", "24 hours")
    adds: Mapping[str, str] | None = field(default=None, kw_only=True)

    def whole(self, table: Table, inputs: Inputs) -> DataFrame:
        """The windows of all rows."""
        return self.make(inputs.silver(), inputs)

    def rebuilt(self, table: Table, region: Region, inputs: Inputs) -> Parts:
        """All windows that hold a time of the region."""
        is_near = region.on_days("event_on", self.days) if self.hours is None else region.near("event_at", self.hours)
        present = inputs.read(table, region.near(self.column, self.hours or (self.days + 1) * HOURS_A_DAY))
        return region.of_windows(present, self), region.of_windows(self.make(inputs.silver(is_near), inputs), self)


@dataclass(frozen=True)
class Keys(Strategy):
    """All rows of a customer or an account, by `make` of all their silver rows. `adds` as of `Windows`.

    `sums`: what `make` gives, as columns by their names in DataFusion's SQL, by which `Inputs.groups` makes them of all silver rows.
    `near`: of a range of times the rows that overlap it, as they are and as they should be, and the keys whose rows reach so far that all
    of theirs are needed.
    """

    make: Pure
    key: str
    adds: Mapping[str, str] | None = field(default=None, kw_only=True)
    sums: Sql | None = field(default=None, kw_only=True)
    near: Callable[[Region, Inputs], tuple[Parts, DataFrame]] | None = field(default=None, kw_only=True)

    def whole(self, table: Table, inputs: Inputs) -> DataFrame:
        """All rows of everybody."""
        return self.make(inputs.silver())

    def rebuilt(self, table: Table, region: Region, inputs: Inputs) -> Parts:
        """All rows of those who have a row of silver, or of the table, in the region; where `near` finds them, those alone."""
        if self.near is None or region.span is None:
            present = inputs.read(table)
            return self._all_of(region.keys(self.key, present, table.time_column or ""), present, table, inputs)
        near, far = self.near(region, inputs)
        if far.isEmpty():
            return near
        present, wanted = (
            rows.join(far, on=self.key, how="left_anti").unionByName(all_rows)
            for rows, all_rows in zip(near, self._all_of(far, inputs.read(table), table, inputs), strict=True)
        )
        return present, wanted

    def _all_of(self, touched: DataFrame, present: DataFrame, table: Table, inputs: Inputs) -> Parts:
        """All rows of some customers or accounts."""

        def of_touched(rows: DataFrame) -> DataFrame:
            return rows.join(touched, on=self.key, how="left_semi")

        sums = inputs.groups(table, {self.key: self.key}, self.sums, ALL, None) if self.sums else None
        return of_touched(present), self.make(of_touched(inputs.silver())) if sums is None else of_touched(sums)


@dataclass(frozen=True)
class Rows(Strategy):
    """Rows that single silver rows have a part in, by `make` of those and the inputs; where rows only came, they are appended.

    `ids` are the columns that name silver's rows, and `times` those rows' times, which lie at most `hours` apart. `near` makes the rows
    in which some silver rows have a part, where others have a part in them, too; `few` makes the same of rows that only came, part by part
    in memory, and None where there are too many.
    """

    make: Callable[[DataFrame, Inputs], DataFrame]
    near: Callable[[DataFrame, Region, Inputs], DataFrame] | None = field(default=None, kw_only=True)
    few: Callable[[Region, Inputs], Iterable[pa.Table] | None] = field(default=lambda _region, _inputs: None, kw_only=True)
    ids: tuple[str, ...] = ("transaction_id",)
    times: tuple[str, ...] = ("event_at",)
    hours: int = 0

    def whole(self, table: Table, inputs: Inputs) -> DataFrame:
        """The rows that all silver rows have a part in."""
        return self.make(inputs.silver(), inputs)

    def made(self, region: Region, inputs: Inputs) -> DataFrame:
        """The rows in which silver rows of the region have a part."""
        return self.near(region.rows, region, inputs) if self.near else self.make(region.rows, inputs)

    def rebuilt(self, table: Table, region: Region, inputs: Inputs) -> Parts:
        """The rows that name a silver row of the region. Where these may be many, all rows near them are made, and the others left out."""
        present = region.of_ids(inputs.read(table, region.near(self.times[0], self.hours)), self.ids, self.times)
        if self.near is None or region.few is not None:
            return present, self.made(region, inputs)
        return present, region.of_ids(self.make(inputs.silver(region.near("event_at", self.hours)), inputs), self.ids, self.times)


@dataclass(frozen=True)
class Whole(Strategy):
    """The whole table, by `make`, because one row changes many others."""

    make: Callable[[Inputs], DataFrame]

    def whole(self, table: Table, inputs: Inputs) -> DataFrame:
        """All of it."""
        return self.make(inputs)

    def rebuilt(self, table: Table, region: Region, inputs: Inputs) -> Parts:
        """All of it."""
        return inputs.read(table), self.make(inputs)
