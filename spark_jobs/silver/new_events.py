"""What new bronze batches of a topic of events bring to silver: the first of each key, duplicates, quarantine, late rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from expectations.row_rules import RuleSet
from spark_jobs.control.corrections import PLACE
from spark_jobs.lake import sinks
from spark_jobs.lake.kept import in_memory, kept
from spark_jobs.lake.ranges import is_among
from spark_jobs.lake.tables import ARRIVAL
from spark_jobs.lake.topic import Topic
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import quoted
from spark_jobs.runtime.times import from_micros
from spark_jobs.silver import events, id_index
from spark_jobs.silver.batches import JUDGED, SAMPLED, Part, are_few
from spark_jobs.silver.judge import is_valid
from spark_jobs.silver.parse import usual_order


@dataclass(frozen=True)
class Batch:
    """Of a bronze batch: how many rows it has, how many are valid, and the smallest and largest event time (UTC) of these."""

    number: int
    rows: int
    valid: int
    oldest: datetime | None
    newest: datetime | None


@dataclass(frozen=True)
class NewEvents:
    """New rows, judged and sorted: which belong in which table. `entries` are those of the index that the first rows need.

    Where all fit into memory, they are held there.
    """

    batches: tuple[Batch, ...]
    first: DataFrame | pa.Table
    duplicates: DataFrame | pa.Table
    quarantined: DataFrame | pa.Table
    entries: DataFrame | pa.Table
    duplicate_count: int

    @property
    def sums(self) -> dict[str, int]:
        """The counts of control.batches."""
        rows, valid = sum(batch.rows for batch in self.batches), sum(batch.valid for batch in self.batches)
        return {"input": rows, "output": valid - self.duplicate_count, "duplicates": self.duplicate_count, "quarantined": rows - valid}

    def may_be_late(self, watermarks: Iterable[tuple[int, datetime]]) -> bool:
        """Whether a valid row came after the watermark of its batch."""
        marks = dict(watermarks)
        return any(batch.oldest is not None and batch.number in marks and batch.oldest < marks[batch.number] for batch in self.batches)


def judge_held(spark: SparkSession, settings: Settings, topic: Topic, rules: RuleSet, part: Part) -> pa.Table | None:
    """The judged rows of a part, in memory; None where they are too many. Of many, most are judged in the quick way.

    They depend on bronze and the rules alone. Nothing is written.
    """
    if (given := part.few(settings, topic.bronze)) is not None:
        order = usual_order(given["value"].slice(0, SAMPLED).to_pylist(), topic.names)
        return _judge(events.judge_events, in_memory(spark, given), topic, rules, order)
    if not (splits := part.held_splits(settings, topic.bronze)):
        return None
    order = usual_order(part.sample(settings, topic.bronze), topic.names)
    with sinks.configured(spark, splits):
        rows = part.read(spark, settings, topic.bronze)
        quick = _judge(events.judge_ordinary, rows, topic, rules, order)
        others = quick.filter(pc.is_null(quick["broken_rules"])).select(JUDGED)
        if not are_few(others):
            return _judge(events.judge_events, rows, topic, rules, order)
    strict = _judge(events.judge_events, in_memory(spark, others), topic, rules, order)
    valid = quick.filter(pc.is_valid(quick["broken_rules"])).select(strict.column_names)
    return pa.concat_tables([valid.cast(strict.schema), strict])


def sort_events(spark: SparkSession, settings: Settings, topic: Topic, rules: RuleSet, part: Part, judged: pa.Table | None) -> NewEvents:
    """Find the first valid one of the rows of each key, among those that `judge_held` gave. Nothing is written.

    Rows whose key has a hash that no other row has, new or known, are the first of their keys. Only the others are compared.
    """
    if judged is None:
        return _sort_many(spark, settings, topic, rules, part)
    facts = judged.select([*ARRIVAL, *_facts(topic)]).append_column("_row", pa.array(np.arange(judged.num_rows)))
    valid = facts.filter(pc.is_valid(facts["id_hash"]))
    hashes, counts = np.unique(valid["id_hash"].to_numpy(), return_counts=True)
    if (found := id_index.find_entries(settings, topic, hashes)) is None:
        return _sort_many(spark, settings, topic, rules, part)
    duplicates = pa.schema(topic.duplicates.delta_schema().to_arrow()).empty_table()
    doubtful = pa.array(np.union1d(hashes[counts > 1], found["id_hash"].to_numpy()))
    if len(doubtful):
        doubts = judged.filter(is_among("id_hash", doubtful)(judged))
        if not are_few(doubts):
            return _sort_many(spark, settings, topic, rules, part)
        marked = events.mark_duplicates(in_memory(spark, doubts), id_index.rows_at(spark, settings, topic, found, part.after), topic)
        duplicates = marked.where("not is_first").selectExpr(*quoted(topic.duplicates.columns)).toArrow()
    entries = valid.join(duplicates.select(PLACE), keys=PLACE, join_type="left anti")
    sizes = facts.group_by("_batch").aggregate([(name, function) for name, function in _BY_BATCH.values()])
    counted = [{name: row[f"{of}_{function}"] for name, (of, function) in _BY_BATCH.items()} | row for row in sizes.to_pylist()]
    quarantined = judged.filter(pc.is_null(judged["id_hash"]))
    return _new_events(judged.take(entries["_row"]), duplicates, quarantined, entries, counted, duplicates.num_rows)


def _judge(judge: Callable[..., DataFrame], rows: DataFrame, topic: Topic, rules: RuleSet, order: Sequence[str]) -> pa.Table:
    return judge(rows, topic, rules, order).withColumns(_facts(topic)).toArrow()


def _sort_many(spark: SparkSession, settings: Settings, topic: Topic, rules: RuleSet, part: Part) -> NewEvents:
    """`sort_events` of rows that are not held in memory: by Spark alone."""
    judged = events.judge_events(part.read(spark, settings, topic.bronze), topic, rules).withColumns(_facts(topic)).transform(kept)
    known = id_index.known_rows(judged, settings, topic, part.after)
    marked = events.mark_duplicates(judged, known, topic).transform(kept)
    facts = marked.select("_batch", "is_first", *_facts(topic))
    functions = {"count": F.count, "min": F.min, "max": F.max}
    columns = [functions[function](of).alias(name) for name, (of, function) in _BY_BATCH.items()]
    counted = [row.asDict() for row in facts.groupBy("_batch").agg(*columns, F.count_if("is_first").alias("first")).collect()]
    first, duplicates = marked.where("is_first"), marked.where(is_valid() & ~F.col("is_first"))
    duplicate_count = sum(row["valid"] - row["first"] for row in counted)
    return _new_events(first, duplicates, judged.where(~is_valid()), id_index.entries(first, topic, "_batch"), counted, duplicate_count)


# What is known of each bronze batch: of which fact, by which function.
_BY_BATCH = {
    "rows": ("_batch", "count"),
    "valid": ("id_hash", "count"),
    "oldest": ("at", "min"),
    "newest": ("at", "max"),
}


def _facts(topic: Topic) -> dict[str, Column]:
    """What is held of each row. Only a valid one has a hash and a time (in microseconds)."""
    return {
        "id_hash": F.when(is_valid(), id_index.key_hash(topic)),
        "at": F.unix_micros("event_at"),
    }


def _new_events(
    first: DataFrame | pa.Table,
    duplicates: DataFrame | pa.Table,
    quarantined: DataFrame | pa.Table,
    entries: DataFrame | pa.Table,
    counted: Iterable[Mapping[str, Any]],
    duplicate_count: int,
) -> NewEvents:
    batches = tuple(
        Batch(row["_batch"], row["rows"], row["valid"], from_micros(row["oldest"]), from_micros(row["newest"])) for row in counted
    )
    return NewEvents(batches, first, duplicates, quarantined, entries, duplicate_count)
