"""One writer a table: an operating-system lock on a file beside the warehouse's tables.

All leases have one order. A process that holds some waits only for later ones, so no two processes can block each other. The kernel frees
a lock when its holder dies, however it dies. The file names the holder, for information only.
"""

import fcntl
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from spark_jobs.lake.table import Table
from spark_jobs.runtime.errors import LeaseHeld
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

WAIT_SECONDS = 600.0
_POLL_SECONDS = 0.2
# Names that are not tables come first (a job that runs one at a time), then tables by layer. Control tables come last: jobs write them
# while they hold the tables described. Of these, releases come first: a roll-back corrects the others while nothing can be released.
# Last come the catalogues, which are written after a release, also by a backfill that holds the tables.
_ORDER = ("bronze", "silver", "gold", "control.releases", "control", "catalogues")


class _Held(threading.local):
    """The names of the leases that a thread holds."""

    def __init__(self) -> None:
        self.names: list[str] = []


_held = _Held()


@contextmanager
def hold(settings: Settings, tables: Iterable[Table], owner: str, wait_seconds: float = WAIT_SECONDS) -> Iterator[int]:
    """Hold the leases of some tables; after `wait_seconds` raises LeaseHeld, which names the holder and the time since when.

    Gives the epoch: a number that is larger each time.
    """
    with hold_names(settings, (table.name for table in tables), owner, wait_seconds) as epoch:
        yield epoch


@contextmanager
def hold_names(settings: Settings, names: Iterable[str], owner: str, wait_seconds: float = WAIT_SECONDS) -> Iterator[int]:
    """`hold` for names that are not declared tables.

    Raises RuntimeError, before it takes any, where it might wait for a lease that comes before one which this thread holds.
    """
    deadline, wanted = time.monotonic() + wait_seconds, sorted(names, key=_place)
    if wait_seconds > 0:  # a caller that does not wait blocks nobody
        _refuse_out_of_order(wanted, owner)
    with ExitStack() as stack:
        epochs = [stack.enter_context(_hold_one(settings.warehouse / ".leases" / f"{name}.lock", name, owner, deadline)) for name in wanted]
        _held.names += wanted
        try:
            yield max(epochs, default=0)
        finally:
            for name in wanted:
                _held.names.remove(name)


def _place(name: str) -> tuple[int, str]:
    """The place of a lease in the order of all leases."""
    kinds = (name, name.partition(".")[0])
    return next((number for number, kind in enumerate(_ORDER) if kind in kinds), -1), name


def _refuse_out_of_order(wanted: Iterable[str], owner: str) -> None:
    first, last = min(wanted, key=_place, default=None), max(_held.names, key=_place, default=None)
    if first is not None and last is not None and _place(first) <= _place(last):
        raise RuntimeError(
            f"{owner} waits for {first} while it holds {last}: expected leases in the order of spark_jobs/lake/leases.py, so that two "
            f"processes cannot block each other: take {first} before {last}, or do not wait for it"
        )


@contextmanager
def _hold_one(path: Path, name: str, owner: str, deadline: float) -> Iterator[int]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "r+", opener=lambda name, flags: os.open(name, flags | os.O_CREAT, 0o666)) as file:
        is_logged = False
        while not _try_lock(file):
            if time.monotonic() >= deadline:
                raise LeaseHeld(f"{name} is being written by {_holder(file)}: wait for it, or end it")
            if not is_logged:
                log.info("waiting for %s, which is being written by %s", name, _holder(file))
                is_logged = True
            time.sleep(_POLL_SECONDS)
        epoch = _record(file).get("epoch", 0) + 1
        since = datetime.now(UTC).isoformat(timespec="seconds")
        record = {"owner": owner, "pid": os.getpid(), "host": socket.gethostname(), "since": since, "epoch": epoch}
        # One write over the old record, padded with blanks: if this process dies, the file holds the old record or the new one.
        file.seek(0)
        file.write(json.dumps(record).ljust(os.fstat(file.fileno()).st_size))
        file.flush()
        yield epoch


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _record(file: IO[str]) -> dict[str, Any]:
    file.seek(0)
    try:
        return dict(json.loads(file.read() or "{}"))
    except ValueError:
        return {}


def _holder(file: IO[str]) -> str:
    record = _record(file)
    return "{owner} (process {pid} on {host}, since {since})".format_map({"owner": "?", "pid": "?", "host": "?", "since": "?"} | record)
