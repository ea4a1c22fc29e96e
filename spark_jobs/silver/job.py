"""The silver job: one pass over what bronze has gained, the topics side by side."""

import logging
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from string import Template

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from expectations.row_rules import RuleSet
from spark_jobs import control
from spark_jobs.control import backfills, rule_sets, scope
from spark_jobs.lake import few_rows, side_by_side, sinks, sources, tables
from spark_jobs.lake.kept import in_memory
from spark_jobs.lake.topic import Topic
from spark_jobs.lake.topics import TOPICS
from spark_jobs.lake.txn import Txn
from spark_jobs.runtime import session
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings
from spark_jobs.silver import batches, events, id_index, new_events, new_versions, wire_schemas
from spark_jobs.silver.batches import Part

log = logging.getLogger(__name__)

_APPLICATION = "silver"
# It would judge rows that are given in memory while it plans, one by one, in this process.
_LAZY = {"spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"}
_MOST_INTERPRETED = 50_000  # rows of a part: to generate code for more costs less than it saves
_NEWEST_REDRIVEN = Template(
    "select max(_newest_event_at) as newest from t where \"table\" = '$table' and coalesce(_silver_version, 0) > $version"
)


@dataclass(frozen=True)
class _Taken:
    """What control.batches says of a part: its first batch, its counts, and the largest event time of all valid rows so far."""

    first: int
    sums: dict[str, int]
    newest: datetime | None


def run(spark: SparkSession, settings: Settings, run_id: str, bronze: Collection[tables.Table] = tables.BRONZE) -> None:
    """Bring the silver tables of some bronze tables up to them as they are now, and record the outcome of every row."""
    topics = [topic for topic in TOPICS if topic.bronze in bronze]
    with sinks.configured(spark, id_index.SESSION):
        side_by_side.run_each(
            spark, {topic.silver.name: partial(_take_new, settings=settings, run_id=run_id, topic=topic) for topic in topics}
        )


def finish(spark: SparkSession, settings: Settings, run_id: str) -> None:
    """Repeat a run that died between two of its tables, before rows of older batches are changed: its tables must agree.

    That takes all new batches of the bronze tables in question. The caller holds silver's leases.
    """
    halfway = scope.unfinished_bronze(settings)
    if halfway:
        log.warning("silver stopped halfway in batches of %s: its run is repeated first", ", ".join(table.name for table in halfway))
        run(spark, settings, run_id, halfway)


def _take_new(spark: SparkSession, settings: Settings, run_id: str, topic: Topic) -> None:
    """Take the bronze batches of a topic that were not processed before; those that an unfinished run has begun, by themselves."""
    application, done = control.application(settings, _APPLICATION), control.last_batch(settings, "silver", topic.silver.name)
    begun = rule_sets.begun(settings, application, topic.name, topic.silver)
    parts = list(batches.unread_parts(settings, topic.bronze, done, begun.last if begun else 0))
    if not parts:
        return
    within = f"_batch between {done + 1} and {parts[-1].last}"
    wire_schemas.learn(settings, topic, lambda: sources.read_table(spark, settings, topic.bronze).where(within))
    present = rule_sets.present(settings, topic.name)
    rules = [begun.rules if begun and part.last <= begun.last else present for part in parts]
    ahead = [partial(_judge_held, settings, topic, *each) for each in zip(rules, parts, strict=True)]
    with closing(side_by_side.one_ahead(spark, ahead)) as judged:
        for part, by in zip(parts, rules, strict=True):
            txn = Txn(application, part.last)
            with sinks.configured(spark, _plans(part)):
                if topic.has_versions:
                    taken = _take_versions(spark, settings, topic, part, by, txn)
                else:
                    taken = _take_events(spark, settings, topic, part, next(judged), by, txn)
                if taken:
                    _record(settings, run_id, application, topic.silver, part.last, by.version, taken)
                    log.info("%s: batches %d to %d are in", topic.silver.name, taken.first, part.last)


def _judge_held(settings: Settings, topic: Topic, rules: RuleSet, part: Part, spark: SparkSession) -> pa.Table | None:
    """Perhaps while the part before is written, whose session has plans of its own."""
    with sinks.configured(spark, _plans(part)):
        return new_events.judge_held(spark, settings, topic, rules, part)


def _plans(part: Part) -> dict[str, str]:
    if not part.is_few:
        return {}
    return session.HELD_PLANS | _LAZY | (session.FEW_ROWS if part.rows <= _MOST_INTERPRETED else {})


def _take_events(
    spark: SparkSession, settings: Settings, topic: Topic, part: Part, judged: pa.Table | None, rules: RuleSet, txn: Txn
) -> _Taken | None:
    """Split new events into the silver table, duplicates and quarantine, and list the late ones."""
    id_index.catch_up(spark, settings, topic, txn.application, part.after)
    new = new_events.sort_events(spark, settings, topic, rules, part, judged)
    if not new.batches:
        return None
    before, sums = _newest_event(settings, topic), new.sums
    newest = [(batch.number, batch.newest) for batch in new.batches]
    watermarks = events.batch_watermarks(newest, before, settings.allowed_lateness_seconds)
    rule_sets.begin(settings, txn, topic.silver, rules)
    if sums["output"]:
        id_index.add_new(new.entries, settings, topic, txn)
        _append(new.first, settings, topic.silver, txn, sums["output"])
    if sums["duplicates"]:
        _append(new.duplicates, settings, topic.duplicates, txn, sums["duplicates"])
    if sums["quarantined"]:
        _append(new.quarantined, settings, topic.quarantine, txn, sums["quarantined"])
    if new.may_be_late(watermarks):
        _append(_late_rows(spark, topic, new.first, watermarks), settings, topic.late, txn, sums["output"])
    if sums["output"]:
        id_index.compact(settings, topic)
    newest_of_all = max((at for at in (before, *(at for _, at in newest)) if at is not None), default=None)
    return _Taken(min(batch.number for batch in new.batches), sums, newest_of_all)


def _take_versions(spark: SparkSession, settings: Settings, topic: Topic, part: Part, rules: RuleSet, txn: Txn) -> _Taken | None:
    """Bring the histories of the keys that new rows speak of up to them."""
    new = new_versions.compare_histories(spark, settings, topic, rules, part)
    if new is None:
        return None
    rule_sets.begin(settings, txn, topic.silver, rules)
    if new.sums["quarantined"]:
        _append(new.quarantined, settings, topic.quarantine, txn, new.sums["quarantined"])
    sinks.merge_changes(new.changes, settings, topic.silver, txn, are_few=new.are_few)
    return _Taken(new.first, new.sums, None)


def _late_rows(
    spark: SparkSession, topic: Topic, first: DataFrame | pa.Table, watermarks: list[tuple[int, datetime]]
) -> DataFrame | pa.Table:
    """The `late_rows` of events; of those in memory only these go to Spark."""
    if isinstance(first, DataFrame):
        return events.late_rows(first, watermarks, spark)
    marks = pa.table({"_batch": [batch for batch, _ in watermarks], "mark": pa.array([at for _, at in watermarks], first["event_at"].type)})
    marked = first.select([name for name in topic.late.columns if name in first.column_names]).join(marks, keys="_batch", join_type="inner")
    late = marked.filter(pc.field("event_at") < pc.field("mark")).drop_columns("mark")
    return events.late_rows(in_memory(spark, late), watermarks, spark).toArrow()


def _append(rows: DataFrame | pa.Table, settings: Settings, table: tables.Table, txn: Txn, count: int) -> None:
    """Append rows (`count` of them): without Spark where they are held in memory, else by Spark in files of a good size."""
    if isinstance(rows, pa.Table):
        ordered = rows.sort_by([(name, "ascending") for name in tables.ARRIVAL])
        few_rows.append_batches(ordered, settings, table, txn)
    else:
        sinks.append_batches(sinks.in_order(rows, tables.ARRIVAL, count), settings, table, txn)


def _record(
    settings: Settings,
    run_id: str,
    application: str,
    table: tables.Table,
    last: int,
    rules_version: str,
    taken: _Taken,
) -> None:
    kill_point(f"before batches of {table.name}")
    row = {"run_id": run_id, "job": "silver", "table": table.name, "first_batch": taken.first, "last_batch": last}
    row |= {"duplicates": 0, "superseded": 0, "no_change": 0, **taken.sums}
    row |= {"rules_version": rules_version, "finished_at": datetime.now(UTC), "_newest_event_at": taken.newest}
    control.append(settings, tables.BATCHES, [row], once=Txn(f"{application}/{table.name}", last))
    kill_point(f"after batches of {table.name}")


def _newest_event(settings: Settings, topic: Topic) -> datetime | None:
    """The largest event time of all valid rows so far.

    The last batch knows it, or a backfill since then; and beyond, the rows that a re-drive has put in their places after that.
    """
    done = control.newest_run(settings, "silver", topic.silver.name)
    backfilled = backfills.last_rebuild(settings, topic.silver)
    last = backfilled if backfilled and (not done or backfilled["last_batch"] >= done["last_batch"]) else done
    since = backfilled["version"] if backfilled and last is backfilled else -1
    sql = _NEWEST_REDRIVEN.substitute(table=topic.silver.name, version=since)
    moments = [last["_newest_event_at"] if last else None, control.value(tables.REDRIVES.open(settings), sql, tables.REDRIVES)]
    return max((moment for moment in moments if moment is not None), default=None)
