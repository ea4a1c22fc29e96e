"""One writer a table: an operating-system lock on a file beside the warehouse's tables.

The kernel frees the lock when its holder dies, however it dies. The file says who holds it, for people.
"""

import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from spark_jobs.errors import LeaseHeld
from spark_jobs.settings import Settings
from spark_jobs.table import Table

log = logging.getLogger(__name__)

WAIT_SECONDS = 600.0
_POLL_SECONDS = 0.2


@contextmanager
def hold(settings: Settings, tables: Iterable[Table], owner: str, wait_seconds: float = WAIT_SECONDS) -> Iterator[int]:
    """Hold the leases of some tables; raises LeaseHeld, which says who holds one and since when, once `wait_seconds` are over.

    Gives the epoch: a number that is larger each time.
    """
    with hold_names(settings, (table.name for table in tables), owner, wait_seconds) as epoch:
        yield epoch


@contextmanager
def hold_names(settings: Settings, names: Iterable[str], owner: str, wait_seconds: float = WAIT_SECONDS) -> Iterator[int]:
    """`hold` for what is no declared table. Leases are taken in the order of names, so that two takers cannot block each other."""
    deadline = time.monotonic() + wait_seconds
    with ExitStack() as stack:
        held = [
            stack.enter_context(_hold_one(settings.warehouse / ".leases" / f"{name}.lock", name, owner, deadline)) for name in sorted(names)
        ]
        yield max(held, default=0)


@contextmanager
def _hold_one(path: Path, name: str, owner: str, deadline: float) -> Iterator[int]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "r+", opener=lambda name, flags: os.open(name, flags | os.O_CREAT, 0o666)) as file:
        told = False
        while not _try_lock(file):
            if time.monotonic() >= deadline:
                raise LeaseHeld(f"{name} is being written by {_holder(file)}: wait for it, or end it")
            if not told:
                log.info("waiting for %s, which is being written by %s", name, _holder(file))
                told = True
            time.sleep(_POLL_SECONDS)
        epoch = _record(file).get("epoch", 0) + 1
        record = {"owner": owner, "pid": os.getpid(), "host": socket.gethostname(), "since": _now(), "epoch": epoch}
        # One write over the old record, blanks over what is left of it: the file holds one of the two whenever this process dies.
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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
