"""What happened to silver.transactions since a gold table was last written: which rows came and went, and in which hours."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, Window, functions as F

from spark_jobs.gold.inputs import hold
from spark_jobs.gold.strategies import ALL, HOURS_A_DAY, Inputs, Windows
from spark_jobs.lake import few_rows, ranges, sinks, sources
from spark_jobs.lake.kept import in_memory
from spark_jobs.lake.ranges import Where
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.session import HELD_PLANS, SMALL_PLANS
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import quoted

MOST_SMALL = 20_000  # rows that each task can hold
MOST_HELD = 250_000  # rows of a feed in memory; their neighbours in most tables, and what changes of these, fit beside them


@dataclass(frozen=True)
class Change:
    """Rows that came or went, or that look up another version now: `images` are all of them, `rows` those of their ids that are there now.

    Where rows only came (`is_in_place` is false) both are the same. `hours` (since the epoch) hold all of them;
    None: they may be anywhere. `few`: the images in memory, None where they are many. `is_small`: each task can hold them.
    """

    images: DataFrame
    rows: DataFrame
    is_in_place: bool
    hours: tuple[int, ...] | None = None
    few: pa.Table | None = None
    is_small: bool = False
    span: None = None

    @property
    def touches_few(self) -> bool:
        """Whether what it changes of most tables fits into memory."""
        return self.is_small or self.few is not None

    @property
    def only_added(self) -> bool:
        """Whether rows only came."""
        return not self.is_in_place

    def near(self, start: str, hours: float, end: str | None = None, *, key: str | None = None) -> Where:
        """Whether a time, or the span from it to `end`, is at most so many hours from a changed row; others may be true, too."""
        if self.hours is None:
            return ALL
        is_wanted = self._beside(key, start, end or start, math.ceil(hours * ranges.HOUR.seconds), ranges.SECOND)
        return ranges.near(start, end or start, self.hours, math.ceil(hours), ranges.HOUR, is_wanted)

    def among(self, rows: DataFrame, few: DataFrame) -> DataFrame:
        """The rows that agree with one of the other frame in its columns; that one is made of this change, and not much larger."""
        return rows.join(F.broadcast(few) if self.is_small else few, on=few.columns, how="left_semi")

    def on_days(self, day: str, around: int, *, key: str | None = None) -> Where:
        """Whether a day (a date) is one of changed rows, or at most `around` days before or after one; others may be true, too."""
        if self.hours is None:
            return ALL
        days = {hour // HOURS_A_DAY for hour in self.hours}
        return ranges.near(day, day, days, around, ranges.DAY, self._beside(key, day, day, around, ranges.DAY))

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

    def _beside(self, key: str | None, start: str, end: str, width: int, unit: ranges.Unit) -> Callable[[pa.Table], pa.Array] | None:
        return None if self.few is None else ranges.beside(self.few, key, start, end, width, unit)


@dataclass(frozen=True)
class Changes:
    """A part of silver's change feed: how many rows it has, of which versions, the last one that changed or removed rows, their times."""

    feed: DataFrame
    count: int
    first: int
    last: int
    last_in_place: int
    hours: tuple[int, ...]
    few: pa.Table | None = None

    @property
    def is_small(self) -> bool:
        """Whether each task can hold them."""
        return self.count <= MOST_SMALL

    @property
    def plans(self) -> dict[str, str]:
        """How Spark plans what is made of them."""
        if self.is_small:
            return SMALL_PLANS
        return {} if self.few is None else HELD_PLANS

    def after(self, version: int) -> Change:
        """What happened after a version."""
        images, few, is_in_place = self.feed, self.few, version < self.last_in_place
        if version >= self.first:  # else without a filter: generated code holds its number, and would be compiled anew in each run
            images = images.where(F.col("_commit_version") > version)
            few = None if few is None else few.filter(pc.field("_commit_version") > version)
        rows = present_rows(images) if is_in_place else images
        return Change(images, rows, is_in_place, self.hours, few, self.is_small)


@dataclass(frozen=True)
class Feed:
    """A part of a table's change feed, as Spark sees it, and in memory where it was found to fit."""

    rows: DataFrame
    few: pa.Table | None = None


def read_feed(spark: SparkSession, settings: Settings, table: Table, after: int, upto: int) -> Feed:
    """The change feed of a table after one of its versions, up to another one; by Spark where it has more than MOST_HELD rows."""
    few = few_rows.changes(settings, table, after, upto, MOST_HELD)
    return Feed(sources.read_changes(spark, settings, table, after, upto)) if few is None else Feed(in_memory(spark, few), few)


def hold_changes(feed: Feed) -> Changes | None:
    """Read a part of the change feed once, and keep it; None when there is nothing in it. Many rows stay cached until `unpersist`."""
    if feed.few is None and (found := sinks.collect_few(feed.rows, MOST_HELD)) is not None:
        feed = Feed(in_memory(feed.rows.sparkSession, found), found)
    if (few := feed.few) is not None:
        versions, is_in_place = few["_commit_version"], pc.not_equal(few["_change_type"], "insert")
        in_place = pc.max(versions.filter(is_in_place)).as_py()
        if not few.num_rows:
            return None
        first, last = pc.min_max(versions).as_py().values()
        return Changes(feed.rows, few.num_rows, first, last, in_place or 0, _hours_of(few), few)
    held = feed.rows.persist()
    of_place = F.when(F.col("_change_type") != "insert", F.col("_commit_version"))
    facts = held.agg(
        F.count("*").alias("count"),
        F.min("_commit_version").alias("first"),
        F.max("_commit_version").alias("last"),
        F.max(of_place).alias("last_in_place"),
        F.collect_set(ranges.number("event_at", ranges.HOUR)).alias("hours"),
    ).collect()[0]
    return Changes(held, facts["count"], facts["first"], facts["last"], facts["last_in_place"] or 0, tuple(facts["hours"]))


@dataclass(frozen=True)
class Versions:
    """A part of the change feed of a history: its `last` commit, and per key the earliest time at which another version may hold.

    `since` has the columns key and `_since`. `first` is the earliest of these times, in microseconds since the epoch; None where
    nothing changes for anybody.
    """

    since: DataFrame
    key: str
    last: int
    first: int | None
    are_few: bool

    def change(self, inputs: Inputs, *, is_temporal: bool) -> Change:
        """The transactions of these keys; of those that look up the version that is valid then (`is_temporal`), from these times on."""
        if is_temporal and self.first is None:
            rows = inputs.silver().limit(0)
            return Change(rows, rows, is_in_place=True, hours=(), is_small=True)
        silver = inputs.silver(ranges.since("event_at", self.first) if is_temporal and self.first is not None else ALL)
        since = F.broadcast(self.since) if self.are_few else self.since
        is_touched = (F.col("event_at") >= F.col("_since")) if is_temporal else F.lit(True)
        touched = silver.join(since, on=self.key).where(is_touched).selectExpr(*quoted(silver.columns))
        if not self.are_few:
            return Change(touched, touched, is_in_place=True)
        rows, few = hold(touched)
        hours = None if few is None else _hours_of(few)
        return Change(rows, rows, is_in_place=True, hours=hours, few=few, is_small=few is not None)


def hold_versions(feed: Feed, key: str) -> Versions | None:
    """Read a part of the change feed of a history, and keep what it says; None when there is nothing in it.

    Where a commit changes nothing of a version but its `valid_to`, other versions hold from the earlier one of both times on.
    """
    same = [name for name in feed.rows.columns if name not in ("valid_to", "is_current", "_change_type")]
    since = F.expr("case when count(*) > 1 then min(valid_to) else valid_from end as _since")
    by_commit = feed.rows.groupBy(*same).agg(since)
    by_key = by_commit.groupBy(key).agg(F.min("_since").alias("_since"), F.max("_commit_version").alias("_last"))
    held, few = hold(by_key)
    facts = (
        held.agg(F.max("_last"), F.unix_micros(F.min("_since"))).collect()[0]
        if few is None
        else (pc.max(few["_last"]).as_py(), pc.min(few["_since"]).cast("int64").as_py())
    )
    if facts[0] is None:
        return None
    return Versions(held.select(key, "_since"), key, facts[0], facts[1], few is not None)


def _hours_of(rows: pa.Table) -> tuple[int, ...]:
    """The hours (since the epoch) of silver rows."""
    return tuple(ranges.numbers(rows["event_at"], ranges.HOUR))


def present_rows(feed: DataFrame) -> DataFrame:
    """Of a change feed, the rows that are there at its end: what the last commit that knows an id left of it.

    One commit may take a row of an id away and bring another one.
    """
    is_there = F.col("_change_type").isin("insert", "update_postimage")
    newest_first = Window.partitionBy("transaction_id").orderBy(F.desc("_commit_version"), is_there.desc())
    return feed.withColumn("_rank", F.row_number().over(newest_first)).where((F.col("_rank") == 1) & is_there).drop("_rank")
