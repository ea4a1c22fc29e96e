"""Bronze's batches as silver takes them: whole, in order, and none twice."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from string import Template
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_jobs import control
from spark_jobs.control.matching import find_rows
from spark_jobs.lake import sources
from spark_jobs.lake.tables import ARRIVAL, Table
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import quoted

JUDGED = ["key", "value", "_timestamp", *ARRIVAL]
_ROWS_A_PART = 1_000_000  # of a few hundred bytes; the next part begins after this one is recorded
_MEASURES = ("num_records", "size_bytes")
MOST_FEW = 150_000
_FEW_BYTES = 16 * 2**20
_MOST_HELD, _MOST_HELD_BYTES = 1_500_000, 384 * 2**20  # rows in memory, and bytes of their values
_MOST_SENT_BYTES = 64 * 2**20  # to Spark, whose heap also holds what it makes of them
_SPLIT_BYTES = 48 * 2**20  # of values, for each task
SAMPLED = 20  # values, whose names are those of most
_SAMPLE = Template("select value from t where $within limit $rows")
_VALUES = Template("select sum(octet_length(encode(value, 'base64')) * 3 / 4) from t where $within")  # of bytes it has no length


@dataclass(frozen=True)
class Part:
    """The batches of a bronze table after one, up to another one, in files of so many rows and bytes: at most what they hold."""

    after: int
    last: int
    rows: int
    size: int

    @property
    def is_few(self) -> bool:
        """Whether planning costs more than reading."""
        return self.rows <= MOST_FEW and self.size <= _FEW_BYTES

    def few(self, settings: Settings, bronze: Table) -> pa.Table | None:
        """The rows of these batches in memory, with the columns that judging reads; None where they are many."""
        return find_rows(settings, bronze, JUDGED, None, self._within) if self.is_few else None

    def sample(self, settings: Settings, bronze: Table) -> list[bytes | None]:
        """Some of the values of these batches."""
        sql = _SAMPLE.substitute(within=self._within, rows=SAMPLED)
        values: list[bytes | None] = control.query(bronze.open(settings), sql, bronze).column(0).to_pylist()
        return values

    def held_splits(self, settings: Settings, bronze: Table) -> dict[str, str]:
        """Settings by which Spark reads these batches in parts that fit into memory beside the whole; none where that does not fit."""
        if self.rows > _MOST_HELD or not self.size:
            return {}
        size = control.value(bronze.open(settings), _VALUES.substitute(within=self._within), bronze) or 1
        return {"spark.sql.files.maxPartitionBytes": str(1 + self.size * _SPLIT_BYTES // size)} if size <= _MOST_HELD_BYTES else {}

    def read(self, spark: SparkSession, settings: Settings, bronze: Table) -> DataFrame:
        """The same, however many they are.

        Spark writes the numbers of batches into the code that it generates. So what follows is kept apart, by an operator that does
        nothing else: it is compiled once, and not again for each part.
        """
        return sources.read_table(spark, settings, bronze).where(self._within).selectExpr(*quoted(JUDGED)).coalesce(sources.ALL_TASKS)

    @property
    def _within(self) -> str:
        return f"_batch between {self.after + 1} and {self.last}"


def are_few(rows: pa.Table) -> bool:
    """Whether rows in memory are few enough to go to Spark."""
    return bool(rows.num_rows <= MOST_FEW and rows.nbytes <= _MOST_SENT_BYTES)


def unread_parts(settings: Settings, bronze: Table, done: int, begun: int) -> Iterator[Part]:
    """All batches after `done` that a bronze table has now, in parts of about a million rows, or of one batch with more.

    Batches up to `begun` were written in part by a run that died: a part ends there.
    """
    actions = pa.table(bronze.open(settings).get_add_actions(flatten=True))
    files = actions.select(["min._batch", "max._batch", *_MEASURES]).drop_null().to_pylist() if actions.num_rows else []
    firsts, lasts = (sorted(files, key=lambda file: int(file[f"{edge}._batch"])) for edge in ("min", "max"))
    ends = sorted({int(file["max._batch"]) for file in files} | {begun})
    ends = [end for end in ends if end > done]
    counts = [(_Sums(firsts, "min._batch", what), _Sums(lasts, "max._batch", what)) for what in _MEASURES]

    def between(after: int, last: int) -> list[int]:
        return [begins.upto(last) - ended.upto(after) for begins, ended in counts]

    for end, following in zip_longest(ends, ends[1:]):
        if following is None or end == begun or between(done, following)[0] > _ROWS_A_PART:
            rows, size = between(done, end)
            yield Part(done, end, rows, size)
            done = end


def unread_rows(settings: Settings, bronze: Iterable[Table]) -> int:
    """About how many rows of some bronze tables are in batches that silver has not processed."""
    read = control.silver_batches(settings)
    return sum(part.rows for table in bronze for part in unread_parts(settings, table, read[table.topic], 0))


class _Sums:
    """How much the files have together whose first, or last, batch is at most so and so."""

    def __init__(self, files: Sequence[dict[str, Any]], edge: str, what: str) -> None:
        self._edges = [int(file[edge]) for file in files]
        self._sums = [0, *accumulate(int(file[what]) for file in files)]

    def upto(self, batch: int) -> int:
        return self._sums[bisect_right(self._edges, batch)]
