"""Values of tables as Python objects, whatever they are.

Spark, Delta and Arrow know dates and times that Python does not: those before the year 1 and after the year 9999. A producer may send
some (a Kafka timestamp is its own where the topic keeps CreateTime), so they must stop nobody who reads a table. They become `Beyond`.
"""

from dataclasses import dataclass
from datetime import date, timedelta
from functools import singledispatch
from typing import Any

import pyarrow as pa

DAY = 86_400_000_000  # microseconds
_OF_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}  # microseconds; nanoseconds reach from 1677 to 2262 only
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_CYCLE_YEARS = 400
_CYCLE_DAYS = 146_097  # of 400 years: the calendar repeats
_YEAR_2000 = date(2000, 1, 1)


@dataclass(frozen=True, order=True)
class Beyond:
    """A date or a time (UTC) for which Python has no object, as microseconds since the epoch. Its text is that of ISO 8601."""

    micros: int
    is_date: bool = False

    def __str__(self) -> str:
        """Such as `+10000-01-01 00:00:00` or, of a date, `0000-01-01`."""
        days, rest = divmod(self.micros, DAY)
        cycles, day = divmod(days + _EPOCH_DAY - _YEAR_2000.toordinal(), _CYCLE_DAYS)
        alike = _YEAR_2000 + timedelta(days=day)
        year = alike.year + _CYCLE_YEARS * cycles
        text = f"{year:04}" if 0 <= year <= 9999 else f"{year:+06}" if year > 0 else f"{year:+05}"
        text += f"-{alike.month:02}-{alike.day:02}"
        if self.is_date:
            return text
        seconds, micros = divmod(rest, 1_000_000)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return f"{text} {clock}.{micros:06}" if micros else f"{text} {clock}"


def to_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table, each as a dictionary; a date or time that Python has no object for is a `Beyond`."""
    columns = [to_list(column) for column in table.columns]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def to_list(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column; a date or time that Python has no object for is a `Beyond`, also within lists and structs."""
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        values = [_value(scalar) for scalar in column]
    return values


@singledispatch
def _value(scalar: pa.Scalar) -> Any:
    return scalar.as_py()


@_value.register(pa.Date32Scalar)
def _of_date(scalar: pa.Date32Scalar) -> Any:
    return _or_beyond(scalar, None if scalar.value is None else scalar.value * DAY, is_date=True)


@_value.register(pa.TimestampScalar)
def _of_time(scalar: pa.TimestampScalar) -> Any:
    return _or_beyond(scalar, None if scalar.value is None else scalar.value * _OF_UNIT.get(scalar.type.unit, 0))


@_value.register(pa.ListScalar)
@_value.register(pa.LargeListScalar)
def _of_list(scalar: pa.ListScalar) -> Any:
    return to_list(scalar.values) if scalar.is_valid else None


@_value.register(pa.StructScalar)
def _of_struct(scalar: pa.StructScalar) -> Any:
    return {name: _value(scalar[name]) for name in scalar.type.names} if scalar.is_valid else None


def _or_beyond(scalar: pa.Scalar, micros: int | None, is_date: bool = False) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return Beyond(micros or 0, is_date)
