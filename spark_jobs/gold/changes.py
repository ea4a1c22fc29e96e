"""What happened to silver.transactions since a gold table was last written: which rows came and went, and on which days."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

_MOST_RANGES = 40
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Change:
    """Rows that came or went: `images` are all of them, `rows` those of their ids that are there now.

    Where nothing was changed or removed (`is_in_place` is false) both are the same.
    """

    images: DataFrame
    rows: DataFrame
    is_in_place: bool


@dataclass(frozen=True)
class Changes:
    """A part of silver's change feed: its last version, the last one that changed or removed rows, and the days of the rows."""

    feed: DataFrame
    last: int
    last_in_place: int
    days: tuple[date, ...]

    def after(self, version: int) -> Change:
        """What happened after a version."""
        images, is_in_place = self.feed.where(F.col("_commit_version") > version), version < self.last_in_place
        return Change(images, present_rows(images) if is_in_place else images, is_in_place)


def hold_changes(feed: DataFrame) -> Changes | None:
    """Read a part of the change feed once, and keep it; None when there is nothing in it."""
    held = feed.localCheckpoint()
    is_in_place = F.col("_change_type") != "insert"
    facts = held.agg(
        F.max("_commit_version").alias("last"),
        F.max(F.when(is_in_place, F.col("_commit_version"))).alias("last_in_place"),
        F.collect_set("event_on").alias("days"),
    ).collect()[0]
    if facts["last"] is None:
        return None
    return Changes(held, facts["last"], facts["last_in_place"] or 0, tuple(facts["days"]))


def present_rows(feed: DataFrame) -> DataFrame:
    """Of a change feed, the rows that are there at its end: what the last commit that knows an id left of it.

    One commit may take a row of an id away and bring another one.
    """
    is_there = F.col("_change_type").isin("insert", "update_postimage")
    newest_first = Window.partitionBy("transaction_id").orderBy(F.desc("_commit_version"), is_there.desc())
    return feed.withColumn("_rank", F.row_number().over(newest_first)).where((F.col("_rank") == 1) & is_there).drop("_rank")


def on_days(days: Iterable[date], around: int) -> Column:
    """Whether `event_on` is one of these days, or at most `around` days before or after one; of many days, between first and last.

    Written in literals, so that Delta skips files by their statistics.
    """
    ranges: list[tuple[date, date]] = []
    for day in sorted(days):
        first, last = day - around * _DAY, day + around * _DAY
        if ranges and first <= ranges[-1][1] + _DAY:
            first = ranges.pop()[0]
        ranges.append((first, last))
    if len(ranges) > _MOST_RANGES:
        ranges = [(ranges[0][0], ranges[-1][1])]
    return reduce(or_, (F.col("event_on").between(F.lit(first), F.lit(last)) for first, last in ranges), F.lit(False))
