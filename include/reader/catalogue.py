"""The SQL catalogue of a release, for Python: a connection of DuckDB that only reads."""

from typing import Any

from spark_jobs.releases import catalogues, duckdb_file, retention
from spark_jobs.runtime import storage
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings


def open_catalogue(settings: Settings, release_id: int | None = None) -> Any:
    """A connection (duckdb.DuckDBPyConnection) whose views are the tables of the newest release that has a catalogue, or of another.

    Times are UTC. Raises LedgerError when there is no such release, it has expired, or it has no catalogue.
    """
    if release_id is not None:
        retention.find_offered(settings, release_id)
    file = catalogues.file_of(settings, release_id)
    if not file.exists():
        raise LedgerError(f"found no SQL catalogue at {file}: run `python -m spark_jobs.run release`, which writes it, and look at its log")
    return duckdb_file.connect(file, read_only=True, on_s3=storage.is_remote(settings.warehouse))
