"""Rows that are judged once more, by a re-drive or a backfill: what must then change in which silver table.

Silver is afterwards what a computation from bronze and corrections, in order of arrival, would give. Nothing is written here.
"""

from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession, functions as F

from expectations.row_rules import RuleSet
from spark_jobs import control
from spark_jobs.control import corrections
from spark_jobs.control.corrections import PLACE
from spark_jobs.lake import sinks, sources, tables
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.settings import Settings
from spark_jobs.silver import history, recompute, transactions
from spark_jobs.silver.judge import is_valid
from spark_jobs.silver.topics import Topic

_FEW = 1_000_000  # so many coordinates are sent to every task


@dataclass(frozen=True)
class Rejudged:
    """Rows of one topic that are judged once more: their coordinates, and the first of their batches."""

    spark: SparkSession
    settings: Settings
    topic: Topic
    rules: RuleSet
    places: DataFrame
    since: int

    def read(self, table: Table) -> DataFrame:
        """A table as it is now."""
        return sources.read_table(self.spark, self.settings, table)

    def effective(self, bronze: DataFrame) -> DataFrame:
        """Bronze rows with the values by which they were found valid."""
        return corrections.correct(bronze, corrections.in_effect(self.settings, self.topic.silver), self.spark)


@dataclass(frozen=True)
class Changes:
    """What must change in which table, in the order of writing; all of it is computed and kept already.

    `valid` are the valid rows of the ids or keys that are touched, each with what became of it. `newest` is the largest event time
    of all valid transactions in each batch.
    """

    valid: DataFrame
    writes: list[tuple[Table, DataFrame]] = field(default_factory=list)
    newest: DataFrame | None = None


def places_of(rows: DataFrame, count: int) -> DataFrame:
    """The coordinates of rows, about `count` of them, ready to be joined with more than once."""
    places = rows.select(*PLACE)
    return F.broadcast(places) if count <= _FEW else places


def change_transactions(rows: Rejudged, judged: DataFrame) -> Changes:
    """What must change in the tables of valid transactions. `judged` has the columns that `judge_transactions` gives."""
    passed = judged.where(is_valid())
    silver, duplicates = rows.read(tables.SILVER_TRANSACTIONS), rows.read(tables.TRANSACTIONS_DUPLICATES)
    ids = recompute.touched_ids(passed, rows.places, silver, duplicates).localCheckpoint()

    def of_ids(frame: DataFrame) -> DataFrame:
        return frame.join(ids, on="transaction_id", how="left_semi")

    def of_others(frame: DataFrame) -> DataFrame:
        return frame.join(ids, on="transaction_id", how="left_anti")

    # Duplicates lack their content. Of other ids only the times of conflicting ones count: the others have those of their firsts.
    needed = of_ids(duplicates).unionByName(of_others(duplicates.where("is_conflicting")))
    needed = recompute.without(needed, rows.places).select(*PLACE)
    bronze = recompute.within(rows.read(rows.topic.bronze), needed)
    typed = transactions.type_transactions(rows.effective(bronze)).select(*silver.columns).localCheckpoint()
    marked = recompute.marked_rows(passed, rows.places, silver, typed, ids).localCheckpoint()
    first = marked.where("is_first").select(*silver.columns)
    after, others = of_others(silver).unionByName(first), of_others(typed).unionByName(marked.select(*silver.columns))
    newest = recompute.newest_by_batch(after, others).localCheckpoint()
    late = recompute.late_rows(after, newest, rows.since, rows.settings.allowed_lateness_seconds)

    of_silver = sinks.changes_of(tables.SILVER_TRANSACTIONS, of_ids(silver), first)
    of_duplicates = sinks.changes_of(tables.TRANSACTIONS_DUPLICATES, of_ids(duplicates), marked.where("not is_first"))
    of_late = sinks.changes_of(tables.TRANSACTIONS_LATE, rows.read(tables.TRANSACTIONS_LATE).where(F.col("_batch") >= rows.since), late)
    entries = recompute.missing_entries(of_silver.where("not _is_gone"), rows.read(tables.TRANSACTION_IDS)).localCheckpoint()
    writes = [  # a row that moves is in two places for a moment, and never in none
        (tables.TRANSACTION_IDS, entries),
        (tables.TRANSACTIONS_DUPLICATES, of_duplicates.where("not _is_gone")),
        (tables.SILVER_TRANSACTIONS, of_silver),
        (tables.TRANSACTIONS_DUPLICATES, of_duplicates.where("_is_gone")),
        (tables.TRANSACTIONS_LATE, of_late),
    ]
    return Changes(marked, writes, newest)


def change_dimension(rows: Rejudged, judged: DataFrame, dimension: history.Dimension, others: DataFrame | None = None) -> Changes:
    """What must change in the history of the keys that judged messages speak of, and of some `others` (silver rows of theirs).

    `judged` has the columns that `judge_messages` gives.
    """
    silver = rows.read(rows.topic.silver)
    keys = judged.select("key") if others is None else judged.select("key").union(others.select(F.col(dimension.key).cast("binary")))
    keys = keys.distinct().localCheckpoint()
    done = control.last_batch(rows.settings, "silver", rows.topic.silver.name)
    bronze = rows.read(rows.topic.bronze).where(F.col("_batch") <= done).join(keys, on="key", how="left_semi")
    valid = recompute.without(recompute.without(bronze, rows.read(rows.topic.quarantine).select(*PLACE)), rows.places)
    after = recompute.classified_messages(judged.where(is_valid()), rows.effective(valid), dimension).localCheckpoint()
    present = silver.join(keys.select(F.col("key").cast("string").alias(dimension.key)), on=dimension.key, how="left_semi")
    return Changes(after, [(rows.topic.silver, sinks.changes_of(rows.topic.silver, present, history.versions(after, dimension)))])


def last_write(settings: Settings, topic: Topic, application: str) -> int:
    """The number of the last write of an application to any table of a topic."""
    return max(sinks.applied(settings, table, application) or 0 for table in topic.written)
