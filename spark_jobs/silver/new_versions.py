"""What new bronze batches of a topic of versions change in the histories of the keys that they speak of."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession, functions as F

from expectations.row_rules import RuleSet
from expectations.wire_format import WireSchema
from spark_jobs.control import corrections, rule_sets
from spark_jobs.control.matching import find_rows
from spark_jobs.lake import sinks, sources
from spark_jobs.lake.kept import in_memory, kept
from spark_jobs.lake.ranges import is_among
from spark_jobs.lake.tables import Table
from spark_jobs.lake.topic import ARRIVAL, Topic
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import quoted
from spark_jobs.silver import history, recompute
from spark_jobs.silver.batches import JUDGED, Part
from spark_jobs.silver.judge import is_valid
from spark_jobs.silver.records import judge_records, outcome_columns, parse_records, quarantined, type_records, typed

_MOST_BROADCAST = 500_000
_OUTCOMES = {"output": "version", "superseded": "superseded", "no_change": "no_change"}  # column of control.batches -> outcome


@dataclass(frozen=True)
class NewVersions:
    """What is to be written, and the counts of control.batches. `are_few`: any of it fits into memory."""

    first: int
    sums: dict[str, int]
    quarantined: DataFrame | pa.Table
    changes: DataFrame
    are_few: bool


def compare_histories(spark: SparkSession, settings: Settings, topic: Topic, rules: RuleSet, part: Part) -> NewVersions | None:
    """Rebuild, from all their messages, the histories of the keys of the new rows; None where there are no rows. Nothing is written.

    Only the new rows are judged. Of the earlier ones those are valid that are not in quarantine: by the rules of their time, or
    by a re-drive, whose corrections take the place of their values.
    """
    new, schemas = part.few(settings, topic.bronze), rule_sets.schemas(settings, topic.name)
    if new is not None and not new.num_rows:
        return None
    corrected = corrections.in_effect(settings, topic.silver)
    if new is not None and rules.schemas == schemas and (earlier := _find_few(settings, topic, new, part.after)):
        return _compare_few(spark, topic, rules, new, earlier, corrected)
    return _compare_many(spark, settings, topic, rules, part, schemas, corrected)


@dataclass(frozen=True)
class _Earlier:
    """Of the keys of new rows: the valid messages before these, and the rows of the silver table."""

    messages: pa.Table
    present: pa.Table


def _find_few(settings: Settings, topic: Topic, new: pa.Table, upto: int) -> _Earlier | None:
    """By one pass over each table without Spark; None where the rows found are too many for that."""
    keys = pc.unique(new["key"]).drop_null()
    own, names = is_among("key", keys), is_among(topic.key, pa.array(_texts(keys.to_pylist()), pa.string()))
    bronze = find_rows(settings, topic.bronze, JUDGED, own, f"_batch <= {upto}")
    refused = find_rows(settings, topic.quarantine, ["key", *corrections.PLACE], own)
    present = find_rows(settings, topic.silver, list(topic.silver.columns), names)
    if bronze is None or refused is None or present is None:
        return None
    return _Earlier(bronze.join(refused.drop(["key"]), keys=corrections.PLACE, join_type="left anti"), present)


def _texts(keys: list[bytes]) -> list[str]:
    """The keys that are texts. Another one has no version: only a deletion can have it, and there is nothing that it deletes."""
    texts = []
    for key in keys:
        try:
            texts.append(key.decode())
        except UnicodeDecodeError:
            continue
    return texts


def _compare_few(
    spark: SparkSession, topic: Topic, rules: RuleSet, new: pa.Table, earlier: _Earlier, corrected: dict[corrections.Place, bytes]
) -> NewVersions:
    """All messages are read once, and the outcomes of the new ones, and the histories, are held in memory."""
    parts = [
        rows.append_column("_is_new", pa.array([is_new] * len(rows), pa.bool_()))
        for rows, is_new in ((new, True), (earlier.messages, False))
    ]
    rows = corrections.correct(in_memory(spark, pa.concat_tables(parts)), corrected, spark)
    judged = judge_records(rows, topic, rules)
    judged = judged.withColumn("broken_rules", F.expr("if(_is_new, broken_rules, cast(array() as array<string>))"))
    found = outcome_columns(judged, topic, "_is_new").toArrow()
    is_valid_row = pc.equal(pc.list_value_length(found["broken_rules"]), 0)
    messages, broken = found.filter(is_valid_row), found.filter(pc.invert(is_valid_row))
    sides = "explode(if(_is_new, array(true), array(false, true))) as _is_after"
    messages_of = in_memory(spark, messages).selectExpr(*typed(topic), *ARRIVAL, sides)
    outcomes = history.with_outcomes(messages_of, topic, "_is_after").toArrow()
    counts = outcomes.group_by(["_is_after", "outcome"]).aggregate([([], "count_all")]).rename_columns(["_is_after", "outcome", "n"])
    facts = {"input": len(new), "quarantined": len(broken), "first": pc.min(new["_batch"]).as_py()}
    wanted = in_memory(spark, outcomes.filter(outcomes["_is_after"]))
    return _new_versions(topic, facts, counts, wanted, in_memory(spark, earlier.present), broken, are_few=True)


def _compare_many(
    spark: SparkSession,
    settings: Settings,
    topic: Topic,
    rules: RuleSet,
    part: Part,
    schemas: Sequence[WireSchema],
    corrected: dict[corrections.Place, bytes],
) -> NewVersions | None:
    """By Spark alone."""

    def read(table: Table) -> DataFrame:
        return sources.read_table(spark, settings, table)

    new = judge_records(part.read(spark, settings, topic.bronze), topic, rules).transform(kept)
    of_rows = (F.count("*").alias("input"), F.count_if(~is_valid()).alias("quarantined"), F.min("_batch").alias("first"))
    facts = new.agg(*of_rows).collect()[0].asDict()
    if not facts["input"]:
        return None
    touched = new.where(is_valid()).select("key").distinct()
    touched = F.broadcast(touched) if part.rows <= _MOST_BROADCAST else touched
    bronze = read(topic.bronze).where(F.col("_batch") <= part.after).join(touched, on="key", how="left_semi")
    refused = read(topic.quarantine).join(touched, on="key", how="left_semi").select(*corrections.PLACE)
    valid = corrections.correct(recompute.without(bronze, refused), corrected, spark)
    before = type_records(parse_records(valid, topic, schemas), topic)
    before = before.withColumn("_is_after", F.explode(F.array(F.lit(False), F.lit(True))))
    taken = type_records(new.where(is_valid()), topic).withColumn("_is_after", F.lit(True))
    outcomes = history.with_outcomes(before.unionByName(taken), topic, "_is_after").transform(kept)
    counts = outcomes.groupBy("_is_after", "outcome").agg(F.count("*").alias("n")).toArrow()
    names = touched.select(F.col("key").cast("string").alias(topic.key))
    present = read(topic.silver).join(names, on=topic.key, how="left_semi")
    return _new_versions(topic, facts, counts, outcomes.where("_is_after"), present, quarantined(new, topic), are_few=False)


def _new_versions(
    topic: Topic,
    facts: dict[str, int],
    counts: pa.Table,
    outcomes: DataFrame,
    present: DataFrame,
    broken: DataFrame | pa.Table,
    *,
    are_few: bool,
) -> NewVersions:
    """`counts`: how many messages of each outcome there are with the new ones (`_is_after`), and how many there were before."""
    sums = dict.fromkeys(_OUTCOMES.values(), 0)
    for row in counts.to_pylist():
        sums[row["outcome"]] += row["n"] if row["_is_after"] else -row["n"]
    wanted = history.versions(outcomes, topic).selectExpr(*quoted(topic.silver.columns))
    return NewVersions(
        first=facts["first"],
        sums={name: facts[name] for name in ("input", "quarantined")} | {name: sums[outcome] for name, outcome in _OUTCOMES.items()},
        quarantined=broken,
        changes=sinks.difference(present, wanted, on=topic.silver.keys) if are_few else sinks.changes_of(topic.silver, present, wanted),
        are_few=are_few,
    )
