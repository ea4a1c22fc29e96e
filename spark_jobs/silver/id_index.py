"""Which keys a silver table of events has already: a slim index of hashes says where, and no more of the table is read than those rows.

An entry of the index (such as silver.transaction_ids) is the hash of a key and where its row lies in Kafka. Entries of rows that are not
there do no harm, because the rows themselves are compared; a missing one would let a key in twice. So whoever puts a row into
the silver table writes its entry first (`add_entries`).
"""

from collections.abc import Collection, Sequence

from pyspark.sql import Column, DataFrame, Row, SparkSession, functions as F

from spark_jobs.control import scope
from spark_jobs.lake import sinks, sources
from spark_jobs.lake.topic import Topic
from spark_jobs.lake.txn import Txn
from spark_jobs.runtime.settings import Settings
from spark_jobs.silver.judge import is_valid

# Rows are found by pages: small ones, and each of many offsets is compared with the page index.
SESSION = {
    "parquet.page.row.count.limit": "1000",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.pushdown.inFilterThreshold": "2000",
}
_MOST_LOOKED_UP = 2_000  # rows that are found so; more are cheaper to find by reading the table
_PLACE = ["_partition", "_offset"]
_MOST_BROADCAST = 2_000_000
_MOST_COMPARED = 50
LARGE_PAGES = {"parquet.page.row.count.limit": "20000"}
_MOST_FILES = 32
_FILE_BYTES = 64 * 2**20


def catch_up(spark: SparkSession, settings: Settings, topic: Topic, application: str, upto: int) -> None:
    """Bring the index up to a batch that the silver table is complete to: after an upgrade, a crash or a roll-back."""
    done = sinks.applied(settings, topic.ids, application) or 0
    if done < min(upto, scope.newest_batch(settings, topic.silver) or 0):
        rows = sources.read_table(spark, settings, topic.silver).where(F.col("_batch").between(done + 1, upto))
        add_entries(rows, settings, topic, Txn(application, upto))


def add_entries(rows: DataFrame, settings: Settings, topic: Topic, txn: Txn) -> None:
    """Append the entries of rows of the silver table, if the application has not brought the index that far before."""
    with sinks.configured(rows.sparkSession, LARGE_PAGES):
        sinks.append_batches(entries(rows, topic, "_batch"), settings, topic.ids, txn)


def entries(rows: DataFrame, topic: Topic, *others: str) -> DataFrame:
    """The entries of rows of the silver table, with some other columns of theirs."""
    return rows.select(_hash(topic).alias("id_hash"), *_PLACE, *others)


def compact(spark: SparkSession, settings: Settings, topic: Topic) -> None:
    """Keep the index in few files."""
    with sinks.configured(spark, LARGE_PAGES):
        sinks.compact(spark, settings, topic.ids, _MOST_FILES, _FILE_BYTES)


def known_rows(judged: DataFrame, settings: Settings, topic: Topic, before: int) -> DataFrame:
    """The rows of the silver table from batches before this one that may have the keys of the valid rows in `judged`.

    All rows with such a key come out, and at most a few others. Reads the whole index, and of the silver table about a page
    of rows a hit (with more than 2,000 hits, all of it). `judged` is read more than once.
    """
    spark = judged.sparkSession
    silver = sources.read_table(spark, settings, topic.silver).where(F.col("_batch") < before)
    index = sources.read_table(spark, settings, topic.ids)
    if index.isEmpty():
        return silver.where("false")
    new = judged.where(is_valid()).select(_hash(topic).alias("id_hash"))
    few = judged.count() <= _MOST_BROADCAST
    places = index.join(F.broadcast(new) if few else new, on="id_hash", how="left_semi").select(*_PLACE).localCheckpoint()
    hits = places.count()
    if hits > _MOST_LOOKED_UP:
        return silver.join(F.broadcast(places) if hits <= _MOST_BROADCAST else places, on=_PLACE, how="left_semi")
    return F.broadcast(silver.where(_lies_at(places.collect())))


def _hash(topic: Topic) -> Column:
    return F.xxhash64(topic.key)


def _lies_at(places: Sequence[Row]) -> Column:
    """A condition that data skipping and Parquet's page index understand, true for these coordinates and few others."""
    if not places:
        return F.lit(False)
    offsets: dict[int, set[int]] = {}
    for place in places:
        offsets.setdefault(place["_partition"], set()).add(place["_offset"])
    return F.expr(" or ".join(f"(_partition = {partition} and {_is_among(found)})" for partition, found in sorted(offsets.items())))


def _is_among(offsets: Collection[int]) -> str:
    """Of a list, data skipping sees only the ends: few are compared one by one."""
    if len(offsets) > _MOST_COMPARED:
        return f"_offset in ({', '.join(map(str, sorted(offsets)))})"
    return f"({' or '.join(f'_offset = {offset}' for offset in sorted(offsets))})"
