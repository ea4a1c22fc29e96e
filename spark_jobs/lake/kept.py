"""Rows that are computed once and used several times, kept by the executors."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def kept(rows: "DataFrame") -> "DataFrame":
    """The same rows, computed now and once, for `rows.transform(kept)`; on a cluster two executors hold them, so that one may be lost."""
    from pyspark import StorageLevel

    if (rows.sparkSession.sparkContext.master or "").startswith("local"):
        return rows.localCheckpoint()
    return rows.localCheckpoint(storageLevel=StorageLevel(True, True, False, True, 2))  # memory and disk, as by default, but twice
