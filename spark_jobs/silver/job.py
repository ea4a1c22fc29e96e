"""The silver job: one availableNow pass over what bronze has gained, table by table."""

import logging
from collections import Counter
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from string import Template

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.streaming.query import StreamingQuery

from expectations.row_rules import read_rules
from spark_jobs import control
from spark_jobs.control import backfills, corrections, rule_sets, scope
from spark_jobs.lake import sinks, sources, tables
from spark_jobs.lake.topic import Topic
from spark_jobs.lake.topics import TOPICS
from spark_jobs.lake.txn import Txn
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.times import from_micros
from spark_jobs.silver import batches, events, history, id_index, recompute
from spark_jobs.silver.judge import is_valid
from spark_jobs.silver.records import judge_records, parse_records, quarantined, type_records

log = logging.getLogger(__name__)

_APPLICATION = "silver"
_OUTCOMES = {"output": "version", "superseded": "superseded", "no_change": "no_change"}  # column of control.batches -> outcome
_MOST_BROADCAST = 500_000
_NEWEST_REDRIVEN = Template(
    "select max(_newest_event_at) as newest from t where \"table\" = '$table' and coalesce(_silver_version, 0) > $version"
)


def run(spark: SparkSession, settings: Settings, run_id: str, bronze: Collection[tables.Table] = tables.BRONZE) -> None:
    """Bring the silver tables of some bronze tables up to them as they are now, and record what became of every row."""
    for name, value in id_index.SESSION.items():
        spark.conf.set(name, value)
    queries = []
    for topic in TOPICS:
        if topic.bronze in bronze:
            queries.append((take_versions if topic.has_versions else take_events)(spark, settings, run_id, topic))
    sources.wait_for(queries)


def finish(spark: SparkSession, settings: Settings, run_id: str) -> None:
    """Repeat a run that died between two of its tables, before rows of older batches are changed: its tables must agree.

    That takes all new batches of the bronze tables in question. The caller holds silver's leases.
    """
    halfway = scope.unfinished_bronze(settings)
    if halfway:
        log.warning("silver stopped halfway in batches of %s: its run is repeated first", ", ".join(table.name for table in halfway))
        run(spark, settings, run_id, halfway)


def take_events(spark: SparkSession, settings: Settings, run_id: str, topic: Topic) -> StreamingQuery:
    """Split new events into the silver table, duplicates and quarantine, and list the late ones."""
    application = control.application(settings, _APPLICATION)
    begun = rule_sets.begun(settings, application, topic.name, topic.silver)
    id_index.catch_up(spark, settings, topic, application, control.last_batch(settings, "silver", topic.silver.name))

    def process(rows: DataFrame, first: int, last: int) -> None:
        rules = begun.rules if begun and last <= begun.last else read_rules(topic.name)
        judged = events.judge_events(rows, topic, rules).localCheckpoint()
        marked = events.mark_duplicates(judged, id_index.known_rows(judged, settings, topic, first), topic).localCheckpoint()
        facts = marked.groupBy("_batch").agg(
            F.count("*").alias("input"),
            F.count_if("is_first").alias("output"),
            F.count_if(is_valid() & ~F.col("is_first")).alias("duplicates"),
            F.count_if(~is_valid()).alias("quarantined"),
            F.unix_micros(F.max("event_at")).alias("newest"),
        )
        counts = [row.asDict() for row in facts.collect()]
        before = _newest_event(settings, topic)
        watermarks = events.batch_watermarks(
            [(row["_batch"], from_micros(row["newest"])) for row in counts], before, settings.allowed_lateness_seconds
        )
        sums = {name: sum(row[name] for row in counts) for name in ("input", "output", "duplicates", "quarantined")}
        first_rows = sinks.in_order(marked.where("is_first"), tables.ARRIVAL, sums["output"])
        outputs = (
            (topic.silver, first_rows, sums["output"]),
            (topic.duplicates, marked.where(is_valid() & ~F.col("is_first")), sums["duplicates"]),
            (topic.quarantine, marked.where(~is_valid()), sums["quarantined"]),
            (topic.late, events.late_rows(marked.where("is_first"), watermarks, rows.sparkSession), len(watermarks)),
        )
        txn = Txn(application, last)
        rule_sets.begin(settings, txn, topic.silver, rules)
        if sums["output"]:
            id_index.add_entries(first_rows, settings, topic, txn)
        for table, output, is_some in outputs:
            if is_some:
                sinks.append_batches(output, settings, table, txn)
        newest = max((at for at in (before, *(from_micros(row["newest"]) for row in counts)) if at is not None), default=None)
        _record(settings, run_id, application, topic.silver, first, last, rules.version, sums, newest)
        id_index.compact(rows.sparkSession, settings, topic)

    return _process_new_batches(spark, settings, topic, process, begun)


def take_versions(spark: SparkSession, settings: Settings, run_id: str, topic: Topic) -> StreamingQuery:
    """Rebuild, from all their messages, the histories of the keys that new bronze rows speak of.

    Only the new rows are judged. Of the earlier ones those are valid that are not in quarantine: by the rules of their time, or
    by a re-drive, whose corrections take the place of their values.
    """
    application = control.application(settings, _APPLICATION)
    begun = rule_sets.begun(settings, application, topic.name, topic.silver)

    def process(rows: DataFrame, first: int, last: int) -> None:
        spark = rows.sparkSession
        rules = begun.rules if begun and last <= begun.last else read_rules(topic.name)
        new = judge_records(rows, topic, rules).localCheckpoint()
        facts = new.agg(F.count("*").alias("input"), F.count_if(~is_valid()).alias("quarantined")).collect()[0].asDict()
        touched = new.where(is_valid()).select("key").distinct()
        touched = F.broadcast(touched) if facts["input"] <= _MOST_BROADCAST else touched
        earlier = sources.read_table(spark, settings, topic.bronze).where(F.col("_batch") < first).join(touched, on="key", how="left_semi")
        refused = sources.read_table(spark, settings, topic.quarantine).join(touched, on="key", how="left_semi").select(*corrections.PLACE)
        valid = corrections.correct(recompute.without(earlier, refused), corrections.in_effect(settings, topic.silver), spark)
        messages = type_records(parse_records(valid, topic), topic).localCheckpoint()
        taken = type_records(new.where(is_valid()), topic)
        after = history.with_outcomes(messages.unionByName(taken), topic).localCheckpoint()
        outcomes = _count(after)
        outcomes.subtract(_count(history.with_outcomes(messages, topic)))
        txn = Txn(application, last)
        rule_sets.begin(settings, txn, topic.silver, rules)
        if facts["quarantined"]:
            sinks.append_batches(quarantined(new, topic), settings, topic.quarantine, txn)
        wanted = history.versions(after, topic).select(*topic.silver.columns)
        present = sources.read_table(spark, settings, topic.silver).join(
            touched.select(F.col("key").cast("string").alias(topic.key)), on=topic.key, how="left_semi"
        )
        difference = sinks.difference(present, wanted, on=topic.silver.keys)
        sinks.merge_changes(difference, settings, topic.silver, txn)
        sums = facts | {name: outcomes[outcome] for name, outcome in _OUTCOMES.items()}
        _record(settings, run_id, application, topic.silver, first, last, rules.version, sums, None)

    return _process_new_batches(spark, settings, topic, process, begun)


def _process_new_batches(
    spark: SparkSession,
    settings: Settings,
    topic: Topic,
    process: Callable[[DataFrame, int, int], None],
    begun: rule_sets.Begun | None,
) -> StreamingQuery:
    """Start to run `process(rows, first batch, last batch)` on the whole bronze batches that were not processed before.

    Those that an unfinished run has begun come first, by themselves.
    """

    def done() -> int:
        return control.last_batch(settings, "silver", topic.silver.name)

    stream = sources.stream_table(spark, settings, topic.bronze, scope.version_after(settings, topic.bronze, done()))
    take = batches.take_new(settings, topic.bronze, topic.silver.name, done, process, begun=begun.last if begun else 0)
    return sources.start_once(stream.writeStream.queryName(topic.silver.name).foreachBatch(take), settings, _APPLICATION, topic.bronze)


def _record(
    settings: Settings,
    run_id: str,
    application: str,
    table: tables.Table,
    first: int,
    last: int,
    rules_version: str,
    sums: dict[str, int],
    newest: datetime | None,
) -> None:
    kill_point(f"before batches of {table.name}")
    row = {"run_id": run_id, "job": "silver", "table": table.name, "first_batch": first, "last_batch": last}
    row |= {"duplicates": 0, "superseded": 0, "no_change": 0, **sums}
    row |= {"rules_version": rules_version, "finished_at": datetime.now(UTC), "_newest_event_at": newest}
    control.append(settings, tables.BATCHES, [row], once=Txn(f"{application}/{table.name}", last))
    kill_point(f"after batches of {table.name}")


def _newest_event(settings: Settings, topic: Topic) -> datetime | None:
    """The largest event time of all valid rows so far.

    The last batch knows it, or a backfill since then; and beyond, the rows that a re-drive has put in their places after that.
    """
    done = control.batches(settings, "silver", topic.silver.name)[-1:]
    backfilled = backfills.last_rebuild(settings, topic.silver)
    last = backfilled if backfilled and (not done or backfilled["last_batch"] >= done[0]["last_batch"]) else done[0] if done else None
    since = backfilled["version"] if backfilled and last is backfilled else -1
    sql = _NEWEST_REDRIVEN.substitute(table=topic.silver.name, version=since)
    redriven = control.query(DeltaTable(str(tables.REDRIVES.path(settings))), sql, tables.REDRIVES)
    moments = [last["_newest_event_at"] if last else None, redriven["newest"][0].as_py()]
    return max((moment for moment in moments if moment is not None), default=None)


def _count(classified: DataFrame) -> Counter[str]:
    return Counter({row["outcome"]: row["n"] for row in classified.groupBy("outcome").agg(F.count("*").alias("n")).collect()})
