"""What happened to silver.transactions since a gold table was last written: which rows came and went, and in which hours."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window, functions as F

from spark_jobs.gold.strategies import HOURS_A_DAY, Windows
from spark_jobs.lake import ranges

_MOST_BROADCAST = 200_000


@dataclass(frozen=True)
class Change:
    """Rows that came or went: `images` are all of them, `rows` those of their ids that are there now.

    Where nothing was changed or removed (`is_in_place` is false) both are the same. `hours` (since the epoch) hold all of them;
    None: they may be anywhere. `is_small`: each task can hold them.
    """

    images: DataFrame
    rows: DataFrame
    is_in_place: bool
    hours: tuple[int, ...] | None = None
    is_small: bool = False

    @property
    def only_added(self) -> bool:
        """Whether rows only came."""
        return not self.is_in_place

    def near(self, start: str, hours: int, end: str | None = None) -> Column:
        """Whether a time, or the span from it to `end`, is at most so many hours from a changed row; others may be true, too."""
        if self.hours is None:
            return F.lit(True)
        return ranges.overlap(start, end or start, ranges.around(self.hours, hours), ranges.HOUR)

    def among(self, rows: DataFrame, few: DataFrame) -> DataFrame:
        """The rows that agree with one of the other frame in its columns; that one is made of this change, and not much larger."""
        return rows.join(F.broadcast(few) if self.is_small else few, on=few.columns, how="left_semi")

    def on_days(self, day: str, around: int) -> Column:
        """Whether a day (a date) is one of changed rows, or at most `around` days before or after one; others may be true, too."""
        if self.hours is None:
            return F.lit(True)
        return ranges.overlap(day, day, ranges.around({hour // HOURS_A_DAY for hour in self.hours}, around), ranges.DAY)

    def of_windows(self, rows: DataFrame, windows: Windows) -> DataFrame:
        """Of rows of windows those whose window holds a changed row."""
        return self.among(rows, self.images.select(windows.starts("event_at").alias(windows.column)).distinct())

    def keys(self, key: str, _present: DataFrame, _time: str) -> DataFrame:
        """The customers or accounts of changed rows."""
        return self.images.select(key).distinct()

    def of_ids(self, rows: DataFrame, ids: Sequence[str], _times: Sequence[str]) -> DataFrame:
        """Of rows of a table those that name a changed row in one of these columns."""
        found = [self.among(rows, self.images.select(F.col("transaction_id").alias(name)).distinct()).select(*rows.columns) for name in ids]
        return found[0] if len(found) == 1 else reduce(DataFrame.unionByName, found).distinct()


@dataclass(frozen=True)
class Changes:
    """A part of silver's change feed: how many rows it has, its last version, the last one that changed or removed rows, their hours."""

    feed: DataFrame
    count: int
    last: int
    last_in_place: int
    hours: tuple[int, ...]

    @property
    def is_small(self) -> bool:
        """Whether each task can hold them."""
        return self.count <= _MOST_BROADCAST

    def after(self, version: int) -> Change:
        """What happened after a version."""
        images, is_in_place = self.feed.where(F.col("_commit_version") > version), version < self.last_in_place
        return Change(images, present_rows(images) if is_in_place else images, is_in_place, self.hours, self.is_small)


def hold_changes(feed: DataFrame) -> Changes | None:
    """Read a part of the change feed once, and keep it; None when there is nothing in it."""
    held = feed.localCheckpoint()
    is_in_place = F.col("_change_type") != "insert"
    facts = held.agg(
        F.count("*").alias("count"),
        F.max("_commit_version").alias("last"),
        F.max(F.when(is_in_place, F.col("_commit_version"))).alias("last_in_place"),
        F.collect_set(ranges.number("event_at", ranges.HOUR)).alias("hours"),
    ).collect()[0]
    if facts["last"] is None:
        return None
    return Changes(held, facts["count"], facts["last"], facts["last_in_place"] or 0, tuple(facts["hours"]))


def present_rows(feed: DataFrame) -> DataFrame:
    """Of a change feed, the rows that are there at its end: what the last commit that knows an id left of it.

    One commit may take a row of an id away and bring another one.
    """
    is_there = F.col("_change_type").isin("insert", "update_postimage")
    newest_first = Window.partitionBy("transaction_id").orderBy(F.desc("_commit_version"), is_there.desc())
    return feed.withColumn("_rank", F.row_number().over(newest_first)).where((F.col("_rank") == 1) & is_there).drop("_rank")
