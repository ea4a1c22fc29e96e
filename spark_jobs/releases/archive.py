"""Archived releases: a deep copy of every table, apart from the tables that jobs continue to write.

A copy lies at `<warehouse>/releases/<release>/<layer>/<table>` once it is complete, and is never written again. In object storage it is
complete when it has the file `complete`.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError

from spark_jobs.lake import leases
from spark_jobs.releases.releases import Release, find_release
from spark_jobs.runtime import storage
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.errors import LedgerError, first_line
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

_LAST = "complete"


def root(settings: Settings) -> Path:
    """Where the copies of archived releases are."""
    return settings.warehouse / "releases"


def folder(settings: Settings, release_id: int) -> Path:
    """Where the copy of a release is, if it is archived."""
    return root(settings) / str(release_id)


def is_archived(settings: Settings, release_id: int) -> bool:
    """Whether a complete copy of a release exists."""
    return storage.is_published(folder(settings, release_id), _LAST)


def archived(settings: Settings) -> set[int]:
    """The numbers of the archived releases."""
    return {int(name) for name in storage.names(root(settings)) if name.isdigit() and is_archived(settings, int(name))}


def open_table(settings: Settings, release: Release, name: str) -> DeltaTable:
    """A table as a release names it: from the release's copy if it is archived, else the version in the warehouse.

    Raises LedgerError when the release does not name the table, or the version is there no more.
    """
    if name not in release.versions:
        raise LedgerError(f"release {release.release_id} has no table {name}: expected one of {', '.join(sorted(release.versions))}")
    if is_archived(settings, release.release_id):
        return DeltaTable(str(_path(folder(settings, release.release_id), name)))
    return _open_original(settings, release, name)


def copy_release(settings: Settings, release_id: int) -> Path:
    """Copy every table of a release, and return the folder of the copies; one that is archived already stays as it is.

    Rows pass through in small batches, whatever the size of the tables. Raises LedgerError, and leaves nothing that readers would
    see, when there is no such release, a table cannot be read any more, or it has not as many rows as the release names.
    """
    release = find_release(settings, release_id)
    target = folder(settings, release_id)
    with leases.hold_names(settings, [f"releases.{release_id}"], owner=f"keep release {release_id}"):
        if is_archived(settings, release_id):
            log.info("release %d is archived already: %s", release_id, target)
            return target
        draft = target.with_name(f".draft-{release_id}")
        storage.remove(draft)  # of a process that died
        try:
            for name in sorted(release.versions):
                _copy(_open_original(settings, release, name), _path(draft, name), release.rows[name], name)
            write_whole(draft / _LAST, f"{release_id}\n")
            storage.publish(draft, target, _LAST)
        finally:
            storage.remove(draft)
    log.info("release %d is archived: %d tables in %s", release_id, len(release.versions), target)
    return target


def _path(warehouse: Path, name: str) -> Path:
    return warehouse.joinpath(*name.split("."))


def _open_original(settings: Settings, release: Release, name: str) -> DeltaTable:
    version = release.versions[name]
    try:
        return DeltaTable(str(_path(settings.warehouse, name)), version=version)
    except DeltaError as error:
        raise LedgerError(
            f"release {release.release_id}: version {version} of {name} cannot be opened ({first_line(error)}): open another release"
        ) from error


def _copy(source: DeltaTable, path: Path, rows: int, name: str) -> None:
    """Write a table's rows into a new table of the same columns and partitions."""
    metadata = source.metadata()
    path.mkdir(parents=True)
    target = DeltaTable.create(str(path), source.schema(), partition_by=metadata.partition_columns, name=name)
    schema = pa.schema(source.schema().to_arrow())
    try:
        found = pa.RecordBatchReader.from_stream(QueryBuilder().register("t", source).execute("select * from t"))
        write_deltalake(target, pa.RecordBatchReader.from_batches(schema, _cast(found, schema)), mode="append")
    except (pa.ArrowException, OSError, DeltaError) as error:
        raise LedgerError(f"{name}: version {source.version()} cannot be copied ({first_line(error)}): keep a newer release") from error
    copied = target.count()
    if copied != rows:
        raise LedgerError(f"{name}: copied {copied} rows, expected {rows} as the release says: look for what removed rows of its files")
    log.info("%s: %d rows copied", name, copied)


def _cast(batches: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches with the table's own types: queries answer with views of strings."""
    for batch in batches:
        yield batch.select(schema.names).cast(schema)
