"""Which keys a silver table of events has already: a slim index of hashes says where, and no more of the table is read than those rows.

An entry of the index (such as silver.transaction_ids) is the hash of a key and where its row lies in Kafka. Entries of rows that are not
there do no harm, because the rows themselves are compared; a missing one would let a key in twice. So whoever puts a row into
the silver table writes its entry first (`add_entries`).
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from spark_jobs.control import scope
from spark_jobs.control.matching import find_rows
from spark_jobs.lake import compaction, few_rows, ranges, sinks, sources
from spark_jobs.lake.kept import in_memory
from spark_jobs.lake.topic import Topic
from spark_jobs.lake.txn import Txn, applied
from spark_jobs.runtime.settings import Settings
from spark_jobs.silver.judge import is_valid

SESSION = {"parquet.page.row.count.limit": "1000", "spark.sql.parquet.compression.codec": "zstd"}  # rows are found by pages: small ones
_PLACE = ["_partition", "_offset"]
_ENTRY = ["id_hash", *_PLACE]
_PAGE_ROWS = 20_000
LARGE_PAGES = {"parquet.page.row.count.limit": str(_PAGE_ROWS)}
_MOST_FILES = 32
_ENDS = 2**22  # of hashes, by their last bits
Hashes = NDArray[np.int64]


def catch_up(spark: SparkSession, settings: Settings, topic: Topic, application: str, upto: int) -> None:
    """Bring the index up to a batch that the silver table is complete to: after an upgrade, a crash or a roll-back."""
    done = applied(settings, topic.ids, application) or 0
    if done < min(upto, scope.newest_batch(settings, topic.silver) or 0):
        rows = sources.read_table(spark, settings, topic.silver).where(F.col("_batch").between(done + 1, upto))
        add_entries(rows, settings, topic, Txn(application, upto))


def add_entries(rows: DataFrame, settings: Settings, topic: Topic, txn: Txn) -> None:
    """Append the entries of rows of the silver table, if the application has not brought the index that far before."""
    add_new(entries(rows, topic, "_batch"), settings, topic, txn)


def add_new(new: DataFrame | pa.Table, settings: Settings, topic: Topic, txn: Txn) -> None:
    """`add_entries` of entries, with their `_batch`, that are held in memory or computed by Spark."""
    if isinstance(new, pa.Table):
        ordered = new.sort_by([(name, "ascending") for name in _PLACE])
        few_rows.append_batches(ordered, settings, topic.ids, txn, page_rows=_PAGE_ROWS)
        return
    with sinks.configured(new.sparkSession, LARGE_PAGES):
        sinks.append_batches(new, settings, topic.ids, txn)


def entries(rows: DataFrame, topic: Topic, *others: str) -> DataFrame:
    """The entries of rows of the silver table, with some other columns of theirs."""
    return rows.select(key_hash(topic).alias("id_hash"), *_PLACE, *others)


def compact(settings: Settings, topic: Topic) -> None:
    """Keep the index in few files."""
    compaction.join_unordered(settings, topic.ids, _MOST_FILES, _PAGE_ROWS)


def key_hash(topic: Topic) -> Column:
    """By which the index knows a key; several keys may have the same."""
    return F.xxhash64(topic.key)


def find_entries(settings: Settings, topic: Topic, hashes: Hashes) -> pa.Table | None:
    """The entries with one of these hashes, which are sorted; None where they are too many to be held in memory. Reads the whole index."""
    ends = np.zeros(_ENDS, bool)
    ends[hashes & (_ENDS - 1)] = True

    def is_known(part: pa.Table) -> pa.Array:
        own = part["id_hash"].to_numpy()
        known = ends[own & (_ENDS - 1)]  # few others: a search among the hashes takes ten times as long
        places = np.flatnonzero(known)
        known[places] = hashes[np.minimum(np.searchsorted(hashes, own[places]), len(hashes) - 1)] == own[places]
        return pa.array(known)

    return find_rows(settings, topic.ids, _ENTRY, is_known, "true" if len(hashes) else "false")


def rows_at(spark: SparkSession, settings: Settings, topic: Topic, found: pa.Table, upto: int) -> DataFrame:
    """The rows of the silver table of batches up to this one at the places of some entries, and at most a few others.

    Few are read by pages, without Spark, and of each its key, place and content.
    """
    if found.num_rows <= few_rows.MOST_ROWS and (rows := _few_rows_at(settings, topic, found, upto)) is not None:
        return in_memory(spark, rows)
    silver = sources.read_table(spark, settings, topic.silver).where(F.col("_batch") <= upto)
    return silver.join(in_memory(spark, found.select(_PLACE)), on=_PLACE, how="left_semi")


def known_rows(judged: DataFrame, settings: Settings, topic: Topic, upto: int) -> DataFrame:
    """The rows of the silver table from batches up to this one with the hash of a key of the valid rows in `judged`: by Spark alone."""
    spark = judged.sparkSession
    new = judged.where(is_valid()).select(key_hash(topic).alias("id_hash"))
    places = sources.read_table(spark, settings, topic.ids).join(new, on="id_hash", how="left_semi").select(*_PLACE)
    silver = sources.read_table(spark, settings, topic.silver).where(F.col("_batch") <= upto)
    return silver.join(places, on=_PLACE, how="left_semi")


def _few_rows_at(settings: Settings, topic: Topic, found: pa.Table, upto: int) -> pa.Table | None:
    """None where they are too many to be held in memory."""
    near = []
    for partition in pc.unique(found["_partition"]).to_pylist():
        offsets = found.filter(pc.equal(found["_partition"], partition))["_offset"].to_pylist()
        near.append(f"(_partition = {partition} and {ranges.holding('_offset', offsets)})")
    columns = list(dict.fromkeys((topic.key, "_topic", *_PLACE, *topic.content)))
    where = f"_batch <= {upto} and {ranges.any_of(near)}"
    return find_rows(settings, topic.silver, columns, ranges.is_among("_offset", pc.unique(found["_offset"])), where)
