"""A longer history, made of the tables of a shorter one: the same rows again and again, each time so many weeks earlier, under other ids.

Its tables have the rows, files and pages of a history of that length, but were not computed from it: days of accounts open as the shorter
history did at the seams, and ids of the copies have made-up hashes in the index. What lies near new rows is as the jobs left it.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from spark_jobs import control
from spark_jobs.gold.tables.debit_share import debit_share
from spark_jobs.lake import few_rows, sources, tables
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.settings import Settings
from tests.benchmarks.history import PARTITIONS
from tests.support.warehouse import followed

_WEEK = timedelta(days=7)
_REPEATED = (
    *(tables.SILVER_TRANSACTIONS, tables.TRANSACTION_IDS, tables.ENRICHED_TRANSACTIONS, tables.LARGE_CREDITS, tables.CUSTOMER_SESSIONS),
    *(tables.DEBIT_CREDIT_PAIRS, tables.DISTRICT_MINUTES, tables.ACCOUNT_DAYS, tables.DAILY_TOTALS, tables.SLIDING_TOTALS),
    *(tables.CUMULATIVE_TOTALS, tables.WEEKLY_TOP_CUSTOMERS),
)
_SUMMED = (tables.ACCOUNT_BALANCES, tables.CUSTOMER_ACTIVITY)
_LEAST_BYTES = {tables.TRANSACTION_IDS: 72 * 2**20}  # of a file that silver does not join with others
_IDS = frozenset({"transaction_id", "debit_id", "credit_id"})
_HASH_STEP = 0x9E3779B97F4A7C15  # the golden ratio of 64 bits: the hashes of a copy lie everywhere


def repeat(spark: SparkSession, settings: Settings, times: int, days: int) -> None:
    """Make tables hold what they hold, which spans so many days, so many times; at most 100 times."""
    apart = (2 + timedelta(days=days) // _WEEK) * _WEEK  # the weeks of two copies are not the same
    for table in _REPEATED:
        files = [Path(file) for file in table.open(settings).file_uris()]
        for copy in range(1, times):
            parts = (again(pq.read_table(file), copy, copy * apart) for file in files)
            size = sum(file.stat().st_size for file in files) // len(files)
            append(settings, table, parts, max(size, _LEAST_BYTES.get(table, 0)))
        print(f"made {table.name}: {control.count(table.open(settings)):,} rows", flush=True)
    for table in _SUMMED:
        rewrite(settings, table, lambda rows: summed(rows, times))
    share = debit_share(sources.read_table(spark, settings, tables.DAILY_TOTALS)).toArrow()
    rewrite(settings, tables.DEBIT_SHARE, lambda rows: share.select(rows.column_names).cast(rows.schema))
    follow(settings)


def append(settings: Settings, table: Table, parts: Iterable[pa.Table], file_bytes: int) -> None:
    """Add rows to a table in one commit, in files of about so many bytes."""
    schema = pa.schema(table.delta_schema().to_arrow())
    batches = (batch for part in parts for batch in part.select(table.columns).cast(schema).to_batches())
    rows, writer = pa.RecordBatchReader.from_batches(schema, batches), few_rows.writer(table)
    write_deltalake(str(table.path(settings)), rows, mode="append", target_file_size=file_bytes, writer_properties=writer)


def again(rows: pa.Table, copy: int, earlier: timedelta) -> pa.Table:
    """Rows of another time, of transactions with other ids and places."""
    for place, field in enumerate(rows.schema):
        column = rows.column(place)
        if pa.types.is_timestamp(field.type):
            column = pc.subtract(column, pa.scalar(earlier, pa.duration("us"))).cast(field.type)
        elif pa.types.is_date(field.type):
            column = pc.subtract(column.cast("int32"), pa.scalar(earlier.days, pa.int32())).cast(field.type)
        elif field.name in _IDS:
            column = pc.binary_join_element_wise(f"{copy:02}", pc.utf8_slice_codeunits(column, 2), "")
        elif field.name == "_partition":
            column = pc.add(column, copy * PARTITIONS).cast(field.type)
        elif field.name == "id_hash":
            hashes = column.to_numpy().view(np.uint64) + np.uint64(copy * _HASH_STEP % 2**64)
            column = pa.array(hashes.view(np.int64))
        rows = rows.set_column(place, field, column)
    return rows


def summed(rows: pa.Table, times: int) -> pa.Table:
    """The sums of so many copies, by customer or account."""
    for name in {"transactions", "credits", "debits"} & {*rows.column_names}:
        place, field = rows.column_names.index(name), rows.schema.field(name)
        rows = rows.set_column(place, field, pa.array([value * times for value in rows[name].to_pylist()], field.type))
    return rows


def rewrite(settings: Settings, table: Table, change: Callable[[pa.Table], pa.Table]) -> None:
    """Write other rows in place of a table's."""
    rows = change(table.open(settings).to_pyarrow_table())
    write_deltalake(str(table.path(settings)), rows, mode="overwrite", writer_properties=few_rows.writer(table))


def follow(settings: Settings) -> None:
    """Say of each gold table that it follows silver as it is now."""
    for table in tables.GOLD:
        delta = DeltaTable(str(table.path(settings)))
        commit = CommitProperties(app_transactions=followed(settings, table))
        delta.create_write_transaction([], "append", delta.schema(), list(table.partitioned_by), commit_properties=commit)
