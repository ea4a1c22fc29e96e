"""Leases of one host: the kernel's locks on files beside the warehouse's tables.

The kernel frees a lock when its holder dies. The file names the holder, for information only.
"""

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from spark_jobs.runtime.documents import identity_file
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import Settings

_KERNEL = Path("/proc/locks")


class FileLeases:
    """Leases of this process (`leases.Leases`), each by a file that it keeps open."""

    def __init__(self, settings: Settings, owner: str) -> None:
        self._folder, self._owner = folder(settings), owner
        self._files: dict[str, IO[str]] = {}
        if identity_file(settings).exists():
            raise SettingsError(
                f"LEDGER_HOSTS: found one, and a warehouse whose leases are in Postgres ({identity_file(settings)}), expected several, as "
                "on the hosts that share it; if no other host uses it any more, remove that file"
            )

    def try_take(self, name: str) -> int | None:
        """As `Leases.try_take`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(os.open(self._file(name), os.O_RDWR | os.O_CREAT, 0o666), "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        self._files[name] = file
        epoch = int(_read(file).get("epoch", 0)) + 1
        since = datetime.now(UTC).isoformat(timespec="seconds")
        record = {"owner": self._owner, "pid": os.getpid(), "host": socket.gethostname(), "since": since, "epoch": epoch}
        # One write over the old record, padded with blanks: if this process dies, the file holds the old record or the new one.
        file.seek(0)
        file.write(json.dumps(record).ljust(os.fstat(file.fileno()).st_size))
        file.flush()
        return epoch

    def holder(self, name: str) -> str:
        """As `Leases.holder`."""
        with open(self._file(name)) as file:
            record = _read(file)
        return "{owner} (process {pid} on {host}, since {since})".format_map({"owner": "?", "pid": "?", "host": "?", "since": "?"} | record)

    def refuse_if_lost(self) -> None:
        """The kernel takes a lock from no process that lives."""

    def give_back(self, *, is_clean: bool) -> None:
        """As `Leases.give_back`."""
        for file in self._files.values():
            file.close()

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.lock"


def folder(settings: Settings) -> Path:
    """The folder of the leases: who can open a file in it can hold a lease."""
    return settings.warehouse / ".leases"


def read_all(settings: Settings) -> Iterator[tuple[str, int, bool | None]]:
    """Name, epoch and whether it is held, of every lease that was ever taken."""
    locked = _locked() if _KERNEL.exists() else None
    for file in sorted(folder(settings).glob("*.lock")):
        status = file.stat()
        place = (os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)
        with open(file) as record:
            yield file.stem, int(_read(record).get("epoch", 0)), None if locked is None else place in locked


def _locked() -> set[tuple[int, int, int]]:
    """Device and number of every file on which the kernel knows a lock; asking for a lock instead could make a job wait for us."""
    found = set()
    for line in _KERNEL.read_text().splitlines():
        words = line.split()
        if "->" not in words and len(words) > 5:  # the others wait
            major, minor, inode = words[5].split(":")
            found.add((int(major, 16), int(minor, 16), int(inode)))
    return found


def _read(file: IO[str]) -> dict[str, Any]:
    file.seek(0)
    try:
        return dict(json.loads(file.read() or "{}"))
    except ValueError:
        return {}
