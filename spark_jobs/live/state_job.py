"""`run state list|show|export`: what the live queries hold. Holds no lease and writes nothing but an export's folder.

Their rows go to stdout, what is said about them to stderr.
"""

import logging
from functools import reduce
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from spark_jobs.lake import conditions as condition, sinks
from spark_jobs.lake.sources import moment
from spark_jobs.live import state
from spark_jobs.live.declaration import LiveQuery
from spark_jobs.live.queries import BY_NAME, QUERIES
from spark_jobs.live.state import Session, State, Store
from spark_jobs.runtime.errors import LedgerError, SettingsError, first_line
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import listed, print_lines

log = logging.getLogger(__name__)

MOST_ROWS = 1000
_OF_CONDITIONS = ("22", "42")  # SQLSTATE: values that do not fit, names and syntax
_NO_STATE = "%s has no state: no batch of it has ended yet"


def list_all(settings: Settings, session: Session) -> None:
    """Print of every live query its newest batch, and of each of its state stores the keys, entries and bytes.

    Raises LedgerError, after all others, for those that cannot be read.
    """
    failed = []
    for query in QUERIES:
        try:
            print_lines(state.read_newest(session, settings, query, _summary) or f"{query.name}: no batch has ended yet: there is no state")
        except LedgerError as error:
            print_lines(f"{query.name}: cannot be read")
            failed.append(str(error))
    if failed:
        raise LedgerError("; ".join(failed))


def show(settings: Settings, session: Session, name: str, where: str) -> None:
    """Print what a query holds of the keys that a condition picks, a JSON object a line, the first thousand.

    Raises SettingsError for a query or condition that is none.
    """
    query = _query(name)
    condition.check(where)
    lines = state.read_newest(session, settings, query, lambda spark, found: _picked(spark, found, where))
    if lines is None:
        log.info(_NO_STATE, name)
    elif lines:
        print_lines("\n".join(lines[:MOST_ROWS]))
        if len(lines) > MOST_ROWS:
            log.info("more than %d rows match: ask for fewer, or take all by run state export", MOST_ROWS)
    else:
        log.info("%s holds nothing of such a key", name)


def export(settings: Settings, session: Session, name: str, to: Path) -> None:
    """Write what a query holds as Parquet, in a folder for each state store, with the batch and the watermark in each row.

    Raises SettingsError for a query that is none, or a target that is no empty or new folder.
    """
    query = _query(name)
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise SettingsError(f"--to: found {to}, which is {'not empty' if to.is_dir() else 'no folder'}, expected an empty or a new folder")
    if not state.read_newest(session, settings, query, lambda spark, found: _written(spark, found, to.absolute())):
        log.info(_NO_STATE, name)


def _query(name: str) -> LiveQuery:
    if name not in BY_NAME:
        raise SettingsError(f"--query: found {name!r}, expected one of {', '.join(BY_NAME)}")
    return BY_NAME[name]


def _summary(spark: SparkSession, found: State) -> str:
    frames = [state.entries(spark, found, store) for store in found.stores]
    if not found.stores:
        return f"{found}: keeps no state"
    counts = [frame.agg(F.lit(number).alias("number"), F.count("*").alias("n")) for number, frame in enumerate(frames)]
    keys = {row["number"]: row["n"] for row in reduce(DataFrame.unionAll, counts).collect()}
    lines = [
        (store.operator_id, store.operator, store.name, store.partitions, keys[number], state.bytes_on_disk(found, store), _key(frame))
        for number, (store, frame) in enumerate(zip(found.stores, frames, strict=True))
    ]
    return "\n".join([str(found), *listed(("", "operator", "state store", "partitions", "entries", "bytes", "key"), lines)])


def _picked(spark: SparkSession, found: State, where: str) -> list[str]:
    frames = [(store, state.entries(spark, found, store)) for store in found.stores]
    if not frames:
        return []
    try:
        lines = [frame.where(F.expr(where)).select(_json(store, frame).alias("line")) for store, frame in frames]
        rows = reduce(DataFrame.unionAll, lines).limit(MOST_ROWS + 1).collect()
    except PySparkException as error:
        if (error.getSqlState() or "").startswith(_OF_CONDITIONS):
            said = first_line(error).partition(" SQLSTATE")[0].rstrip(".")
            raise SettingsError(f"--where: {said}: expected a condition on the key columns {_key(frames[0][1])}") from None
        raise
    log.info("%s", found)
    return [row["line"] for row in rows]


def _written(spark: SparkSession, found: State, to: Path) -> bool:
    watermark = F.lit(None).cast("timestamp") if found.watermark is None else moment(found.watermark)
    with sinks.configured(spark, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}):
        for store in found.stores:
            rows = state.entries(spark, found, store).withColumn("batch", F.lit(found.batch).cast("bigint"))
            rows.withColumn("watermark_at", watermark).write.mode("overwrite").parquet(str(to / str(store.operator_id) / store.name))
    log.info("%s: written to %s", found, to)
    return True


def _json(store: Store, frame: DataFrame) -> Column:
    line = {"operator": F.lit(store.operator), "store": F.lit(store.name), "key": F.struct(*state.keys(frame)), "value": F.col("value")}
    return F.to_json(F.struct(*(column.alias(name) for name, column in line.items())), {"ignoreNullFields": "false"})


def _key(frame: DataFrame) -> str:
    return ", ".join(f"{name} {frame.schema[name].dataType.simpleString()}" for name in state.keys(frame))
