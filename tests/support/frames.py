"""Frames for tests: written as literals, compared exactly."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import DataType, DateType, DecimalType, TimestampType

_EXACT = {"timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS", "ignoreNullFields": "false"}


def frame(spark: SparkSession, ddl: str, rows: Iterable[Sequence[Any]]) -> DataFrame:
    """A frame of the columns in `ddl`. Times (UTC), dates and decimals may be written as text: "2013-01-01 08:00", "1.50"."""
    schema = spark.createDataFrame([], ddl).schema
    kinds = [field.dataType for field in schema.fields]
    values = [tuple(_value(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in rows]
    return spark.createDataFrame(values, schema)


def at(text: str) -> datetime:
    """A time in UTC: "2013-01-01" or "2013-01-01 08:23:33.001"."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def assert_same(actual: DataFrame, expected: DataFrame) -> None:
    """Both have the same columns in the same order, of the same types, and the same rows as often; in whatever order.

    Tolerance zero: decimals, times to the microsecond, null and empty text all count as they are.
    """
    assert _columns(actual) == _columns(expected)
    found, wanted = Counter(texts(actual)), Counter(texts(expected))
    missing, extra = sorted((wanted - found).elements()), sorted((found - wanted).elements())
    assert not missing, "\n".join(["missing:", *missing, "extra:", *extra])
    assert not extra, "\n".join(["extra:", *extra])


def texts(rows: DataFrame) -> list[str]:
    """Each row as one JSON text that loses nothing (a collected time would take the zone of this machine)."""
    return [row[0] for row in rows.select(F.to_json(F.struct("*"), _EXACT)).collect()]


def values(rows: DataFrame) -> list[dict[str, Any]]:
    """Each row as a dictionary; times, dates and decimals as text."""
    as_text = [
        F.col(field.name).cast("string").alias(field.name)
        if isinstance(field.dataType, TimestampType | DateType | DecimalType)
        else F.col(field.name)
        for field in rows.schema.fields
    ]
    return [row.asDict(recursive=True) for row in rows.select(*as_text).collect()]


def to_json(**fields: Any) -> bytes:
    """A message with these fields, as a producer would write it."""
    return json.dumps(fields, ensure_ascii=False).encode()


def _columns(rows: DataFrame) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in rows.schema.fields]


def _value(value: Any, kind: DataType) -> Any:
    if not isinstance(value, str):
        return value
    if isinstance(kind, TimestampType):
        return at(value)
    if isinstance(kind, DateType):
        return date.fromisoformat(value)
    return Decimal(value) if isinstance(kind, DecimalType) else value
