"""A target on a file system: a date folder is made aside and takes its place in one step."""

import ctypes
import errno
import os
import shutil
from collections.abc import Iterable
from datetime import date
from pathlib import Path

from spark_jobs.export.days import STAGING, SUCCESS, Day, Part, named, read_day
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.kill_points import kill_point

AT_ONCE = 1  # days published side by side
_CURRENT_FOLDER = -100  # AT_FDCWD
_EXCHANGE = 2  # RENAME_EXCHANGE
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


class Folder:
    """The folder of one table, and the hidden one in which a run works."""

    at_once = AT_ONCE

    def __init__(self, path: str, name: str, run: str) -> None:
        self.path, self.name, self.run = Path(path), name, run
        self._work = self.path / f"{STAGING}{run}"

    @property
    def staging(self) -> str:
        """Where Spark writes."""
        return str(self._work / "staged")

    def begin(self) -> None:
        """Make the folder, and remove what runs that died have left."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.end()
        except OSError as error:
            raise LedgerError(f"{self.path} cannot be used as a target: {error.strerror}: choose another folder") from error

    def days(self) -> dict[date, Day]:
        """The date folders that are there; raises LedgerError where one is not of an export of this table."""
        found = [entry for entry in self.path.iterdir() if _is_day(entry.name)]
        return {
            date.fromisoformat(entry.name): read_day(date.fromisoformat(entry.name), _text(entry / SUCCESS), self.name, str(entry))
            for entry in found
        }

    def publish(self, day: Day, parts: Iterable[Part], before: Day | None) -> Day:
        """Put a day's staged files in the place of what its folder holds; returns the day with the files' names."""
        draft = self._work / "days" / day.day.isoformat()
        draft.mkdir(parents=True)
        chosen = named(parts, self.run)
        for part, name in chosen:
            os.rename(Path(self.staging) / part.path, draft / name)
            _sync(draft / name)
            kill_point("between two files of an export")
        done = Day(day.day, day.source, day.ranges, tuple(Part(name, part.rows, part.bytes) for part, name in chosen))
        (draft / SUCCESS).write_text(done.to_json())
        _sync(draft / SUCCESS)
        _sync(draft)
        kill_point("before a day of an export")
        place = self.path / day.day.isoformat()
        if before is None:
            os.rename(draft, place)
        else:
            _exchange(draft, place, aside=self._work / "replaced")
        _sync(self.path)
        kill_point("after a day of an export")
        return done

    def remove(self, day: Day) -> None:
        """Take a date folder away."""
        gone = self._work / "removed" / day.day.isoformat()
        gone.parent.mkdir(parents=True, exist_ok=True)
        os.rename(self.path / day.day.isoformat(), gone)
        _sync(self.path)

    def end(self) -> None:
        """Remove the hidden folder of this run and of any before it."""
        for left in self.path.glob(f"{STAGING}*"):
            shutil.rmtree(left)


def _is_day(name: str) -> bool:
    try:
        return date.fromisoformat(name).isoformat() == name
    except ValueError:
        return False


def _text(file: Path) -> str | None:
    return file.read_text() if file.is_file() else None


def _sync(path: Path) -> None:
    """Wait until a file or folder is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _exchange(draft: Path, place: Path, aside: Path) -> None:
    """Swap two folders in one step; where the file system cannot, by two renames, between which the place is empty."""
    swap = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if swap is not None and swap(_CURRENT_FOLDER, os.fsencode(draft), _CURRENT_FOLDER, os.fsencode(place), _EXCHANGE) == 0:
        return
    if swap is not None and (number := ctypes.get_errno()) not in _CANNOT:
        raise OSError(number, os.strerror(number), str(place))
    aside.mkdir(exist_ok=True)
    os.rename(place, aside / place.name)
    os.rename(draft, place)
