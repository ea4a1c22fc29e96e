"""Delta tables as this process has opened them, for reading: opened again only once something happened to their log.

delta-rs reads all commits since the last checkpoint when it opens a table, up to a hundred of them: 12 ms for 35 commits, and a cycle asked
for a table 400 times.
"""

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable

from spark_jobs.runtime import storage

_MOST = 128  # that stay open: those that were asked for last
_MOST_FILES = 5_000  # of one of them: 4 MB
_Mark = tuple[int, int]


@dataclass(frozen=True)
class _Opened:
    """A table that was opened when the folder of its log had a mark; it may still read the files that were there then."""

    table: DeltaTable
    mark: _Mark

    def is_current(self, path: Path, version: int | None) -> bool:
        """Whether it is what is wanted: this version, or (None) the newest one."""
        if _mark(path) != self.mark:
            return False
        own = self.table.version()
        # A commit that came at the moment of the mark has not changed it.
        return own == version or (version is None and not commit_file(path, own + 1).exists())


_opened: OrderedDict[tuple[Path, int | None], _Opened] = OrderedDict()
_lock = threading.Lock()


def open_table(path: Path, version: int | None = None) -> DeltaTable:
    """The table in a folder as it is now, or as it was at a version. Others have the same object: no caller may write by it.

    Raises what DeltaTable does. Tables of many files do not stay open, nor do those in object storage, where it takes a request to ask for
    the next commit.
    """
    if storage.is_remote(path):
        return DeltaTable(str(path), version=version)
    for key in dict.fromkeys(((path, version), (path, None))):
        with _lock:
            found = _opened.pop(key, None)
            if found:
                _opened[key] = found  # the last that was asked for
        if found and found.is_current(path, version):
            return found.table
    mark, table = _mark(path), DeltaTable(str(path), version=version)
    if mark and table.get_add_actions().num_rows <= _MOST_FILES:
        with _lock:
            _opened[path, version] = _Opened(table, mark)
            if len(_opened) > _MOST:
                _opened.popitem(last=False)
    return table


def _mark(path: Path) -> _Mark | None:
    """What changes when a file comes to a table's log or goes from it, and is another one of another folder; None where there is no log."""
    try:
        found = os.stat(path / "_delta_log")
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime_ns


def commit_file(path: Path, version: int) -> Path:
    """The commit of a version in the log of the table in a folder, whether it is there or not."""
    return path / "_delta_log" / f"{version:020}.json"
