"""A source of rows at a rate that may change while it is read, by Spark's Python data source API."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

FORMAT = "ledger_rate"
_SECOND = 1_000_000  # microseconds, in which all times are counted
_LONGEST_PAUSE = 60 * _SECOND  # rows of a longer one, in which nothing read the source, are never made
_TIME = pa.timestamp("us", "UTC")
_SCHEMA = pa.schema([("value", pa.int64()), ("event_at", _TIME)])


class RateSource(DataSource):
    """Rows `value` (0, 1, 2 ...) and `event_at` (UTC), evenly spaced. Each batch reads the rows a second from the option `rate_file`."""

    @classmethod
    def name(cls) -> str:
        """What `readStream.format` calls it."""
        return FORMAT

    def schema(self) -> str:
        """The columns, as DDL."""
        return "value bigint, event_at timestamp"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """What Spark asks for offsets and rows."""
        return RateReader(Path(self.options["rate_file"]))


@dataclass(frozen=True)
class Span(InputPartition):
    """The rows of a batch: the number of the first one, how many, and the time that they share, from after `begin` up to `end`."""

    first: int
    count: int
    begin: int
    end: int

    def rows(self) -> pa.RecordBatch:
        """The rows, the same ones however often they are read."""
        values = range(self.first, self.first + self.count)
        times = [self.begin + (number + 1) * (self.end - self.begin) // self.count for number in range(self.count)]
        return pa.record_batch([pa.array(values, pa.int64()), pa.array(times, _TIME)], schema=_SCHEMA)


class RateReader(DataSourceStreamReader):
    """An offset says how many rows there are, and in which time those since the offset before it came: so a batch can be repeated."""

    def __init__(self, rate_file: Path) -> None:
        self._rate_file = rate_file

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  (Spark's name)
        """No row yet."""
        now = time.time_ns() // 1000
        return {"rows": 0, "begin": now, "end": now}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802  (Spark's name)
        """As many rows more as the rate allows since the last one; `start` itself where that is none, or the clock was set back."""
        now, rate = time.time_ns() // 1000, int(self._rate_file.read_text())
        begin = max(start["end"], now - _LONGEST_PAUSE)
        if (count := (now - begin) * rate // _SECOND) <= 0:
            return start
        return {"rows": start["rows"] + count, "begin": begin, "end": begin + count * _SECOND // rate}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One, for one task: a thousand rows a second are few."""
        count = end["rows"] - start["rows"]
        return [Span(start["rows"], count, end["begin"], end["end"])] if count else []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a `Span`, in one Arrow batch."""
        assert isinstance(partition, Span)
        yield partition.rows()
