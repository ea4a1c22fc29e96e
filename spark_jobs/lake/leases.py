"""One writer a table: a lease, which ends with its holder, however that dies.

All leases have one order. A process that holds some waits only for later ones, so no two processes can block each other. Where one host
writes the warehouse, a lease is the kernel's lock on a file (file_leases.py); where several do (LEDGER_HOSTS), it is in Postgres
(postgres_leases.py).
"""

import json
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from spark_jobs.lake import file_leases
from spark_jobs.lake.table import Table
from spark_jobs.runtime import progress
from spark_jobs.runtime.errors import LeaseHeld, LedgerError
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

WAIT_SECONDS = 600.0
_POLL_SECONDS = 0.2
# Names that are not tables come first (a job that runs one at a time), then tables by layer. Control tables come last: jobs write them
# while they hold the tables described. Of these, releases come first: a roll-back corrects the others while nothing can be released.
# Last come the catalogues, which are written after a release, also by a backfill that holds the tables.
_ORDER = ("bronze", "silver", "gold", "control.releases", "control", "catalogues")


class Leases(Protocol):
    """Leases that one `hold` takes, and gives back all at once."""

    def try_take(self, name: str) -> int | None:
        """The epoch of a lease that is now held, larger each time; None where somebody else holds it.

        Raises LedgerError where nobody can say.
        """

    def holder(self, name: str) -> str:
        """Who holds a lease that was not to be had."""

    def refuse_if_lost(self) -> None:
        """Raise LedgerError if somebody else may hold one of these leases by now."""

    def give_back(self, *, is_clean: bool) -> None:
        """Let others take them. `is_clean`: no write under them may still be under way."""


@dataclass(frozen=True)
class Lease:
    """What is known of a lease: how often it was taken, and whether it is held now (None: this cannot be found out)."""

    name: str
    epoch: int
    is_held: bool | None


class _Held(threading.local):
    """The names of the leases that a thread holds."""

    def __init__(self) -> None:
        self.names: list[str] = []


_held = _Held()
_fenced: dict[tuple[Path, str], tuple[Leases, int]] = {}  # what this process, in any thread, holds of leases that may be lost


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
    leases, is_clean = _leases(settings, owner), False
    try:
        epochs = {name: _take(leases, name, deadline) for name in wanted}
        if settings.has_several_hosts:
            _fenced.update({(settings.warehouse, name): (leases, epoch) for name, epoch in epochs.items()})
        _held.names += wanted
        try:
            yield max(epochs.values(), default=0)
            is_clean = True
        finally:
            for name in wanted:
                _held.names.remove(name)
                _fenced.pop((settings.warehouse, name), None)
    finally:
        leases.give_back(is_clean=is_clean)


def commit_metadata(settings: Settings, table: Table, facts: Mapping[str, Any]) -> str:
    """The userMetadata of a commit that is about to be made: facts, and the epoch of the table's lease where several hosts write.

    Raises LedgerError, for the write not to begin, where another host may hold the lease by now.
    """
    leases, epoch = _fenced.get((settings.warehouse, table.name), (None, 0))
    if leases is None:
        return json.dumps(facts)
    leases.refuse_if_lost()
    return json.dumps({**facts, "epoch": epoch})


def read_all(settings: Settings) -> list[Lease]:
    """Every lease of the warehouse that was ever taken. Takes none, and disturbs no holder."""
    if settings.has_several_hosts:
        from spark_jobs.lake import postgres_leases

        return [Lease(*found) for found in postgres_leases.read_all(settings)]
    return [Lease(*found) for found in file_leases.read_all(settings)]


def _leases(settings: Settings, owner: str) -> Leases:
    if settings.has_several_hosts:
        from spark_jobs.lake.postgres_leases import PostgresLeases  # most processes need no client of Postgres

        return PostgresLeases(settings, owner)
    return file_leases.FileLeases(settings, owner)


def _take(leases: Leases, name: str, deadline: float) -> int:
    if (epoch := _try_take(leases, name, deadline)) is not None:
        return epoch
    waiting = f"waiting for {name}, which is being written by {leases.holder(name)}"
    if time.monotonic() < deadline:
        log.info("%s", waiting)
    with progress.phase(waiting):
        while (epoch := _try_take(leases, name, deadline)) is None:
            if time.monotonic() >= deadline:
                raise LeaseHeld(f"{name} is being written by {leases.holder(name)}: wait for it, or end it")
            time.sleep(_POLL_SECONDS)
    return epoch


def _try_take(leases: Leases, name: str, deadline: float) -> int | None:
    """`try_take`, again until the deadline where nobody can say who holds it."""
    while True:
        try:
            return leases.try_take(name)
        except LedgerError as error:
            if time.monotonic() >= deadline:
                raise
            log.warning("%s", error)
            time.sleep(5)


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
