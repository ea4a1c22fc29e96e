"""The job behind `run redrive`: judges rows of quarantine again, by the newest rules or with corrected values.

Afterwards silver equals a computation from bronze and corrections, in order of arrival. The quarantine is written last: a run that died
is repeated as a whole, and finds the rows that it had already moved by their coordinates.
"""

import logging
from datetime import UTC, datetime
from functools import reduce

from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs import control
from spark_jobs.control import corrections, redrives, rule_sets
from spark_jobs.control.corrections import PLACE, PLACE_DDL
from spark_jobs.lake import sinks, tables
from spark_jobs.lake.kept import kept
from spark_jobs.lake.tables import Table
from spark_jobs.lake.topic import Topic
from spark_jobs.lake.txn import Txn
from spark_jobs.reprocessing import outcomes, reads, rejudge
from spark_jobs.reprocessing.redrive_plan import Plan
from spark_jobs.reprocessing.rejudge import Changes, Rejudged
from spark_jobs.runtime import progress
from spark_jobs.runtime.settings import Settings
from spark_jobs.silver import id_index, recompute, wire_schemas
from spark_jobs.silver.events import judge_events
from spark_jobs.silver.records import judge_records

log = logging.getLogger(__name__)


def run(spark: SparkSession, settings: Settings, plan: Plan, run_id: str) -> None:
    """Append the plan's corrections, judge its rows again, put those that pass in their old places and record what happened."""
    if added := corrections.append(settings, plan.corrections, datetime.now(UTC)):
        log.info("control.corrections: %d added", added)
    with sinks.configured(spark, id_index.SESSION), progress.phase("", len(plan.topics), "topics") as phase:
        for done, topic in enumerate(plan.topics):
            phase.reach(done, topic.quarantine.name)
            _redrive(spark, settings, topic, plan, run_id)
    log.info("next: the DAG medallion, or by hand gate bronze, gate silver, gold, gate gold, release")


def _redrive(spark: SparkSession, settings: Settings, topic: Topic, plan: Plan, run_id: str) -> None:
    halfway = topic in redrives.halfway(settings)
    rows = _select_rows(spark, settings, topic, plan, halfway).transform(kept)
    count, since, until = rows.agg(F.count("*"), F.coalesce(F.min("_batch"), F.lit(0)), F.coalesce(F.max("_batch"), F.lit(0))).collect()[0]
    if not count and not halfway:
        log.info("%s: found no such row that breaks %s, nothing to do", topic.quarantine.name, plan.rule)
        return
    wire_schemas.learn(settings, topic, lambda: rows)
    rejudged = Rejudged(spark, settings, topic, rule_sets.present(settings, topic.name), rejudge.places_of(rows, count), since)
    values = {place: correction.value for place, correction in corrections.newest(settings).items()}
    bronze = recompute.within(rejudged.read(topic.bronze).where(F.col("_batch").between(since, until)), rejudged.places)
    judged, changes = _judge(rejudged, corrections.correct(bronze, values, spark))
    found = outcomes.outcomes(rejudged, judged, changes).transform(kept)
    quarantine = sinks.changes_of(topic.quarantine, rows, recompute.updated_quarantine(rows, judged))
    application = control.application(settings, redrives.APPLICATION)
    number = redrives.last_write(settings, topic, application)  # all is computed and kept by now: from here on the tables change
    for table, changed in changes.writes:
        if table == topic.silver or not changed.isEmpty():  # a re-drive is known by the version that it gives the silver table
            number += 1
            sinks.merge_changes(changed, settings, table, Txn(application, number))
    outcomes.record(rejudged, found, plan.rule, run_id)
    sinks.merge_changes(quarantine, settings, topic.quarantine, Txn(application, number + 1))


def _judge(rows: Rejudged, bronze: DataFrame) -> tuple[DataFrame, Changes]:
    """The judged rows, with detail, and what must change."""
    judge = judge_records if rows.topic.has_versions else judge_events
    judged = judge(bronze, rows.topic, rows.rules).transform(kept)
    return judged, rejudge.changes_of(rows, judged)


def _select_rows(spark: SparkSession, settings: Settings, topic: Topic, plan: Plan, halfway: bool) -> DataFrame:
    """The quarantined rows that are judged again, with those that a re-drive which died halfway has put in place already."""

    def read(table: Table) -> DataFrame:
        return reads.read_table(spark, settings, table)

    quarantine = read(topic.quarantine)
    places = spark.createDataFrame([each.place for each in plan.corrections], PLACE_DDL)
    if halfway:
        redriven = read(tables.REDRIVES).where((F.col("table") == topic.silver.name) & (F.col("outcome") != "quarantine"))
        places = reduce(DataFrame.union, [places, *(rows.select(*PLACE) for rows in (redriven, *map(read, topic.valid)))])
    chosen = plan.chosen
    asked = quarantine.where(F.array_contains("broken_rules", plan.rule) & (F.col("_batch") >= chosen.first_batch))
    asked = asked if chosen.last_batch is None else asked.where(F.col("_batch") <= chosen.last_batch)
    asked = asked.where(F.col("_topic") == chosen.source) if chosen.source else asked
    return asked.union(recompute.within(quarantine, places)).dropDuplicates(PLACE)
