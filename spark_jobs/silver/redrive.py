"""The job behind `run redrive`: judges rows of quarantine again, by the newest rules or with corrected values.

Silver is afterwards what a computation from bronze and corrections, in order of arrival, would give. The quarantine is written
last: a run that died is repeated whole, and finds by their coordinates the rows that it has put in place already.
"""

import logging
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import and_

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from expectations.row_rules import RuleSet, read_rules
from spark_jobs import control, sinks, sources, tables
from spark_jobs.faults import kill_point
from spark_jobs.settings import Settings
from spark_jobs.silver import corrections, history, known, recompute, transactions
from spark_jobs.silver.corrections import PLACE
from spark_jobs.silver.judge import is_valid
from spark_jobs.silver.redrive_plan import APPLICATION, Plan, Topic, is_halfway, last_write
from spark_jobs.tables import ARRIVAL, Table

log = logging.getLogger(__name__)

_FEW = 1_000_000  # so many coordinates are sent to every task
_PLACE = "_topic string, _partition int, _offset bigint"


@dataclass(frozen=True)
class _Drive:
    """One topic's re-drive: the quarantined rows that are judged again, and by what."""

    spark: SparkSession
    settings: Settings
    topic: Topic
    rules: RuleSet
    rows: DataFrame
    places: DataFrame  # their coordinates
    since: int  # the first of their batches
    until: int  # the last

    def read(self, table: Table) -> DataFrame:
        return sources.read_table(self.spark, self.settings, table)

    def new_values(self) -> DataFrame:
        """The rows as bronze has them, with their newest corrections in place of their values."""
        bronze = self.read(self.topic.bronze).where(F.col("_batch").between(self.since, self.until))
        values = {place: correction.value for place, correction in corrections.newest(self.settings).items()}
        return corrections.correct(recompute.within(bronze, self.places), values, self.spark)

    def effective(self, bronze: DataFrame) -> DataFrame:
        """Bronze rows with the values by which they were found valid."""
        return corrections.correct(bronze, corrections.in_effect(self.settings, self.topic.silver), self.spark)


@dataclass(frozen=True)
class _Result:
    """The judged rows (with detail), the outcome of each, and what must change in which table, in the order of writing."""

    judged: DataFrame
    outcomes: DataFrame
    changes: list[tuple[Table, DataFrame]]


def run(spark: SparkSession, settings: Settings, plan: Plan, run_id: str) -> None:
    """Append the plan's corrections, judge its rows again, put those that pass in their old places and record what happened."""
    for name, value in known.SESSION.items():
        spark.conf.set(name, value)
    if added := corrections.append(settings, plan.corrections, datetime.now(UTC)):
        log.info("control.corrections: %d added", added)
    for topic in plan.topics:
        _redrive(spark, settings, topic, plan, run_id)
    log.info("next: the DAG medallion, or by hand gate bronze, gate silver, gold, gate gold, release")


def _redrive(spark: SparkSession, settings: Settings, topic: Topic, plan: Plan, run_id: str) -> None:
    halfway = is_halfway(settings, topic)
    rows = _select_rows(spark, settings, topic, plan, halfway).localCheckpoint()
    count, since, until = rows.agg(F.count("*"), F.coalesce(F.min("_batch"), F.lit(0)), F.coalesce(F.max("_batch"), F.lit(0))).collect()[0]
    if not count and not halfway:
        log.info("%s: found no row that breaks %s, nothing to do", topic.quarantine.name, plan.rule)
        return
    places = F.broadcast(rows.select(*PLACE)) if count <= _FEW else rows.select(*PLACE)
    drive = _Drive(spark, settings, topic, read_rules(topic.name), rows, places, since, until)
    result = _judge_transactions(drive) if topic.dimension is None else _judge_messages(drive, topic.dimension)
    outcomes = result.outcomes.localCheckpoint()
    quarantine = _change(topic.quarantine, rows, recompute.updated_quarantine(rows, result.judged))
    number = last_write(settings, topic)  # all is computed and kept by now: from here on the tables change
    for table, changed in result.changes:
        if table == topic.silver or not changed.isEmpty():  # a re-drive is known by the version that it gives the silver table
            number += 1
            _merge(changed, settings, table, number)
    _record(drive, outcomes, plan, run_id)
    _merge(quarantine, settings, topic.quarantine, number + 1)


def _change(table: Table, present: DataFrame, wanted: DataFrame) -> DataFrame:
    """What must change in a table, computed now."""
    return sinks.difference(present, wanted.select(*table.columns), on=table.keys).localCheckpoint()


def _merge(changed: DataFrame, settings: Settings, table: Table, number: int) -> None:
    application = control.application(settings, APPLICATION)
    keys = table.keys or table.columns
    sinks.merge_rows(changed, settings, table, application=application, upto=number, on=keys, deletes_where="s._is_gone")


def _select_rows(spark: SparkSession, settings: Settings, topic: Topic, plan: Plan, halfway: bool) -> DataFrame:
    """The quarantined rows that are judged again, with those that a re-drive which died halfway has put in place already."""

    def read(table: Table) -> DataFrame:
        return sources.read_table(spark, settings, table)

    quarantine = read(topic.quarantine)
    places = spark.createDataFrame([each.place for each in plan.corrections], _PLACE)
    if halfway:
        redriven = read(tables.REDRIVES).where((F.col("table") == topic.silver.name) & (F.col("outcome") != "quarantine"))
        places = reduce(DataFrame.union, [places, *(rows.select(*PLACE) for rows in (redriven, *map(read, topic.valid)))])
    asked = quarantine.where(F.array_contains("broken_rules", plan.rule))
    return asked.union(recompute.within(quarantine, places)).dropDuplicates(PLACE)


def _judge_transactions(drive: _Drive) -> _Result:
    judged = transactions.judge_transactions(drive.new_values(), drive.rules).localCheckpoint()
    passed = judged.where(is_valid())
    silver, duplicates = drive.read(tables.SILVER_TRANSACTIONS), drive.read(tables.TRANSACTIONS_DUPLICATES)
    ids = recompute.touched_ids(passed, drive.places, silver, duplicates).localCheckpoint()

    def of_ids(rows: DataFrame) -> DataFrame:
        return rows.join(ids, on="transaction_id", how="left_semi")

    def of_others(rows: DataFrame) -> DataFrame:
        return rows.join(ids, on="transaction_id", how="left_anti")

    # Duplicates lack their content. Of other ids only the times of conflicting ones count: the others have those of their firsts.
    needed = of_ids(duplicates).unionByName(of_others(duplicates.where("is_conflicting"))).select(*PLACE)
    bronze = recompute.within(drive.read(drive.topic.bronze), needed)
    typed = transactions.type_transactions(drive.effective(bronze)).select(*silver.columns).localCheckpoint()
    marked = recompute.marked_rows(passed, drive.places, silver, typed, ids).localCheckpoint()
    first = marked.where("is_first").select(*silver.columns)
    others = of_others(typed).unionByName(marked.select(*silver.columns))
    lateness = drive.settings.allowed_lateness_seconds
    late = recompute.late_rows(of_others(silver).unionByName(first), others, drive.since, lateness)

    of_silver = _change(tables.SILVER_TRANSACTIONS, of_ids(silver), first)
    of_duplicates = _change(tables.TRANSACTIONS_DUPLICATES, of_ids(duplicates), marked.where("not is_first"))
    of_late = _change(tables.TRANSACTIONS_LATE, drive.read(tables.TRANSACTIONS_LATE).where(F.col("_batch") >= drive.since), late)
    entries = recompute.missing_entries(of_silver.where("not _is_gone"), drive.read(tables.TRANSACTION_IDS)).localCheckpoint()
    outcome = F.when(F.col("is_first"), "transactions").otherwise("duplicates")
    return _Result(
        judged,
        _outcomes(judged, recompute.within(marked, drive.places), outcome, F.col("event_at")),
        [  # a row that moves is in two places for a moment, and never in none
            (tables.TRANSACTION_IDS, entries),
            (tables.TRANSACTIONS_DUPLICATES, of_duplicates.where("not _is_gone")),
            (tables.SILVER_TRANSACTIONS, of_silver),
            (tables.TRANSACTIONS_DUPLICATES, of_duplicates.where("_is_gone")),
            (tables.TRANSACTIONS_LATE, of_late),
        ],
    )


def _judge_messages(drive: _Drive, dimension: history.Dimension) -> _Result:
    judged = history.judge_messages(drive.new_values(), dimension, drive.rules).localCheckpoint()
    broken = history.quarantined(judged, dimension, drive.rules)
    passed, silver = judged.where(is_valid()), drive.read(drive.topic.silver)
    keys = recompute.touched_keys(passed, drive.places, silver, dimension).localCheckpoint()
    done = control.last_batch(drive.settings, "silver", drive.topic.silver.name)
    bronze = drive.read(drive.topic.bronze).where(F.col("_batch") <= done).join(keys, on="key", how="left_semi")
    valid = drive.effective(recompute.without(bronze, drive.read(drive.topic.quarantine).select(*PLACE)))
    after = recompute.classified_messages(passed, valid, dimension).localCheckpoint()
    present = silver.join(keys.select(F.col("key").cast("string").alias(dimension.key)), on=dimension.key, how="left_semi")
    wanted = history.versions(after, dimension)
    outcomes = _outcomes(broken, recompute.within(after, drive.places), F.col("outcome"), F.lit(None).cast("timestamp"))
    return _Result(broken, outcomes, [(drive.topic.silver, _change(drive.topic.silver, present, wanted))])


def _outcomes(judged: DataFrame, valid: DataFrame, outcome: Column, event_at: Column) -> DataFrame:
    """One row a judged record: where it is now, and the event time of a transaction that passed."""
    found = valid.select(*ARRIVAL, outcome.alias("outcome"), event_at.alias("_newest_event_at"))
    nothing = F.lit(None).cast("timestamp")
    return found.union(judged.where(~is_valid()).select(*ARRIVAL, F.lit("quarantine"), nothing))


def _record(drive: _Drive, outcomes: DataFrame, plan: Plan, run_id: str) -> None:
    """Append to control.redrives what became of every judged record, but for what a run that died has recorded."""
    settings, silver = drive.settings, drive.topic.silver
    given = corrections.newest(settings)
    corrected = drive.spark.createDataFrame(list(given), _PLACE).withColumn("is_corrected", F.lit(True))
    columns = {
        "run_id": F.lit(run_id),
        "table": F.lit(silver.name),
        "rule": F.lit(plan.rule),
        "rules_version": F.lit(drive.rules.version),
        "is_corrected": F.coalesce("is_corrected", F.lit(False)),
        "redriven_at": F.lit(corrections.later_than_all(settings, datetime.now(UTC))),
        "_silver_version": F.lit(DeltaTable(str(silver.path(settings))).version()),
    }
    rows = outcomes.join(corrected, on=PLACE, how="left").withColumns(columns).select(*tables.REDRIVES.columns)
    before = drive.read(tables.REDRIVES).where(F.col("table") == silver.name).select(*PLACE, "run_id", "outcome")
    is_known = (F.col("b.run_id") == F.col("r.run_id")) & (F.col("b.outcome") == F.col("r.outcome"))
    has_passed = (F.col("b.outcome") != "quarantine") & (F.col("r.outcome") != "quarantine")
    same_place = reduce(and_, [F.col(f"r.{name}") == F.col(f"b.{name}") for name in PLACE])
    new = rows.alias("r").join(before.alias("b"), on=same_place & (is_known | has_passed), how="left_anti").toArrow()
    kill_point(f"before redrives of {silver.name}")
    control.append(settings, tables.REDRIVES, new)
    kill_point(f"after redrives of {silver.name}")
    for outcome, count in sorted(Counter(new["outcome"].to_pylist()).items()):
        log.info("%s: %d judged again by rules version %s: %s", silver.name, count, drive.rules.version, outcome)
