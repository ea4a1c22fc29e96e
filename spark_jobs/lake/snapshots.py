"""Delta tables as this process has opened them, for reading: opened again only once their log has gone on.

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
_Commit = tuple[int, int, int]


@dataclass(frozen=True)
class _Opened:
    """A table at a version, and which file is the commit of it: a folder that was put in place of another one has other files."""

    table: DeltaTable
    version: int
    commit: _Commit

    def is_there(self, path: Path) -> bool:
        """Whether the log still has this commit."""
        return _commit(path, self.version) == self.commit

    def is_newest(self, path: Path) -> bool:
        """Whether it is the log's last one."""
        return self.is_there(path) and _commit(path, self.version + 1) is None


_opened: OrderedDict[tuple[Path, int | None], _Opened] = OrderedDict()
_lock = threading.Lock()


def open_table(path: Path, version: int | None = None) -> DeltaTable:
    """The table in a folder as it is now, or as it was at a version. Others have the same object: no caller may write by it.

    Raises what DeltaTable does. Tables of many files do not stay open, nor do those in object storage, where it takes a request to ask for
    the next commit.
    """
    if storage.is_remote(path):
        return DeltaTable(str(path), version=version)
    for key in ((path, version), (path, None)):
        with _lock:
            found = _opened.pop(key, None)
            if found:
                _opened[key] = found  # the last that was asked for
        if found and (found.is_newest(path) if version is None else found.version == version and found.is_there(path)):
            return found.table
    table = DeltaTable(str(path), version=version)
    if (commit := _commit(path, table.version())) and table.get_add_actions().num_rows <= _MOST_FILES:
        with _lock:
            _opened[path, version] = _Opened(table, table.version(), commit)
            if len(_opened) > _MOST:
                _opened.popitem(last=False)
    return table


def _commit(path: Path, version: int) -> _Commit | None:
    """Which file is the commit of a version; None where there is none."""
    try:
        found = os.stat(path / "_delta_log" / f"{version:020}.json")
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
