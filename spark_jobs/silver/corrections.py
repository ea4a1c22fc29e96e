"""Corrections: values that people put in place of what Kafka brought, an append-only table with who and why.

A correction takes effect only through a re-drive. Bronze keeps its bytes.
"""

from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs import control
from spark_jobs.settings import Settings
from spark_jobs.tables import CORRECTIONS, REDRIVES, Table

Place = tuple[str, int, int]  # topic, partition, offset

PLACE = ["_topic", "_partition", "_offset"]
_CORRECTED = "_topic string, _partition int, _offset bigint, _corrected binary"


def in_effect(settings: Settings, table: Table) -> dict[Place, bytes]:
    """The corrected values of a table's records that were judged good by them: of each, the newest when it was judged."""
    corrections = sorted(control.read(settings, CORRECTIONS).to_pylist(), key=lambda row: row["corrected_at"])
    values: dict[Place, list[tuple[datetime, bytes]]] = {}
    for row in corrections:
        values.setdefault(_place(row), []).append((row["corrected_at"], row["value"]))
    return {
        place: next(value for at, value in reversed(values[place]) if at <= row["redriven_at"])
        for place, row in last_redrives(settings, table).items()
        if row["is_corrected"] and row["outcome"] != "quarantine"
    }


def last_redrives(settings: Settings, table: Table) -> dict[Place, dict[str, Any]]:
    """What the last re-drive made of each record of a table that was ever judged again."""
    rows = (row for row in control.read(settings, REDRIVES).to_pylist() if row["table"] == table.name)
    return {_place(row): row for row in sorted(rows, key=lambda row: row["redriven_at"])}


def correct(bronze: DataFrame, values: dict[Place, bytes], spark: SparkSession) -> DataFrame:
    """Bronze rows with these values in place of their own; the other rows as they are."""
    if not values:
        return bronze
    frame = spark.createDataFrame([(*place, value) for place, value in values.items()], _CORRECTED)
    joined = bronze.join(frame, on=PLACE, how="left")
    return joined.withColumn("value", F.coalesce("_corrected", "value")).select(*bronze.columns)


def _place(row: dict[str, Any]) -> Place:
    return row["_topic"], row["_partition"], row["_offset"]
