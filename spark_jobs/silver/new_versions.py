"""What new bronze batches of a topic of versions change in the histories of the keys that they speak of."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions as F

from expectations.row_rules import RuleSet
from spark_jobs.control import corrections, rule_sets
from spark_jobs.control.matching import find_rows, is_among
from spark_jobs.lake import sinks, sources
from spark_jobs.lake.kept import in_memory, kept
from spark_jobs.lake.topic import Topic
from spark_jobs.runtime.settings import Settings
from spark_jobs.silver import history, recompute
from spark_jobs.silver.batches import JUDGED, Part
from spark_jobs.silver.judge import is_valid
from spark_jobs.silver.records import judge_records, parse_records, quarantined, type_records

_MOST_BROADCAST = 500_000
_OUTCOMES = {"output": "version", "superseded": "superseded", "no_change": "no_change"}  # column of control.batches -> outcome


@dataclass(frozen=True)
class NewVersions:
    """What is to be written, and the counts of control.batches. `are_few`: any of it fits into memory."""

    first: int
    sums: dict[str, int]
    quarantined: DataFrame
    changes: DataFrame
    are_few: bool


@dataclass(frozen=True)
class _Earlier:
    """Of the keys that new messages speak of: the valid messages before these, and the rows of the silver table."""

    messages: DataFrame
    present: DataFrame


def compare_histories(spark: SparkSession, settings: Settings, topic: Topic, rules: RuleSet, part: Part) -> NewVersions | None:
    """Rebuild, from all their messages, the histories of the keys of the new rows; None where there are no rows. Nothing is written.

    Only the new rows are judged. Of the earlier ones those are valid that are not in quarantine: by the rules of their time, or
    by a re-drive, whose corrections take the place of their values.
    """
    rows, are_held = part.read(spark, settings, topic.bronze)
    new = judge_records(rows, topic, rules).transform(kept)
    keys = F.collect_set(F.when(is_valid(), F.col("key"))) if are_held else F.lit(None)
    facts = new.agg(
        F.count("*").alias("input"),
        F.count_if(~is_valid()).alias("quarantined"),
        F.min("_batch").alias("first"),
        keys.alias("keys"),
    ).collect()[0]
    if not facts["input"]:
        return None
    few = _find_few(spark, settings, topic, [bytes(key) for key in facts["keys"]], part.after) if are_held else None
    earlier = few or _find_many(spark, settings, topic, new, part)
    valid = corrections.correct(earlier.messages, corrections.in_effect(settings, topic.silver), spark)
    before = type_records(parse_records(valid, topic, rule_sets.schemas(settings, topic.name)), topic)
    before = before.withColumn("_is_after", F.explode(F.array(F.lit(False), F.lit(True))))
    taken = type_records(new.where(is_valid()), topic).withColumn("_is_after", F.lit(True))
    classified = history.with_outcomes(before.unionByName(taken), topic, "_is_after").transform(kept)
    outcomes = Counter[str]()
    for row in classified.groupBy("_is_after", "outcome").agg(F.count("*").alias("n")).collect():
        outcomes[row["outcome"]] += row["n"] if row["_is_after"] else -row["n"]
    wanted = history.versions(classified.where("_is_after"), topic).select(*topic.silver.columns)
    return NewVersions(
        first=facts["first"],
        sums={name: facts[name] for name in ("input", "quarantined")} | {name: outcomes[outcome] for name, outcome in _OUTCOMES.items()},
        quarantined=quarantined(new, topic),
        changes=sinks.difference(earlier.present, wanted, on=topic.silver.keys),
        are_few=few is not None,
    )


def _find_few(spark: SparkSession, settings: Settings, topic: Topic, keys: list[bytes], upto: int) -> _Earlier | None:
    """By one pass over each table without Spark; None where the rows found are too many for that."""
    own, names = is_among("key", pa.array(keys, pa.binary())), is_among(topic.key, pa.array(_texts(keys), pa.string()))
    bronze = find_rows(settings, topic.bronze, JUDGED, own, f"_batch <= {upto}")
    refused = find_rows(settings, topic.quarantine, ["key", *corrections.PLACE], own)
    present = find_rows(settings, topic.silver, list(topic.silver.columns), names)
    if bronze is None or refused is None or present is None:
        return None
    messages = recompute.without(in_memory(spark, bronze), in_memory(spark, refused.drop(["key"])))
    return _Earlier(messages, in_memory(spark, present))


def _find_many(spark: SparkSession, settings: Settings, topic: Topic, new: DataFrame, part: Part) -> _Earlier:
    def read(table: Any) -> DataFrame:
        return sources.read_table(spark, settings, table)

    touched = new.where(is_valid()).select("key").distinct()
    touched = F.broadcast(touched) if part.rows <= _MOST_BROADCAST else touched
    bronze = read(topic.bronze).where(F.col("_batch") <= part.after).join(touched, on="key", how="left_semi")
    refused = read(topic.quarantine).join(touched, on="key", how="left_semi").select(*corrections.PLACE)
    names = touched.select(F.col("key").cast("string").alias(topic.key))
    return _Earlier(recompute.without(bronze, refused), read(topic.silver).join(names, on=topic.key, how="left_semi"))


def _texts(keys: list[bytes]) -> list[str]:
    """The keys that are texts. Another one has no version: only a deletion can have it, and there is nothing that it deletes."""
    texts = []
    for key in keys:
        try:
            texts.append(key.decode())
        except UnicodeDecodeError:
            continue
    return texts
