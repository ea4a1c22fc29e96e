"""Leases of several hosts: advisory locks of Postgres, and a row for each that says who holds it and when he was last heard of.

The lock is held by a connection of the job and ends with it. A thread of the holder says every two seconds that it lives. The row makes
the lease outlast a connection: after a restart of Postgres, or when a network is cut, nobody takes a lease whose holder was heard of
within the last 15 seconds. A holder that could not say so for 10 seconds ends itself, with its JVM, so it has ended when the lease passes
on. One that could not even do that, because it was paused, finds its lock gone when it wakes up: Postgres ends a session that is silent for
15 seconds. Then its process ends at once; and a commit that its JVM has under way fails, because whoever took a lease that was not given
back has first changed a property of the table: Delta refuses every commit that was begun before such a change.
"""

import json
import logging
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

import psutil
import psycopg2
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from psycopg2.extras import NamedTupleCursor

from spark_jobs.runtime.documents import identity
from spark_jobs.runtime.errors import LedgerError, first_line
from spark_jobs.runtime.identity import find_process, identify
from spark_jobs.runtime.postgres import connect_shared
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

LEASE_SECONDS = 15  # since its holder was last heard of, by the clock of Postgres: from then on others may take it
STOP_SECONDS = 10  # since its holder last said that it lives, by its own clock: then it ends itself
RENEW_SECONDS = 2
EPOCH = "ledger.epoch"  # the property of a table that a new holder sets
_TRIES = 5
_LOCK = "select pg_try_advisory_lock(hashtextextended('ledger ' || %(warehouse)s || ' ' || %(name)s, 0))"
_UNLOCK = _LOCK.replace("pg_try_advisory_lock", "pg_advisory_unlock")
_FIND = """
    select epoch, is_clean, owner, process, host, since,
        coalesce(renewed_at > clock_timestamp() - %(lease_seconds)s * interval '1 s', false) as is_fresh
    from ledger_leases where warehouse = %(warehouse)s and name = %(name)s
"""
_TAKE = """
    insert into ledger_leases values
        (%(warehouse)s, %(name)s, %(epoch)s, %(owner)s, %(process)s, %(host)s, clock_timestamp(), clock_timestamp(), false)
    on conflict (warehouse, name) do update set
        (epoch, owner, process, host, since, renewed_at, is_clean)
        = (excluded.epoch, excluded.owner, excluded.process, excluded.host, excluded.since, excluded.renewed_at, excluded.is_clean)
"""
_RENEW = """
    update ledger_leases set renewed_at = clock_timestamp()
    where warehouse = %(warehouse)s and (name, epoch) in (select * from unnest(%(names)s, %(epochs)s::bigint[]))
"""
_READ = """
    select name, epoch, coalesce(renewed_at > clock_timestamp() - %(lease_seconds)s * interval '1 s', false)
    from ledger_leases where warehouse = %(warehouse)s order by name
"""
_GIVE_BACK = _RENEW.replace("renewed_at = clock_timestamp()", "renewed_at = null, is_clean = %(is_clean)s")
_UNLOCK_ALL = "select pg_advisory_unlock_all()"  # Postgres ends a closed connection in its own time


class PostgresLeases:
    """Leases of this process (`leases.Leases`), by a connection of their own."""

    def __init__(self, settings: Settings, owner: str) -> None:
        self._settings, self._owner = settings, owner
        self._warehouse = identity(settings)
        self._epochs: dict[str, int] = {}
        self._connection: Any = None
        self._using = threading.Lock()  # the connection
        self._done = threading.Event()
        self._valid_until = float("inf")
        self._lost = ""  # why, once they are

    def try_take(self, name: str) -> int | None:
        """As `Leases.try_take`. Raises LedgerError where Postgres does not answer."""
        asked = _now()
        try:
            with self._using:
                if not self._execute(_LOCK, name=name)[0][0]:
                    return None
                found = self._execute(_FIND, name=name)
                if found and _is_held(found[0]):
                    self._execute(_UNLOCK, name=name)
                    return None
                epoch = 1 + (found[0].epoch if found else _epoch_of(self._path(name)))
                mine = {"owner": self._owner, "process": json.dumps(identify(os.getpid())), "host": socket.gethostname()}
                self._execute(_TAKE, name=name, epoch=epoch, **mine)
        except psycopg2.Error as error:
            self._close()
            raise LedgerError(
                f"{name}: its lease is in Postgres, which does not answer ({first_line(error)}): nobody writes until it does; start it, or "
                "correct LEDGER_POSTGRES_URL"
            ) from None
        if not self._epochs:
            self._valid_until = asked + STOP_SECONDS
            for work in (self._renew, self._watch):
                threading.Thread(target=work, name=f"leases of {self._owner}", daemon=True).start()
        self._epochs[name] = epoch
        if not found or not found[0].is_clean:
            _fence(self._path(name), epoch)
        return epoch

    def holder(self, name: str) -> str:
        """As `Leases.holder`."""
        with self._using:
            found = self._execute(_FIND, name=name)
        if not found:
            return "a job that has just begun"
        row = found[0]
        return f"{row.owner} (process {json.loads(row.process)['pid']} on {row.host}, since {row.since.isoformat(timespec='seconds')})"

    def refuse_if_lost(self) -> None:
        """As `Leases.refuse_if_lost`."""
        if self._lost or _now() >= self._valid_until:
            raise LedgerError(self._why_lost())

    def give_back(self, *, is_clean: bool) -> None:
        """As `Leases.give_back`. Where Postgres does not answer, they pass on when their time is over."""
        self._done.set()
        try:
            with self._using:
                if self._epochs:
                    self._execute(_GIVE_BACK, **self._all(), is_clean=is_clean)
                    self._execute(_UNLOCK_ALL)
        except psycopg2.Error as error:
            log.warning("the leases of %s could not be given back, so they end in %d s: %s", self._owner, LEASE_SECONDS, first_line(error))
        self._close()

    def _renew(self) -> None:
        """Say that this process lives, until the leases are given back or lost."""
        while not self._done.wait(RENEW_SECONDS):
            asked, names = _now(), tuple(self._epochs)
            try:
                with self._using:
                    if self._done.is_set():
                        return
                    count = self._execute(_RENEW, **self._all())
                if count < len(names):
                    self._lost = "another process has taken them"
                    self._end()
                self._valid_until = asked + STOP_SECONDS
            except psycopg2.Error as error:
                log.warning("the leases of %s cannot be renewed: %s", self._owner, first_line(error))
                self._close()

    def _watch(self) -> None:
        """End this process before its leases can pass on; a thread of its own, since a question to Postgres may never be answered."""
        while not self._done.wait(min(RENEW_SECONDS, max(0.0, self._valid_until - _now()))):
            if _now() >= self._valid_until:
                self._end()

    def _end(self) -> NoReturn:
        """End this process and its JVM, as by `kill -9`: they must not write any more."""
        for child in psutil.Process().children(recursive=True):
            child.kill()
        log.error("%s", self._why_lost())
        os._exit(LedgerError.exit_code)

    def _why_lost(self) -> str:
        silent = f"Postgres could not be told for {STOP_SECONDS} s that it lives, or it was paused for so long"
        return (
            f"{self._owner} has lost its leases ({', '.join(self._epochs)}): {self._lost or silent}: it ends without a further commit; "
            "start it again, and it repeats what it had not written"
        )

    def _all(self) -> dict[str, Any]:
        return {"names": list(self._epochs), "epochs": list(self._epochs.values())}

    def _path(self, name: str) -> Path:
        return self._settings.warehouse.joinpath(*name.split("."))

    def _execute(self, sql: str, **values: Any) -> Any:
        """The rows that a statement returns, or how many it has changed."""
        if self._connection is None:
            self._connection = connect_shared(self._settings, LEASE_SECONDS)
            for name in self._epochs:  # a lock ends with its connection; meanwhile the row has kept others from the lease
                self._execute(_LOCK, name=name)
        with self._connection.cursor(cursor_factory=NamedTupleCursor) as cursor:
            cursor.execute(sql, {"warehouse": self._warehouse, "lease_seconds": LEASE_SECONDS, **values})
            return cursor.fetchall() if cursor.description else cursor.rowcount

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _is_held(row: Any) -> bool:
    """Whether the holder of a lease was heard of lately, and is not known to have died on this host since."""
    return row.is_fresh and not (row.host == socket.gethostname() and find_process(json.loads(row.process)) is None)


def read_all(settings: Settings) -> list[tuple[str, int, bool | None]]:
    """Name, epoch and whether it is held, of every lease that was ever taken. Raises psycopg2.Error where Postgres does not answer."""
    connection = connect_shared(settings, LEASE_SECONDS)
    try:
        with connection.cursor() as cursor:
            cursor.execute(_READ, {"warehouse": identity(settings), "lease_seconds": LEASE_SECONDS})
            return [(str(name), int(epoch), bool(is_held)) for name, epoch, is_held in cursor.fetchall()]
    finally:
        connection.close()


def _epoch_of(path: Path) -> int:
    """The epoch that a table remembers, where Postgres knows none: it is another database than before."""
    if not DeltaTable.is_deltatable(str(path)):
        return 0
    return int(DeltaTable(str(path)).metadata().configuration.get(EPOCH, 0))


def _fence(path: Path, epoch: int) -> None:
    """Make every commit to a table fail that was begun before now: whoever had its lease did not give it back, and may yet wake up."""
    for number in range(_TRIES):
        if not DeltaTable.is_deltatable(str(path)):
            return
        try:
            DeltaTable(str(path)).alter.set_table_properties({EPOCH: str(epoch)}, raise_if_not_exists=False)
            return
        except CommitFailedError as error:  # it was faster, by its last commit
            if number == _TRIES - 1:
                raise LedgerError(f"{path}: found somebody who writes it without its lease ({first_line(error)}): end that job") from None


def _now() -> float:
    """Seconds by a clock that never jumps, and runs on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
