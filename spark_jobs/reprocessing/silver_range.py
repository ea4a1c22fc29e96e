"""Silver of a range of event times, rebuilt from bronze by the rules of a backfill.

First the rows of the range are looked for in all of bronze and judged (`stage`), once and in parallel; then silver is brought to
what they say, a part of the range at a time. Rows are written only where silver differs.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.types import StructType

from expectations.row_rules import RuleSet
from spark_jobs import control
from spark_jobs.control import corrections, rebuilt, redrives
from spark_jobs.control.corrections import PLACE
from spark_jobs.lake import sinks, sources
from spark_jobs.lake.kept import in_memory, kept
from spark_jobs.lake.tables import ARRIVAL, CORRECTIONS, LAYERS, Table
from spark_jobs.lake.topic import Topic
from spark_jobs.lake.txn import Txn
from spark_jobs.reprocessing import outcomes, reads, rejudge
from spark_jobs.reprocessing.rejudge import Rejudged
from spark_jobs.runtime import storage
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.times import from_micros, midnight
from spark_jobs.silver import events, id_index, recompute
from spark_jobs.silver.judge import is_valid
from spark_jobs.silver.records import judge_parsed, parse_records

APPLICATION = "backfill"


@dataclass(frozen=True)
class Staged:
    """The judged rows of a topic, in a range: by which rules, up to which bronze batch, with which corrections.

    A few are held in memory, many are kept in a folder.
    """

    topic: Topic
    rules: RuleSet
    folder: Path
    last_batch: int
    corrections: int
    schema: StructType
    few: pa.Table | None = None

    def is_fresh(self, settings: Settings) -> bool:
        """Whether the rows would be judged just so now: no correction came."""
        return self.corrections == _corrections(settings)

    def rows(self, spark: SparkSession) -> DataFrame:
        """The judged rows."""
        return spark.read.schema(self.schema).parquet(str(self.folder)) if self.few is None else in_memory(spark, self.few)

    def days(self, spark: SparkSession) -> list[tuple[datetime, int]]:
        """The beginnings of the days that have rows, in order, and how many rows these are."""
        days = self.rows(spark).groupBy(F.to_date("_at").alias("day")).agg(F.count("*").alias("rows"))
        return sorted((midnight(row["day"]), row["rows"]) for row in days.collect())


@dataclass(frozen=True)
class Rebuilt:
    """What a rebuild did: judged rows, changed rows by table, and the largest event time of all valid events of the topic."""

    rows: int
    changed: dict[Table, int]
    newest_event_at: datetime | None = None


def stage(spark: SparkSession, settings: Settings, topic: Topic, rules: RuleSet, start: datetime, end: datetime, folder: Path) -> Staged:
    """Judge, by these rules and with their newest corrections, the rows of a topic whose time is in [start, end).

    The time is that of an event, and from when on a version holds. Rows whose time cannot
    be read are in no range. Only batches are looked at that silver has taken; later ones are judged by today's rules anyway.
    """
    storage.remove(folder)
    last, given = control.last_batch(settings, "silver", topic.silver.name), _corrections(settings)
    few = reads.few_records(settings, topic, last, start, end)
    bronze = reads.read_table(spark, settings, topic.bronze).where(F.col("_batch") <= last) if few is None else in_memory(spark, few)
    judged = _judge(spark, settings, topic, rules, bronze, sources.between("_at", start, end))
    if few is not None:
        return Staged(topic, rules, folder, last, given, judged.schema, judged.toArrow())
    judged.write.parquet(str(folder))
    return Staged(topic, rules, folder, last, given, judged.schema)


def rebuild_silver(
    spark: SparkSession,
    settings: Settings,
    staged: Staged,
    start: datetime,
    end: datetime,
    run_id: str,
    on_write: Callable[[datetime | None], None] | None,
) -> Rebuilt:
    """Bring the silver tables of a topic to what the staged rows of [start, end) say; the caller holds silver's leases.

    Rows that silver holds in this range without any such row of bronze go, too. `on_write` is called before each write, with the
    largest event time that all valid events will have; with None nothing is written. May be repeated.
    """
    with sinks.configured(spark, id_index.SESSION):
        return _Rebuild(spark, settings, staged, start, end).run(run_id, on_write)


@dataclass(frozen=True)
class _Rebuild:
    spark: SparkSession
    settings: Settings
    staged: Staged
    start: datetime
    end: datetime

    @property
    def topic(self) -> Topic:
        return self.staged.topic

    def read(self, table: Table) -> DataFrame:
        return reads.read_table(self.spark, self.settings, table)

    def run(self, run_id: str, on_write: Callable[[datetime | None], None] | None) -> Rebuilt:
        staged = self.staged.rows(self.spark).where(sources.between("_at", self.start, self.end))
        count = staged.count()
        few = reads.few_within(self.settings, self.topic.silver, self.start, self.end)
        if self.topic.has_versions and not count and few is not None and not few.num_rows:
            return Rebuilt(0, {})
        here = self.read(self.topic.silver) if few is None else in_memory(self.spark, few)
        here = here.where(sources.between(self.topic.silver.time_column or "", self.start, self.end))
        here = here.where(F.col("_batch") <= self.staged.last_batch)
        judged, places = self.judged(staged, here)
        found, since = places.agg(F.count("*"), F.min("_batch")).collect()[0]
        if not found:
            return Rebuilt(count, {})
        rows = Rejudged(self.spark, self.settings, self.topic, self.staged.rules, rejudge.places_of(places, found), since)
        changes = rejudge.changes_of(rows, judged, others=here)
        broken = judged.where(~is_valid())
        quarantine = recompute.within(self.read(self.topic.quarantine), rows.places)
        of_quarantine = sinks.changes_of(self.topic.quarantine, quarantine, broken)
        writes = [  # a row that moves is in two places for a moment, and never in none
            (self.topic.quarantine, of_quarantine.where("not _is_gone")),
            *changes.writes,
            (self.topic.quarantine, of_quarantine.where("_is_gone")),
        ]
        noted = outcomes.noted(rows, outcomes.outcomes(rows, broken, changes)).transform(kept)
        newest = from_micros(changes.newest.agg(F.unix_micros(F.max("newest"))).collect()[0][0]) if changes.newest else None
        changes_made = [(table, difference, rows_changed) for table, difference in writes if (rows_changed := difference.count())]
        changed: dict[Table, int] = {}
        for table, _, rows_changed in changes_made:
            changed[table] = changed.get(table, 0) + rows_changed
        if on_write and changes_made:  # all is computed and kept by now: from here on the tables change
            on_write(newest)
            with self.noted(staged, count, changes_made):
                last = redrives.last_write(self.settings, self.topic, self.application)
                for number, (table, difference, _) in enumerate(changes_made, start=last + 1):
                    sinks.merge_changes(difference, self.settings, table, Txn(self.application, number))
        if on_write and not noted.isEmpty():
            outcomes.record(rows, noted, APPLICATION, run_id)
        return Rebuilt(count, changed, newest)

    def noted(self, staged: DataFrame, count: int, changes: Sequence[tuple[Table, DataFrame, int]]) -> AbstractContextManager[None]:
        """Note what the gate is to judge: the records of the range, and every row that changes. Not where bronze has no such record."""
        frames = [difference.select(*PLACE) for table, difference, _ in changes if table in LAYERS["silver"]]
        if not count or not frames:
            return nullcontext()
        places = reduce(DataFrame.union, frames, staged.select(*PLACE)).distinct()
        return rebuilt.noted(self.settings, self.topic.name, lambda folder: places.write.format("delta").mode("append").save(str(folder)))

    @property
    def application(self) -> str:
        return control.application(self.settings, APPLICATION)

    def judged(self, staged: DataFrame, here: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Of the staged rows those that silver must be compared with in full, and the coordinates and batches of all that may differ.

        Of events these are the rows that silver holds otherwise, and those whose outcome a process that died left unrecorded.
        Among them are those that silver has in the range (`here`) although bronze has them elsewhere, or nowhere. The second frame has the
        coordinates and batches of all of them, those that bronze does not have included.
        """
        changed, held = staged, here
        if not self.topic.has_versions:
            others = [self.read(table) for table in (*self.topic.valid, self.topic.quarantine)]
            differing = recompute.changed_places(self.topic, staged, here, *others)
            differing = differing.union(outcomes.unsettled(self.spark, self.settings, self.topic, self.staged.rules)).transform(kept)
            if not (found := differing.count()):
                return staged.limit(0), staged.limit(0).select(*ARRIVAL)
            differing = rejudge.places_of(differing, found)
            changed, held = recompute.within(staged, differing), recompute.within(here, differing)
        orphans = recompute.without(held, staged.select(*PLACE)).select(*ARRIVAL)
        changed, orphans = changed.transform(kept), orphans.transform(kept)
        if orphans.isEmpty():
            return changed, changed.select(*ARRIVAL)
        bronze = recompute.within(self.read(self.topic.bronze), orphans.select(*PLACE))
        judged = changed.unionByName(_judge(self.spark, self.settings, self.topic, self.staged.rules, bronze, F.lit(True))).transform(kept)
        return judged, changed.select(*ARRIVAL).union(orphans)


def _judge(spark: SparkSession, settings: Settings, topic: Topic, rules: RuleSet, bronze: DataFrame, where: Column) -> DataFrame:
    """Bronze rows with their newest corrections, judged: `_at` is their time, value what Kafka brought."""
    values = {place: correction.value for place, correction in corrections.newest(settings).items()}
    rows = corrections.correct(bronze.withColumn("_brought", F.col("value")), values, spark)
    parsed = parse_records(rows, topic, rules.schemas)
    # To Spark this time is not deterministic, so it is computed once a row: merged with the filter, parsing would be repeated, at 15 times
    # the cost.
    parsed = parsed.withColumn("_at", F.when(F.spark_partition_id() >= 0, F.col("_at"))).where(where)
    if topic.has_versions:
        return judge_parsed(parsed, topic, rules).withColumn("value", F.col("_brought")).drop("_brought", "_text")
    judged = events.judge_parsed(parsed, topic, rules, "_brought", "_at")
    return judged.withColumn("value", F.when(~is_valid(), F.col("_brought"))).drop("_brought")


def _corrections(settings: Settings) -> int:
    """The version of control.corrections; -1 when there is none yet."""
    return CORRECTIONS.open(settings).version() if CORRECTIONS.exists(settings) else -1
