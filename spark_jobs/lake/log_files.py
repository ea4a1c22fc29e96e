"""The files of a Delta log, and the removal of expired ones. Deletes files, commits nothing; needs no Spark."""

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from spark_jobs.lake.tables import BRONZE, CONTROL, GOLD, SILVER_OWNED
from spark_jobs.runtime import storage
from spark_jobs.runtime.settings import Settings

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")
_SUMS = re.compile(r"(\d{20})\.crc|\..+\.crc")  # of a version, and of a file: Hadoop makes one for each
_COMMITS_A_CHECKPOINT = 1_000  # at most so many commits are read to open an old version
_NEWEST_CHECKPOINTS = 3


@dataclass(frozen=True)
class Log:
    """The log of a table: when each commit was written, and the files of each whole checkpoint; `times` of all its files."""

    folder: Path
    written_at: dict[int, float]
    checkpoints: dict[int, list[Path]]
    times: dict[str, float]

    def newest_before(self, time: datetime) -> int | None:
        """The version that a table had at a time, among those in the log; None if all commits are younger.

        Commits are taken in order: one that a clock set back made look old is not older than those before it.
        """
        younger = [version for version, at in self.written_at.items() if at > time.timestamp()]
        first = min(younger, default=max(self.written_at) + 1)
        return first - 1 if first > min(self.written_at) else None

    def is_readable(self, version: int) -> bool:
        """Whether the files to open a version exist: from a checkpoint, or from the first commit, without a gap."""
        start = max((each for each in self.checkpoints if each <= version), default=-1)
        return all(each in self.written_at for each in range(start + 1, version + 1)) and (start >= 0 or version >= 0)


def newest_version(table: Path) -> int:
    """The version of the table in a folder, by the names in its log alone; -1 where there is no table."""
    return max((int(found[1]) for name in storage.names(table / "_delta_log") if (found := _COMMIT.fullmatch(name))), default=-1)


def log_times(settings: Settings) -> list[int]:
    """A time of each table's log, the live tables' left out, that is another one after each commit; 0 where there is no table.

    Object storage does not tell: there it always is another one.
    """
    if storage.is_remote(settings.warehouse):
        return [time.monotonic_ns()]
    folders = (table.path(settings) / "_delta_log" for table in (*BRONZE, *SILVER_OWNED, *GOLD, *CONTROL))
    return [folder.stat().st_mtime_ns if folder.exists() else 0 for folder in folders]


def read_log(table: Path) -> Log:
    """The log of the table in a folder."""
    folder = table / "_delta_log"
    written_at: dict[int, float] = {}
    parts: dict[int, list[Path]] = {}
    wanted: dict[int, int] = {}
    times = storage.names(folder)
    for name, at in times.items():
        if found := _COMMIT.fullmatch(name):
            written_at[int(found[1])] = at
        elif found := _CHECKPOINT.fullmatch(name):
            parts.setdefault(int(found[1]), []).append(folder / name)
            wanted[int(found[1])] = int(found[2] or 1)
    whole = {version: files for version, files in parts.items() if len(files) == wanted[version]}
    return Log(folder, written_at, whole, times)


def clean(log: Log, keep_from: int, settled: datetime) -> int:
    """Delete what is not needed to open the version `keep_from` and later ones; returns the number of commits removed.

    They go oldest first, so that the rest is a log without a gap whenever this ends. Also goes what only makes many files, and is
    older than `settled`: check sums, and checkpoints between which there are few commits.
    """
    first = max((version for version in log.checkpoints if version <= keep_from), default=None)
    gone = [version for version in sorted(log.written_at) if first is not None and version < first]
    for version in gone:
        delete([*log.checkpoints.get(version, ()), log.folder / f"{version:020}.json"])
    rest = [version for version in log.checkpoints if version not in gone]
    for version in _crowded(rest):
        if all(log.times[file.name] < settled.timestamp() for file in log.checkpoints[version]):
            delete(log.checkpoints[version])
    delete(log.folder / name for name, at in log.times.items() if _SUMS.fullmatch(name) and at < settled.timestamp())
    return len(gone)


def _crowded(checkpoints: Iterable[int]) -> list[int]:
    """The checkpoints to remove: all except the first of every thousand commits and the newest ones."""
    versions = sorted(checkpoints)
    firsts = {version // _COMMITS_A_CHECKPOINT: version for version in reversed(versions)}
    return [version for version in versions[:-_NEWEST_CHECKPOINTS] if version != firsts[version // _COMMITS_A_CHECKPOINT]]


def delete(files: Iterable[Path]) -> None:
    """Delete files that may be gone already, and the check sums that Hadoop has put beside them on a disk."""
    for file in files:
        file.unlink(missing_ok=True)
        if not storage.is_remote(file):
            (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
