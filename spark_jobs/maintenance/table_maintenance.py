"""The maintenance of one table: joins small files, and removes files and commits that nobody needs. The caller owns the table.

Only joining writes to the table's log. delta-rs finds the files that no version needs, and they are deleted here without a commit.
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from spark_jobs.lake import compaction, log_files, sinks
from spark_jobs.lake.retention import LEAST_FILE_DAYS, LEAST_LOG_DAYS
from spark_jobs.lake.tables import LIVE_RESULTS, Table
from spark_jobs.lake.versions import is_maintenance
from spark_jobs.maintenance import versions_in_use
from spark_jobs.maintenance.versions_in_use import VersionsInUse
from spark_jobs.releases import releases
from spark_jobs.runtime.errors import first_line
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

_SETTLED = timedelta(days=1)  # no reader needs longer to open a version than this
_DOUBT = timedelta(hours=1)  # between what a commit says of the time and when its file was written
_MOST_SMALL_CONTROL_FILES = 20


@dataclass(frozen=True)
class Report:
    """What was done to a table: files and bytes that readers of its newest version open, before and after; what was removed.

    `waits` says why nothing was removed, `error` why it went wrong.
    """

    table: str
    files: tuple[int, int] = (0, 0)
    bytes: tuple[int, int] = (0, 0)
    joined: int = 0
    removed_files: int = 0
    removed_bytes: int = 0
    removed_commits: int = 0
    seconds: float = 0.0
    waits: str | None = None
    error: str | None = None

    def __str__(self) -> str:
        """One human-readable line."""
        if self.error:
            return f"{self.table}: {self.error}"
        if not (self.joined or self.removed_files or self.removed_commits or self.waits):
            return f"{self.table}: nothing to do, {self.files[0]} files ({_megabytes(self.bytes[0])})"
        sizes = f"{self.files[0]} files ({_megabytes(self.bytes[0])}) are now {self.files[1]} ({_megabytes(self.bytes[1])})"
        removed = f"removed {self.removed_files} files ({_megabytes(self.removed_bytes)}) and {self.removed_commits} commits"
        return f"{self.table}: {sizes}, {removed}, {self.seconds:.1f} s{f'; {self.waits}' if self.waits else ''}"

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "Report":
        """A report from its JSON."""
        return cls(**(facts | {"files": tuple(facts["files"]), "bytes": tuple(facts["bytes"])}))

    @classmethod
    def of_failure(cls, table: Table, error: Exception) -> "Report":
        """The report of a table whose maintenance failed."""
        return cls(table.name, error=f"maintenance failed: {type(error).__name__}: {first_line(error)}")


def maintain(
    settings: Settings, table: Table, session: Callable[[], SparkSession], now: datetime, writing: Mapping[str, str] = MappingProxyType({})
) -> Report:
    """Join a table's small files, then remove what nobody needs.

    `session` is asked for only when there is something to join; `writing` are settings of the session for the files that are written.
    """
    begun, before = monotonic(), _size(settings, table)
    joined = (
        compaction.join_unordered(settings, table, _MOST_SMALL_CONTROL_FILES)
        if table.layer == "control"
        else _join(settings, table, session, writing)
    )
    after, keep = _size(settings, table), versions_in_use.find(settings, table, now)
    waits = waits_for(settings, table, keep, now)
    kill_point(f"before removing files of {table.name}")
    removed, removed_bytes = (0, 0) if waits else remove_files(settings, table, keep, now)
    kill_point(f"after removing files of {table.name}")
    return Report(
        table=table.name,
        files=(before[0], after[0]),
        bytes=(before[1], after[1]),
        joined=joined,
        removed_files=removed,
        removed_bytes=removed_bytes,
        removed_commits=clean_log(settings, table, keep, now),
        seconds=round(monotonic() - begun, 3),
        waits=waits,
    )


def plan(settings: Settings, table: Table) -> list[list[compaction.DataFile]]:
    """Which files of a table are to be joined by Spark, as it is now; a control table needs none."""
    if table.layer == "control":
        return []
    release = releases.latest_release(settings) if table.layer == "bronze" else None
    released = release.last_batches.get(table.name) if release else None
    return compaction.plan(compaction.files_of(settings, table), compaction.target_bytes(table), released)


def waits_for(settings: Settings, table: Table, keep: VersionsInUse, now: datetime) -> str | None:
    """Why no file may be removed yet: a stream has not taken commits whose files have lived out their time. None when there is none."""
    path = table.path(settings)
    old = log_files.read_log(path).newest_before(_uncovered(settings, table, now))
    if keep.unread_from is None or old is None:
        return None
    waiting = next((version for version in range(keep.unread_from, old + 1) if not is_maintenance(path, version)), None)
    if waiting is None:
        return None
    reader = "live" if table in LIVE_RESULTS.values() else "silver" if table.layer == "bronze" else "gold"
    return f"no file is removed before {reader} has taken version {waiting}, which is older than files are kept: run {reader}"


def remove_files(settings: Settings, table: Table, keep: VersionsInUse, now: datetime) -> tuple[int, int]:
    """Delete data files that no version needs that is in use or young, and those of writers that died; returns number and bytes.

    A file goes when it has been out of the table for longer than `delta.deletedFileRetentionDuration`, or was never in it and is as
    old. Deletion vectors and files of other kinds stay.
    """
    path = table.path(settings)
    delta, history = table.open(settings), log_files.read_log(path)
    old = history.newest_before(_uncovered(settings, table, now))
    if old is None:  # nothing has been there for long enough
        return 0, 0
    versions = [version for version in keep.versions if version < old]
    if lost := [version for version in versions if not history.is_readable(version)]:
        log.warning(
            "%s: version %d, which a release, savepoint or verdict names, cannot be opened any more: its commits are gone",
            table.name,
            lost[0],
        )
    hours = _retention(delta) // timedelta(hours=1)
    gone = delta.vacuum(
        retention_hours=hours, dry_run=True, full=True, keep_versions=[version for version in versions if version not in lost] or None
    )
    # Delta also names files that went before, as long as its log names them.
    removed = [size for name in gone if name.endswith(".parquet") and (size := _remove(path / name)) is not None]
    return len(removed), sum(removed)


def clean_log(settings: Settings, table: Table, keep: VersionsInUse, now: datetime) -> int:
    """Delete the commits before all that is in use or young; returns how many."""
    path = table.path(settings)
    history = log_files.read_log(path)
    days = LEAST_LOG_DAYS if table.layer == "control" else _retention(table.open(settings)).days
    needed = [*keep.versions, *([keep.unread_from - 1] if keep.unread_from else [])]
    old = history.newest_before(now - timedelta(days=days))
    return log_files.clean(history, min([old if old is not None else 0, *needed]), now - _SETTLED)


def _join(settings: Settings, table: Table, session: Callable[[], SparkSession], writing: Mapping[str, str]) -> int:
    bins = plan(settings, table)
    if not bins:
        return 0
    spark = session()
    with sinks.configured(spark, dict(writing)):
        return compaction.join_files(spark, settings, table, bins)


def _size(settings: Settings, table: Table) -> tuple[int, int]:
    sizes = pa.table(table.open(settings).get_add_actions()).column("size_bytes").to_pylist()
    return len(sizes), sum(sizes)


def _uncovered(settings: Settings, table: Table, now: datetime) -> datetime:
    """The time before which a version's files are not sure to be there still."""
    return now - _retention(table.open(settings)) + _DOUBT


def _retention(delta: DeltaTable) -> timedelta:
    """For how long files that were replaced stay: as the table's property says, and never shorter than Delta's own seven days."""
    found = re.fullmatch(r"interval (\d+) days?", delta.metadata().configuration.get("delta.deletedFileRetentionDuration") or "")
    return timedelta(days=max(int(found[1]) if found else 0, LEAST_FILE_DAYS))


def _remove(file: Path) -> int | None:
    try:
        size = file.stat().st_size
    except FileNotFoundError:
        return None
    log_files.delete([file])
    return size


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.1f} MB"


def utc_now() -> datetime:
    """The time that maintenance goes by."""
    return datetime.now(UTC)
