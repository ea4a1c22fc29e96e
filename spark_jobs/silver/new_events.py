"""What new bronze batches of a topic of events bring to silver: the first of each key, duplicates, quarantine, late rows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from expectations.row_rules import RuleSet
from spark_jobs.control.corrections import PLACE
from spark_jobs.control.matching import is_among
from spark_jobs.lake.kept import held, in_memory, kept
from spark_jobs.lake.tables import ARRIVAL
from spark_jobs.lake.topic import Topic
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.times import from_micros
from spark_jobs.silver import events, id_index
from spark_jobs.silver.batches import Part
from spark_jobs.silver.judge import is_valid
from spark_jobs.silver.recompute import without

_MOST_HELD = 2_000_000  # rows of which the process holds what tells first ones from others: about 60 bytes each


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


def sort_events(spark: SparkSession, settings: Settings, topic: Topic, rules: RuleSet, part: Part) -> NewEvents:
    """Judge new rows, and find the first valid one of each key. Nothing is written.

    Rows whose key has a hash that no other row has, new or known, are the first of their keys. Only the others are compared.
    """
    given = part.few(settings, topic.bronze)
    are_few, rows = given is not None, part.read(spark, settings, topic.bronze) if given is None else in_memory(spark, given)
    judged, few = held(events.judge_events(rows, topic, rules).withColumns(_facts(topic)), are_few)
    if part.rows > _MOST_HELD:
        return _sort_many(settings, topic, judged, part)
    facts = judged.select(*ARRIVAL, *_facts(topic)).toArrow() if few is None else few.select([*ARRIVAL, *_facts(topic)])
    facts = facts.append_column("_row", pa.array(np.arange(facts.num_rows)))
    valid = facts.filter(pc.is_valid(facts["id_hash"]))
    hashes, counts = np.unique(valid["id_hash"].to_numpy(), return_counts=True)
    if (found := id_index.find_entries(settings, topic, hashes)) is None:
        return _sort_many(settings, topic, judged, part)
    duplicates: DataFrame | pa.Table = pa.schema(topic.duplicates.delta_schema().to_arrow()).empty_table()
    places: pa.Table = duplicates.select(PLACE)
    doubtful = pa.array(np.union1d(hashes[counts > 1], found["id_hash"].to_numpy()))
    if len(doubtful):
        doubts = _with_hashes(judged, few, doubtful)
        marked = events.mark_duplicates(doubts, id_index.rows_at(spark, settings, topic, found, part.after), topic)
        others, held_others = held(marked.where("not is_first").select(*topic.duplicates.columns), are_few)
        duplicates = others if held_others is None else held_others
        places = others.select(*PLACE).toArrow() if held_others is None else held_others.select(PLACE)
    entries = valid.join(places, keys=PLACE, join_type="left anti")
    sizes = facts.group_by("_batch").aggregate([(name, function) for name, function in _BY_BATCH.values()])
    counted = [{name: row[f"{of}_{function}"] for name, (of, function) in _BY_BATCH.items()} | row for row in sizes.to_pylist()]
    if few is None:
        first = judged.where(is_valid())
        first = without(first, in_memory(spark, places)) if places.num_rows else first
        return _new_events(first, duplicates, judged.where(~is_valid()), entries, counted, places.num_rows)
    quarantined = few.filter(pc.is_null(few["id_hash"]))
    return _new_events(few.take(entries["_row"]), duplicates, quarantined, entries, counted, places.num_rows)


def _with_hashes(judged: DataFrame, few: pa.Table | None, hashes: pa.Array) -> DataFrame:
    """The judged rows whose keys have one of these hashes."""
    if few is None:
        return judged.join(in_memory(judged.sparkSession, pa.table({"id_hash": hashes})), on="id_hash", how="left_semi")
    return in_memory(judged.sparkSession, few.filter(is_among("id_hash", hashes)(few)))


def _sort_many(settings: Settings, topic: Topic, judged: DataFrame, part: Part) -> NewEvents:
    """`sort_events` of one batch with more rows than are compared in memory: by Spark alone."""
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
