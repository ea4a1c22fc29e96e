"""A target on a file system: a date folder is written in a hidden folder and moved into place in one step."""

import ctypes
import errno
import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from pathlib import Path

from spark_jobs.export.days import STAGING, SUCCESS, Day, Part, named, read_days, to_day
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.kill_points import kill_point

_CURRENT_FOLDER = -100  # AT_FDCWD
_EXCHANGE = 2  # RENAME_EXCHANGE
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


class Folder:
    """The folder of one table, and the hidden one in which a run works."""

    at_once = 1  # days published side by side

    def __init__(self, path: str, name: str, run: str) -> None:
        self.path, self.name, self.run = Path(path), name, run
        self._hidden = self.path / f"{STAGING}{run}"

    @property
    def staging(self) -> str:
        """Where Spark writes."""
        return str(self._hidden / "staged")

    def begin(self) -> None:
        """Create the folder, and remove what runs that died have left."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.end()
        except OSError as error:
            raise LedgerError(f"{self.path} cannot be used as a target: {error.strerror}: choose another folder") from error

    def days(self) -> dict[date, Day]:
        """The date folders that are there; raises LedgerError where one is not of an export of this table."""
        found = {day: {file.name for file in entry.glob("*")} for entry in self.path.iterdir() if (day := to_day(entry.name))}
        return read_days(self.name, str(self.path), found, lambda file: (self.path / file).read_text())

    def publish(self, day: Day, parts: Iterable[Part], before: Day | None) -> Day:
        """Put a day's staged files in the place of what its folder holds; returns the day with the names of its files."""
        place, draft, chosen = self.path / str(day.day), self._hidden / str(day.day), named(parts, self.run)
        done = replace(day, files=tuple(replace(part, path=name) for part, name in chosen))
        draft.mkdir()
        for part, name in chosen:
            os.rename(f"{self.staging}/{part.path}", draft / name)
            _sync(draft / name)
            kill_point("between two files of an export")
        (draft / SUCCESS).write_text(done.to_json())
        _sync(draft / SUCCESS)
        _sync(draft)
        kill_point("before a day of an export")
        if before is None or not _exchange(draft, place):
            if before:  # this file system cannot exchange folders: the day is missing until the next line
                self.remove(before)
            draft.rename(place)
        _sync(self.path)
        kill_point("after a day of an export")
        return done

    def remove(self, day: Day) -> None:
        """Remove a date folder in one step."""
        (self.path / str(day.day)).rename(self._hidden / f"{day.day}.removed")
        _sync(self.path)

    def end(self) -> None:
        """Remove the hidden folder of this run and of any before it."""
        for left in self.path.glob(f"{STAGING}*"):
            shutil.rmtree(left)


def _sync(path: Path | str) -> None:
    """Wait until a file or folder is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _exchange(draft: Path, place: Path) -> bool:
    """Exchange two folders in one step; False where the file system does not support it."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_CURRENT_FOLDER, os.fsencode(draft), _CURRENT_FOLDER, os.fsencode(place), _EXCHANGE) == 0:
        return True
    if (number := ctypes.get_errno()) not in _UNSUPPORTED:
        raise OSError(number, os.strerror(number), str(place))
    return False
