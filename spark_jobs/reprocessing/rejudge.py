"""Rows that are judged again, by a re-drive or a backfill: what must then change in which silver table.

Silver is afterwards what a computation from bronze and corrections, in order of arrival, would give. Nothing is written here.
"""

from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession, functions as F

from expectations.row_rules import RuleSet
from expectations.wire_format import WireSchema
from spark_jobs import control
from spark_jobs.control import corrections, rule_sets
from spark_jobs.control.corrections import PLACE
from spark_jobs.lake import sinks
from spark_jobs.lake.kept import kept
from spark_jobs.lake.table import Table
from spark_jobs.lake.topic import Topic
from spark_jobs.reprocessing import reads
from spark_jobs.runtime.settings import Settings
from spark_jobs.silver import history, recompute
from spark_jobs.silver.judge import is_valid
from spark_jobs.silver.records import parse_records, type_records

_FEW = 1_000_000  # so many coordinates are sent to every task


@dataclass(frozen=True)
class Rejudged:
    """Rows of one topic that are judged again: their coordinates, and the first of their batches."""

    spark: SparkSession
    settings: Settings
    topic: Topic
    rules: RuleSet
    places: DataFrame
    since: int

    def read(self, table: Table) -> DataFrame:
        """A table as it is now."""
        return reads.read_table(self.spark, self.settings, table)

    @property
    def schemas(self) -> tuple[WireSchema, ...]:
        """By which values are read that were found valid, now or before: all that are on record, also where the rules are older."""
        return rule_sets.schemas(self.settings, self.topic.name)

    def effective(self, bronze: DataFrame) -> DataFrame:
        """Bronze rows with the values by which they were found valid."""
        return corrections.correct(bronze, corrections.in_effect(self.settings, self.topic.silver), self.spark)


@dataclass(frozen=True)
class Changes:
    """What must change in which table, in the order of writing; all of it is computed and kept already.

    `valid` are the valid rows of the keys that are touched, each with its outcome. `newest` is the largest event time
    of all valid events in each batch.
    """

    valid: DataFrame
    writes: list[tuple[Table, DataFrame]] = field(default_factory=list)
    newest: DataFrame | None = None


def places_of(rows: DataFrame, count: int) -> DataFrame:
    """The coordinates of rows, about `count` of them, ready to be joined with more than once."""
    places = rows.select(*PLACE)
    return F.broadcast(places) if count <= _FEW else places


def change_events(rows: Rejudged, judged: DataFrame) -> Changes:
    """What must change in the tables of valid events. `judged` has the columns that `judge_events` gives."""
    topic, passed = rows.topic, judged.where(is_valid())
    silver, duplicates, present_late = map(rows.read, (topic.silver, topic.duplicates, topic.late))
    keys = recompute.touched_keys(topic, passed, rows.places, silver, duplicates).transform(kept)

    def of_keys(frame: DataFrame) -> DataFrame:
        return frame.join(keys, on=topic.key, how="left_semi")

    def of_others(frame: DataFrame) -> DataFrame:
        return frame.join(keys, on=topic.key, how="left_anti")

    # Duplicates lack their content. Of other keys only the times of conflicting ones count: the others have those of their firsts.
    needed = of_keys(duplicates).unionByName(of_others(duplicates.where("is_conflicting")))
    needed = recompute.without(needed, rows.places).select(*PLACE)
    bronze = recompute.within(rows.read(topic.bronze), needed)
    typed = type_records(parse_records(rows.effective(bronze), topic, rows.schemas), topic).select(*silver.columns).transform(kept)
    marked = recompute.marked_rows(topic, passed, rows.places, silver, typed, keys).transform(kept)
    first = marked.where("is_first").select(*silver.columns)
    after, others = of_others(silver).unionByName(first), of_others(typed).unionByName(marked.select(*silver.columns))
    newest = recompute.newest_by_batch(after, others).transform(kept)
    late = recompute.late_rows(after, newest, rows.since, rows.settings.allowed_lateness_seconds)

    of_silver = sinks.changes_of(topic.silver, of_keys(silver), first)
    of_duplicates = sinks.changes_of(topic.duplicates, of_keys(duplicates), marked.where("not is_first"))
    of_late = sinks.changes_of(topic.late, present_late.where(F.col("_batch") >= rows.since), late)
    entries = recompute.missing_entries(topic, of_silver.where("not _is_gone"), rows.read(topic.ids)).transform(kept)
    writes = [  # a row that moves is in two places for a moment, and never in none
        (topic.ids, entries),
        (topic.duplicates, of_duplicates.where("not _is_gone")),
        (topic.silver, of_silver),
        (topic.duplicates, of_duplicates.where("_is_gone")),
        (topic.late, of_late),
    ]
    return Changes(marked, writes, newest)


def changes_of(rows: Rejudged, judged: DataFrame, others: DataFrame | None = None) -> Changes:
    """What must change in the tables of a topic's valid rows; `others` are silver rows of versions that are touched, too."""
    return change_versions(rows, judged, others) if rows.topic.has_versions else change_events(rows, judged)


def change_versions(rows: Rejudged, judged: DataFrame, others: DataFrame | None = None) -> Changes:
    """What must change in the history of the keys that judged messages speak of, and of some `others` (silver rows of theirs).

    `judged` has the columns that `judge_messages` gives.
    """
    topic, silver = rows.topic, rows.read(rows.topic.silver)
    keys = judged.select("key") if others is None else judged.select("key").union(others.select(F.col(topic.key).cast("binary")))
    keys = keys.distinct().transform(kept)
    done = control.last_batch(rows.settings, "silver", topic.silver.name)
    bronze = rows.read(topic.bronze).where(F.col("_batch") <= done).join(keys, on="key", how="left_semi")
    valid = recompute.without(recompute.without(bronze, rows.read(topic.quarantine).select(*PLACE)), rows.places)
    after = recompute.classified_messages(topic, judged.where(is_valid()), rows.effective(valid), rows.schemas).transform(kept)
    present = silver.join(keys.select(F.col("key").cast("string").alias(topic.key)), on=topic.key, how="left_semi")
    return Changes(after, [(topic.silver, sinks.changes_of(topic.silver, present, history.versions(after, topic)))])
