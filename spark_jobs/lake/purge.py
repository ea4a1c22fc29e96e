"""Brings a table to one version that is readable and nothing else: for erasures. Readers of older versions lose their files.

Three steps, each of which may be repeated: `rewrite` the files that hold rows which are only marked as removed, `seal` the table with a
commit that says nothing of rows, and `sweep` all files of data and log that the sealed version does not need. The caller holds the
table's lease.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_jobs.lake import leases, log_files, sinks
from spark_jobs.lake.tables import Table
from spark_jobs.lake.txn import commit_properties
from spark_jobs.runtime import storage
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings


def rewrite(spark: SparkSession, settings: Settings, table: Table) -> None:
    """Write files again without the rows that a deletion vector marks as removed. No row changes."""
    if table.open(settings).metadata().configuration.get(sinks.MARKS) != "true":  # each removal has written its files again
        return
    path = str(table.path(settings)).replace("`", "``")
    with sinks.configured(spark, {sinks.METADATA: leases.commit_metadata(settings, table, {})}):
        spark.sql(f"reorg table delta.`{path}` apply (purge)")


def seal(settings: Settings, table: Table) -> None:
    """Add a commit without files. Commits before it carry statistics of files that are gone: smallest and largest values."""
    delta = table.open_to_write(settings)
    delta.create_write_transaction(
        [], "append", delta.schema(), list(table.partitioned_by), commit_properties=commit_properties(settings, table)
    )


def sweep(settings: Settings, table: Table) -> int:
    """Remove every file that the present version does not need; returns how many data files went.

    Raises LedgerError, and removes nothing, when a file that it needs is not there.
    """
    delta, folder = table.open_to_write(settings), table.path(settings)
    kill_point(f"before sweeping {table.name}")
    needed = {folder / unquote(path) for path in pa.table(delta.get_add_actions()).column("path").to_pylist()}
    if missing := [path for path in needed if not path.is_file()]:
        raise LedgerError(f"{table.name}: found no file {missing[0].name}, expected all that version {delta.version()} names")
    delta.create_checkpoint()
    log_files.clean(log_files.read_log(folder), delta.version(), datetime.now(UTC) + timedelta(days=1))
    others = [file for file in storage.files_below(folder) if file not in needed and not _is_log(file, folder)]
    for file in others:
        file.unlink()
    kill_point(f"after sweeping {table.name}")
    return len(others)


def _is_log(file: Path, folder: Path) -> bool:
    return file.relative_to(folder).parts[0] == "_delta_log"
