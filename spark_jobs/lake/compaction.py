"""Joins the small files of a table. No row changes, and readers of changes and streams skip the commit.

Only neighbours are joined: files whose rows came one after the other. Delta's own OPTIMIZE joins files by size. A file would then hold
batches from everywhere, and reading whole batches in order would mean reading everything. So the files are chosen here, and Delta's own
transaction makes the commit (operation OPTIMIZE, no change of data).
"""

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.lake import few_rows, leases
from spark_jobs.lake.layout import order_of
from spark_jobs.lake.sinks import METADATA, configured
from spark_jobs.lake.tables import Table
from spark_jobs.lake.txn import COMMITTING, commit_properties
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.values import to_rows

log = logging.getLogger(__name__)

_MEGABYTE = 2**20
# Gold and the histories of silver change in place: a changed row rewrites its whole file.
_TARGETS = {"bronze": 64 * _MEGABYTE, "silver": 32 * _MEGABYTE, "gold": 16 * _MEGABYTE, "control": 8 * _MEGABYTE}
_LARGE = 0.75  # of the target: a file at least as large is never joined
_TINY = 16  # a file smaller than this part of the target may always be rewritten
_BINS_A_COMMIT = 8  # the work that a crash loses at most


@dataclass(frozen=True)
class DataFile:
    """One file of a table: its path in the log, partition, size, rows and place in the order of the table's rows."""

    path: str
    partition: str
    bytes: int
    rows: int
    place: Any

    @property
    def sort_key(self) -> tuple[Any, ...]:
        """Files without statistics come last."""
        return (self.partition, self.place is None, self.place if self.place is not None else 0, self.path)


def join_unordered(settings: Settings, table: Table, most: int, page_rows: int = few_rows.PAGE_ROWS) -> int:
    """Join the small files of a table that is read in no order, once there are more than `most` of them; returns how many. Without Spark.

    Files that have reached half the size stay as they are, or are written again a few times, so the work does not grow with the table.
    """
    target = target_bytes(table)
    sizes = pa.table(table.open(settings).get_add_actions())["size_bytes"].to_pylist()
    if sum(size < target // 2 for size in sizes) <= most:
        return 0
    joining, commit = table.open_to_write(settings).optimize, commit_properties(settings, table)
    kill_point(f"before compacting {table.name}")
    metrics = joining.compact(
        target_size=target, max_concurrent_tasks=1, commit_properties=commit, writer_properties=few_rows.writer(table, page_rows)
    )
    kill_point(f"after compacting {table.name}")
    return int(metrics["numFilesRemoved"])


def target_bytes(table: Table) -> int:
    """How large a file of a table should become."""
    return _TARGETS[table.layer]


def files_of(settings: Settings, table: Table) -> list[DataFile]:
    """The files of a table as it is now, and where each lies: by the first of the columns of order the smallest value that it has.

    Of gold the largest: a row that came late, of which any file may have some, says nothing of where the others are.
    """
    actions = pa.table(table.open(settings).get_add_actions(flatten=True))
    first = f"{'max' if table.layer == 'gold' else 'min'}.{(order_of(table) or ('',))[0]}"
    partitions = [f"partition.{name}" for name in table.partitioned_by]
    places = _numbers(actions[first]) if first in actions.column_names else [None] * len(actions)
    return [
        DataFile(
            path=file["path"],
            partition="/".join(f"{name.removeprefix('partition.')}={file[name]}" for name in partitions),
            bytes=file["size_bytes"],
            rows=file["num_records"] or 0,
            place=place,
        )
        for file, place in zip(to_rows(actions.select(["path", "size_bytes", "num_records", *partitions])), places, strict=True)
    ]


def _numbers(values: pa.ChunkedArray) -> list[Any]:
    """Values in an order of their own; dates and times as numbers, because Python does not have all of them."""
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if pa.types.is_date(values.type) else pa.int64())
    return list(values.to_pylist())


def plan(files: Iterable[DataFile], target: int, released: int | None = None) -> list[list[DataFile]]:
    """Which files to join: neighbours in one partition, up to about `target` bytes together.

    Files that have nearly reached the target stay, and end a row of neighbours. A file that is not tiny and larger than all that would
    be joined to it waits for more: a row is written again only a few times (about the logarithm of target to batch), however many runs.
    Files on either side of the batch `released` are not joined: their files show how long rows wait for a release.
    """

    def group(file: DataFile) -> tuple[Any, ...]:
        return file.partition, file.bytes >= _LARGE * target, released is not None and file.place is not None and file.place > released

    bins: list[list[DataFile]] = []
    for (_, is_large, _), neighbours in groupby(sorted(files, key=lambda file: file.sort_key), key=group):
        if not is_large:
            bins.extend(_bins(list(neighbours), target))
    return bins


def _bins(neighbours: list[DataFile], target: int) -> Iterator[list[DataFile]]:
    current: list[DataFile] = []
    for file in neighbours:
        if current and sum(each.bytes for each in current) + file.bytes > target:
            if len(current) > 1:
                yield current
            current = []
        current.append(file)
    while len(current) > 1 and current[0].bytes > max(target // _TINY, sum(each.bytes for each in current[1:])):
        current = current[1:]
    if len(current) > 1:
        yield current


def join_files(spark: SparkSession, settings: Settings, table: Table, bins: Sequence[Sequence[DataFile]]) -> int:
    """Write the files of each bin as one, several bins a commit; returns the number of files joined. The caller owns the table.

    Appends of the same process may come in between. Raises LedgerError, and leaves the table as it was, when a file does not hold the
    rows that its statistics tell.
    """
    for start in range(0, len(bins), _BINS_A_COMMIT):
        kill_point(f"before compacting {table.name}")
        _join(spark, settings, table, bins[start : start + _BINS_A_COMMIT])
        kill_point(f"after compacting {table.name}")
    return sum(map(len, bins))


def _join(spark: SparkSession, settings: Settings, table: Table, bins: Iterable[Sequence[DataFile]]) -> None:
    jvm: Any = spark._jvm
    delta = jvm.org.apache.spark.sql.delta
    delta_log = delta.DeltaLog.forTable(spark._jsparkSession, str(table.path(settings)))
    transaction = delta_log.startTransaction()
    actions = []
    for files in bins:
        paths = ", ".join(f"'{file.path}'" for file in files)
        found = transaction.snapshot().allFiles().filter(f"path in ({paths})").collectAsList()
        if len(found) != len(files):
            raise LedgerError(f"{table.name}: found {len(found)} of {len(files)} files to join, expected all: who else writes the table?")
        none = jvm.scala.Option.apply(None)
        rows = DataFrame(delta_log.createDataFrame(transaction.snapshot(), jvm.PythonUtils.toSeq(found), False, none), spark)
        order = (*table.partitioned_by, *order_of(table))
        ordered = rows.coalesce(1).sortWithinPartitions(*order) if order else rows.coalesce(1)
        new = transaction.writeFiles(ordered._jdf)
        added = [_without_change(json.loads(new.apply(number).json())) for number in range(new.size())]
        _check_rows(table, found, added)
        actions += [delta.actions.Action.fromJson(json.dumps(action)) for action in added]
        now = jvm.java.lang.System.currentTimeMillis()
        actions += [file.removeWithTimestamp(now, False) for file in found]
    nothing = jvm.PythonUtils.toSeq([])
    operation = getattr(delta, "DeltaOperations$Optimize")(nothing, nothing, False, jvm.scala.Option.apply(None), False)
    kill_point(f"within compacting {table.name}")
    with configured(spark, {METADATA: leases.commit_metadata(settings, table, {})}), COMMITTING:
        transaction.commit(jvm.PythonUtils.toSeq(actions), operation)


def _without_change(action: dict[str, Any]) -> dict[str, Any]:
    (kind,) = action
    return {kind: action[kind] | {"dataChange": False}}


def _check_rows(table: Table, files: Iterable[Any], added: Iterable[dict[str, Any]]) -> None:
    wanted = sum(file.numLogicalRecords().get() for file in files)  # without those that are marked as removed
    written = sum(json.loads(action["add"]["stats"])["numRecords"] for action in added)
    if written != wanted:
        raise LedgerError(
            f"{table.name}: found {written} rows in files that should hold {wanted}: nothing was joined; the table is damaged"
        )
