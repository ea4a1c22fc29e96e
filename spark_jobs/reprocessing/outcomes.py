"""The outcome of rows that were judged again, and its record in control.redrives."""

import logging
from collections import Counter
from datetime import UTC, datetime
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame, SparkSession, Window, functions as F

from expectations.row_rules import RuleSet
from spark_jobs import control
from spark_jobs.control import corrections
from spark_jobs.control.corrections import PLACE, PLACE_DDL
from spark_jobs.lake import tables
from spark_jobs.lake.topic import ARRIVAL, Topic
from spark_jobs.reprocessing import reads
from spark_jobs.reprocessing.rejudge import Changes, Rejudged
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings
from spark_jobs.silver import recompute
from spark_jobs.silver.judge import is_valid

log = logging.getLogger(__name__)


def outcomes(rows: Rejudged, judged: DataFrame, changes: Changes) -> DataFrame:
    """One row a judged record: where it is now, and the time of an event that passed."""
    outcome, event_at = F.when(F.col("is_first"), rows.topic.name).otherwise("duplicates"), F.col("event_at")
    nothing = F.lit(None).cast("timestamp")
    if rows.topic.has_versions:
        outcome, event_at = F.col("outcome"), nothing
    valid = recompute.within(changes.valid, rows.places)
    found = valid.select(*ARRIVAL, outcome.alias("outcome"), event_at.alias("_newest_event_at"))
    return found.union(judged.where(~is_valid()).select(*ARRIVAL, F.lit("quarantine"), nothing))


def noted(rows: Rejudged, outcomes: DataFrame) -> DataFrame:
    """The outcomes of those records that have a correction, or were in a re-drive: of these, the last outcome must be known."""
    corrected = rows.spark.createDataFrame(list(corrections.newest(rows.settings)), PLACE_DDL)
    redriven = rows.read(tables.REDRIVES).where(F.col("table") == rows.topic.silver.name).select(*PLACE)
    return recompute.within(outcomes, corrected.union(redriven).distinct())


def unsettled(spark: SparkSession, settings: Settings, topic: Topic, rules: RuleSet) -> DataFrame:
    """The coordinates of records that have a correction, or were in a re-drive, and are not recorded since as judged by these rules.

    A process that died after it had put them in their places has left them so.
    """
    redrives = reads.read_table(spark, settings, tables.REDRIVES).where(F.col("table") == topic.silver.name).groupBy(*PLACE)
    last = redrives.agg(F.max_by("rules_version", "redriven_at").alias("_rules"), F.max("redriven_at").alias("_at"))
    given = reads.read_table(spark, settings, tables.CORRECTIONS).groupBy(*PLACE).agg(F.max("corrected_at").alias("_given_at"))
    is_settled = (F.col("_rules") == rules.version) & (F.col("_at") >= F.coalesce("_given_at", "_at"))
    return last.join(given, on=PLACE, how="full_outer").where(~F.coalesce(is_settled, F.lit(False))).select(*PLACE)


def record(rows: Rejudged, outcomes: DataFrame, rule: str, run_id: str) -> None:
    """Append to control.redrives the outcome of every judged record, except what a run that died has recorded."""
    settings, silver = rows.settings, rows.topic.silver
    corrected = rows.spark.createDataFrame(list(corrections.newest(settings)), PLACE_DDL).withColumn("is_corrected", F.lit(True))
    columns = {
        "run_id": F.lit(run_id),
        "table": F.lit(silver.name),
        "rule": F.lit(rule),
        "rules_version": F.lit(rows.rules.version),
        "is_corrected": F.coalesce("is_corrected", F.lit(False)),
        "redriven_at": F.lit(corrections.later_than_all(settings, datetime.now(UTC))),
        "_silver_version": F.lit(silver.open(settings).version()),
    }
    records = outcomes.join(corrected, on=PLACE, how="left").withColumns(columns).select(*tables.REDRIVES.columns)
    newest_first = Window.partitionBy(*PLACE).orderBy(F.desc("redriven_at"))
    before = rows.read(tables.REDRIVES).where(F.col("table") == silver.name).withColumn("_rank", F.row_number().over(newest_first))
    before = before.where("_rank = 1").select(*PLACE, "run_id", "rules_version", "outcome")
    is_known = (F.col("b.run_id") == F.col("r.run_id")) & (F.col("b.outcome") == F.col("r.outcome"))
    has_passed = (F.col("b.outcome") != "quarantine") & (F.col("r.outcome") != "quarantine")
    is_same = reduce(and_, [F.col(f"r.{name}") == F.col(f"b.{name}") for name in (*PLACE, "rules_version")])
    new = records.alias("r").join(before.alias("b"), on=is_same & (is_known | has_passed), how="left_anti").toArrow()
    kill_point(f"before redrives of {silver.name}")
    control.append(settings, tables.REDRIVES, new)
    kill_point(f"after redrives of {silver.name}")
    for outcome, count in sorted(Counter(new["outcome"].to_pylist()).items()):
        log.info("%s: %d judged again by rules version %s: %s", silver.name, count, rows.rules.version, outcome)
