"""The silver job: one availableNow pass over what bronze has gained, table by table."""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from expectations.row_rules import read_rules
from spark_jobs import control, sinks, sources, tables
from spark_jobs.faults import kill_point
from spark_jobs.settings import Settings
from spark_jobs.silver import history, transactions
from spark_jobs.silver.judge import is_valid

log = logging.getLogger(__name__)

APPLICATION = "silver"
_OUTCOMES = {"output": "version", "superseded": "superseded", "no_change": "no_change"}  # column of control.batches -> outcome
_DIMENSIONS = (
    (history.CUSTOMERS, tables.BRONZE_CUSTOMERS, tables.SILVER_CUSTOMERS, tables.CUSTOMERS_QUARANTINE),
    (history.ACCOUNTS, tables.BRONZE_ACCOUNTS, tables.SILVER_ACCOUNTS, tables.ACCOUNTS_QUARANTINE),
)


def run(spark: SparkSession, settings: Settings, run_id: str) -> None:
    """Bring every silver table up to bronze as it is now, and record in control.batches what became of every row."""
    queries = [take_transactions(spark, settings, run_id)]
    for dimension, bronze, silver, quarantine in _DIMENSIONS:
        queries.append(take_dimension(spark, settings, run_id, dimension, bronze, silver, quarantine))
    sources.wait_for(queries)


def take_transactions(spark: SparkSession, settings: Settings, run_id: str) -> StreamingQuery:
    """Split new bronze transactions into silver, duplicates and quarantine, and list the late ones."""
    rules = read_rules("transactions")

    def process(rows: DataFrame, first: int, last: int) -> None:
        judged = transactions.judge_transactions(rows, rules)
        known = sources.read_table(rows.sparkSession, settings, tables.SILVER_TRANSACTIONS).where(F.col("_batch") < first)
        marked = transactions.mark_duplicates(judged, known).localCheckpoint()
        facts = marked.groupBy("_batch").agg(
            F.count("*").alias("input"),
            F.count_if("is_first").alias("output"),
            F.count_if(is_valid() & ~F.col("is_first")).alias("duplicates"),
            F.count_if(~is_valid()).alias("quarantined"),
            F.unix_micros(F.max("event_at")).alias("newest"),
        )
        counts = [row.asDict() for row in facts.collect()]
        before = _newest_event(settings)
        watermarks = transactions.batch_watermarks(
            [(row["_batch"], _at(row["newest"])) for row in counts], before, settings.allowed_lateness_seconds
        )
        first_rows = marked.where("is_first")
        sums = {name: sum(row[name] for row in counts) for name in ("input", "output", "duplicates", "quarantined")}
        outputs = (
            (tables.SILVER_TRANSACTIONS, first_rows, sums["output"]),
            (tables.TRANSACTIONS_DUPLICATES, marked.where(is_valid() & ~F.col("is_first")), sums["duplicates"]),
            (tables.TRANSACTIONS_QUARANTINE, marked.where(~is_valid()), sums["quarantined"]),
            (tables.TRANSACTIONS_LATE, transactions.late_rows(first_rows, watermarks, rows.sparkSession), len(watermarks)),
        )
        for table, output, is_some in outputs:
            if is_some:
                sinks.append_batches(output, settings, table, APPLICATION, last)
        newest = max((at for at in (before, *(_at(row["newest"]) for row in counts)) if at is not None), default=None)
        _record(settings, run_id, tables.SILVER_TRANSACTIONS, first, last, rules.version, sums, newest)

    return _process_new_batches(spark, settings, tables.BRONZE_TRANSACTIONS, tables.SILVER_TRANSACTIONS, process)


def take_dimension(
    spark: SparkSession,
    settings: Settings,
    run_id: str,
    dimension: history.Dimension,
    bronze: tables.Table,
    silver: tables.Table,
    quarantine: tables.Table,
) -> StreamingQuery:
    """Rebuild, from all their messages, the histories of the keys that new bronze rows speak of."""
    rules = read_rules(dimension.topic)

    def process(rows: DataFrame, first: int, last: int) -> None:
        spark = rows.sparkSession
        new = history.judge_messages(rows, dimension, rules).localCheckpoint()
        touched = new.where(is_valid()).select("key").distinct()
        earlier = sources.read_table(spark, settings, bronze).where(F.col("_batch") < first)
        messages = history.judge_messages(earlier.join(touched, on="key", how="left_semi"), dimension, rules)
        after = history.classify_messages(messages.unionByName(new), dimension).localCheckpoint()
        outcomes = _count(after)
        outcomes.subtract(_count(history.classify_messages(messages, dimension)))
        facts = new.agg(F.count("*").alias("input"), F.count_if(~is_valid()).alias("quarantined")).collect()[0].asDict()
        if facts["quarantined"]:
            sinks.append_batches(history.quarantined(new, dimension, rules), settings, quarantine, APPLICATION, last)
        wanted = history.versions(after, dimension).select(*silver.columns)
        present = sources.read_table(spark, settings, silver).join(
            touched.select(F.col("key").cast("string").alias(dimension.key)), on=dimension.key, how="left_semi"
        )
        sinks.merge_rows(
            sinks.difference(present, wanted, on=silver.keys),
            settings,
            silver,
            application=APPLICATION,
            upto=last,
            on=silver.keys,
            deletes_where="s._is_gone",
        )
        sums = facts | {name: outcomes[outcome] for name, outcome in _OUTCOMES.items()}
        _record(settings, run_id, silver, first, last, rules.version, sums, None)

    return _process_new_batches(spark, settings, bronze, silver, process)


def _process_new_batches(
    spark: SparkSession, settings: Settings, bronze: tables.Table, silver: tables.Table, process: Callable[[DataFrame, int, int], None]
) -> StreamingQuery:
    """Start to run `process(rows, first batch, last batch)` on the whole bronze batches that were not processed before."""

    def take(rows: DataFrame, _: int) -> None:
        done = control.last_batch(settings, APPLICATION, silver.name)
        fresh = rows.where(F.col("_batch") > done)
        first, last = fresh.agg(F.min("_batch"), F.max("_batch")).collect()[0]
        if last is None:
            return
        process(fresh, first, last)
        log.info("%s: batches %d to %d are in", silver.name, first, last)

    checkpoint = settings.checkpoints / "silver" / bronze.name
    query = sources.stream_table(spark, settings, bronze).writeStream.queryName(silver.name).foreachBatch(take)
    return query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def _record(
    settings: Settings,
    run_id: str,
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
    control.append(settings, tables.BATCHES, [row], once=(f"silver/{table.name}", last))
    kill_point(f"after batches of {table.name}")


def _newest_event(settings: Settings) -> datetime | None:
    done = control.batches(settings, "silver", tables.SILVER_TRANSACTIONS.name)
    return done[-1]["_newest_event_at"] if done else None


def _count(classified: DataFrame) -> Counter[str]:
    return Counter({row["outcome"]: row["n"] for row in classified.groupBy("outcome").agg(F.count("*").alias("n")).collect()})


def _at(micros: int | None) -> datetime | None:
    """A time from Spark; as a number, because a collected timestamp would take the zone of this machine."""
    return None if micros is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
