"""Rows that are used several times: computed once and kept by the executors, or held in this process."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_MOST_BROADCAST = 10 * 2**20  # bytes, as Spark's own choice is


def in_memory(spark: "SparkSession", rows: "pa.Table") -> "DataFrame":
    """Rows that this process holds, for Spark: as Arrow has them (session.py), so it has to be told that a join can broadcast them."""
    # Of each chunk Spark would make a task; columns without any it refuses.
    found = spark.createDataFrame(rows.combine_chunks() if rows.num_rows else rows.schema.empty_table())
    return found.hint("broadcast") if rows.nbytes <= _MOST_BROADCAST else found


def kept(rows: "DataFrame") -> "DataFrame":
    """The same rows, computed now and once, for `rows.transform(kept)`; on a cluster two executors hold them, so that one may be lost."""
    from pyspark import StorageLevel

    if (rows.sparkSession.sparkContext.master or "").startswith("local"):
        return rows.localCheckpoint()
    return rows.localCheckpoint(storageLevel=StorageLevel(True, True, False, True, 2))  # memory and disk, as by default, but twice
