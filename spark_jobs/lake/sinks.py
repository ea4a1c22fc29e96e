"""Every write of the jobs that use Spark. Each is atomic and may be repeated.

A write says how far it brings its table (txn.py). Delta keeps that in the same commit as the rows; what a table has already is left
out of the next write. So a crash between two tables, a lost checkpoint or another cut of the batches neither loses nor doubles a row.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import date
from functools import reduce
from itertools import accumulate

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from spark_jobs.lake import few_rows, leases, ranges
from spark_jobs.lake.kept import in_memory, kept
from spark_jobs.lake.layout import merge_keys, merge_time, order_of
from spark_jobs.lake.tables import Table
from spark_jobs.lake.txn import Txn, applied
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import quoted

_ROWS_A_FILE = 500_000
_ROWS_A_CUT = 250_000
MARKS = "delta.enableDeletionVectors"
_TXN = "spark.databricks.delta.write.txn"
METADATA = "spark.databricks.delta.commitInfo.userMetadata"


def in_order(rows: DataFrame, columns: Sequence[str], count: int) -> DataFrame:
    """The rows (about `count`) in files of a good size, each sorted, so that a few of them are found without reading the others."""
    files = 1 + count // _ROWS_A_FILE
    spread = rows.coalesce(1) if files == 1 else rows.repartitionByRange(files, *columns)
    return spread.sortWithinPartitions(*columns)


def append_batches(rows: DataFrame, settings: Settings, table: Table, txn: Txn) -> None:
    """Append the rows of the batches that the table does not have yet (column `_batch`), in one commit."""
    done = applied(settings, table, txn.application) or 0
    if done >= txn.version:
        return
    new = rows.where(F.col("_batch") > done).select(*table.columns)
    append_once(new, settings, table, txn, {"batch": txn.version})


def append_once(rows: DataFrame, settings: Settings, table: Table, txn: Txn, numbers: Mapping[str, int]) -> None:
    """Append rows in one commit, which is skipped when it was done before; `numbers` go into the commit's userMetadata."""
    kill_point(f"before {table.name}")
    (
        rows.selectExpr(*quoted(table.columns))
        .write.format("delta")
        .mode("append")
        .option("txnAppId", txn.application)
        .option("txnVersion", txn.version)
        .option("userMetadata", leases.commit_metadata(settings, table, {"application": txn.application, **numbers}))
        .save(str(table.path(settings)))
    )
    kill_point(f"after {table.name}")


def cut_days(rows: DataFrame, day: str) -> tuple[date, ...]:
    """The days (dates of a column) with which a file begins, if rows are written in order of time, in files of about a good size.

    Not the first file's.
    """
    counts = sorted((row[0], row["count"]) for row in rows.groupBy(day).count().collect())
    sums, most = list(accumulate(count for _, count in counts)), _ROWS_A_CUT
    before = [0, *sums]
    return tuple(counts[place][0] for place in range(1, len(counts)) if before[place] // most > before[place - 1] // most)


def append_rows(rows: DataFrame, settings: Settings, table: Table, txn: Txn, *, cuts: Sequence[date] = (), are_few: bool = False) -> None:
    """Append rows in the table's order, in one commit that is skipped when it was done before.

    They become one file, or one more than there are `cuts`: days with which the others begin. `are_few`: they are likely to fit into
    memory.
    """
    if are_few and (few := collect_few(rows)) is not None:
        few_rows.append([few], settings, table, txn)
        return
    place = reduce(Column.__add__, ((F.col(order_of(table)[0]) >= F.lit(day)).cast("int") for day in cuts), F.lit(0))
    spread = rows.selectExpr(*quoted(table.columns))
    spread = spread.repartitionById(len(cuts) + 1, place) if cuts else spread.coalesce(1)
    append_once(spread.sortWithinPartitions(*order_of(table)), settings, table, txn, {"upto": txn.version})


def merge_rows(
    rows: DataFrame,
    settings: Settings,
    table: Table,
    txn: Txn,
    *,
    on: Sequence[str],
    matched: Mapping[str, str] | None = None,
    deletes_where: str | None = None,
    within: Column | None = None,
) -> None:
    """Merge rows into a table by null-safe equality of keys, in one commit that is skipped when it was done before.

    `matched` gives the new value of columns of rows that exist (`t` the table, `s` the rows); by default all of `s`.
    `deletes_where` is a condition on `s` under which the existing row goes and none is added. `within` holds for every row of `t` that
    any of `s` matches: the rest of the table is not read.
    """
    if (done := applied(settings, table, txn.application)) is not None and done >= txn.version:
        return
    kill_point(f"before {table.name}")
    spark = rows.sparkSession
    is_same = F.expr(" and ".join(f"t.`{key}` <=> s.`{key}`" for key in on))
    target = DeltaTable.forPath(spark, str(table.path(settings))).alias("t")
    merge = target.merge(rows.alias("s"), is_same if within is None else is_same & within)
    if deletes_where:
        merge = merge.whenMatchedDelete(deletes_where)
    keep = f"not coalesce({deletes_where}, false)" if deletes_where else "true"
    values: dict[str, str | Column] = {f"`{name}`": f"s.`{name}`" for name in table.columns}
    updates: dict[str, str | Column] = {f"`{name}`": value for name, value in matched.items()} if matched else values
    with _transaction(spark, settings, table, txn):
        merge.whenMatchedUpdate(set=updates).whenNotMatchedInsert(keep, values=values).execute()
    kill_point(f"after {table.name}")


def mark_removed_rows(spark: SparkSession, settings: Settings, tables: Iterable[Table]) -> None:
    """Let Delta mark rows of these tables as removed, and leave their files, where it does not yet (deletion vectors).

    By Spark: delta-rs would demand of readers that they know variants, too.
    """
    for table in tables:
        if table.open(settings).metadata().configuration.get(MARKS) != "true":
            path = str(table.path(settings)).replace("`", "``")
            spark.sql(f"alter table delta.`{path}` set tblproperties ('{MARKS}' = 'true')")


def difference(present: DataFrame, wanted: DataFrame, on: Sequence[str]) -> DataFrame:
    """What must change to turn `present` into `wanted`: rows that are new or differ, and `_is_gone` for those to delete."""
    row, keys = f"struct({', '.join(quoted(wanted.columns))})", quoted(on)
    p, w = present.selectExpr(f"{row} as p", *keys), wanted.selectExpr(f"{row} as w", *keys)
    changed = p.join(w, on=list(on), how="full_outer").where("not p <=> w")
    return changed.selectExpr("coalesce(w, p) as r", "w is null as _is_gone").select("r.*", "_is_gone")


def changes_of(table: Table, present: DataFrame, wanted: DataFrame) -> DataFrame:
    """The `difference` of parts of a table, computed now and kept."""
    columns = quoted(table.columns)
    return difference(present.selectExpr(*columns), wanted.selectExpr(*columns), on=merge_keys(table)).transform(kept)


def merge_parts(present: DataFrame, wanted: DataFrame, settings: Settings, table: Table, txn: Txn, *, are_few: bool) -> None:
    """Turn a part of a gold table as it is into what it should be; `are_few`: what differs is likely to fit into memory."""
    few = collect_few(difference(present, wanted, on=merge_keys(table))) if are_few else None
    if few is None:
        merge_changes(changes_of(table, present, wanted), settings, table, txn)
    else:
        merge_few(few, present.sparkSession, settings, table, txn, deletes_where="s._is_gone")


def collect_few(rows: DataFrame, most: int | None = None) -> pa.Table | None:
    """The rows in memory; None where they are too many, or more than `most`."""
    most = few_rows.MOST_ROWS if most is None else most
    few = rows.limit(most + 1).toArrow()
    return few if few.num_rows <= most else None


def merge_changes(changed: DataFrame, settings: Settings, table: Table, txn: Txn, *, are_few: bool = False) -> None:
    """Write a `difference` that was kept. Of a gold table no more is read than the hours, or days, of the rows that change.

    `are_few` says that the rows fit into memory, where the caller knows; then they need not have been kept.
    """
    numbers: Sequence[int] = ()
    if not are_few:
        time = merge_time(table)
        times = F.collect_set(ranges.number(time, ranges.unit_of(time))) if time else F.array()
        found = changed.agg(F.count("*").alias("count"), times.alias("numbers"), text_bytes(changed).alias("bytes")).collect()[0]
        are_few, numbers = few_rows.are_few(found["count"], found["bytes"]), found["numbers"]
    if are_few:
        merge_few(changed.toArrow(), changed.sparkSession, settings, table, txn, deletes_where="s._is_gone")
    else:
        merge_rows(changed, settings, table, txn, on=merge_keys(table), deletes_where="s._is_gone", within=_within(table, numbers))


def text_bytes(rows: DataFrame) -> Column:
    """How many bytes the texts of rows have together: records of many megabytes are among those of silver."""
    texts = [name for name, kind in rows.dtypes if kind in ("string", "binary")]
    of_row = reduce(Column.__add__, (F.coalesce(F.octet_length(name), F.lit(0)) for name in texts), F.lit(0).cast("bigint"))
    return F.coalesce(F.sum(of_row), F.lit(0))


def merge_few(
    few: pa.Table,
    spark: SparkSession,
    settings: Settings,
    table: Table,
    txn: Txn,
    *,
    matched: Mapping[str, str] | None = None,
    deletes_where: str | None = None,
) -> None:
    """`merge_rows` of rows in memory, by the table's merge keys: without Spark, where there are none or they touch few bytes."""
    if not few.num_rows or few_rows.touch_few_bytes(few, settings, table):
        few_rows.merge(few, settings, table, txn, matched=matched, deletes_where=deletes_where)
        return
    time = merge_time(table)
    within = _within(table, ranges.numbers(few[time], ranges.unit_of(time)) if time else ())
    rows, keys = in_memory(spark, few).coalesce(1), merge_keys(table)  # one file
    merge_rows(rows, settings, table, txn, on=keys, matched=matched, deletes_where=deletes_where, within=within)


def _within(table: Table, numbers: Sequence[int]) -> Column | None:
    """Whether a row of a table (`t`) lies in one of these hours or days of its merge keys; None where they have no time."""
    time = merge_time(table)
    return ranges.among(f"t.{time}", numbers, ranges.unit_of(time)) if time else None


def _transaction(spark: SparkSession, settings: Settings, table: Table, txn: Txn) -> AbstractContextManager[None]:
    """MERGE has no option for a transaction identifier, but honours the session's (which stays set until it is unset)."""
    user_metadata = leases.commit_metadata(settings, table, {"application": txn.application, "upto": txn.version})
    return configured(spark, {f"{_TXN}AppId": txn.application, f"{_TXN}Version": str(txn.version), METADATA: user_metadata})


@contextmanager
def configured(spark: SparkSession, conf: dict[str, str]) -> Iterator[None]:
    """Settings of the session that hold within, and are what they were afterwards."""
    before = {name: spark.conf.get(name, None) for name in conf}
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
