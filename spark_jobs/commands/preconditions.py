"""What must hold before a job: a job names what it wants, and `ready` sees to it in the one order in which that is safe."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from spark_jobs import control
from spark_jobs.commands.arguments import is_trial
from spark_jobs.control import backfills, erasures, redrives, rule_sets, scope, unfinished
from spark_jobs.control.unfinished import Finisher, Unfinished
from spark_jobs.lake import leases, schema, tables
from spark_jobs.lake.tables import Table
from spark_jobs.releases import gates, retention, rollback
from spark_jobs.runtime import private, session
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
_READING = ("explain", "export", "state", "example")  # they write no table
_LIVE = ("live", "upgrade", "savepoint")
_FEW_ROWS = 20_000  # of bronze; of 37,000 an audit takes as long either way


def _finish_backfill(settings: Settings, by: Finisher) -> None:
    from spark_jobs.reprocessing import backfill

    backfill.finish_halfway(settings, by)


def _finish_silver(settings: Settings, by: Finisher) -> None:
    from spark_jobs.silver import job

    rule_sets.register(settings, (table.topic for table in tables.BRONZE))
    job.finish(by.session(), settings, by.run_id)


def _is_reset_pending(settings: Settings) -> bool:
    from spark_jobs.live import resets

    return resets.is_pending(settings)


def _finish_reset(settings: Settings, _: Finisher) -> None:
    from spark_jobs.live import resets

    resets.finish(settings)


# All that a process which dies can leave unfinished, in the order in which it is finished. Modules that need Spark are imported late.
ROLL_BACK = rollback.UNFINISHED
BACKFILL = Unfinished(lambda settings: backfills.halfway(settings) is not None, _finish_backfill)
REDRIVE = Unfinished(  # only the command knows what was asked for
    lambda settings: bool(redrives.halfway(settings)), lambda settings, _: redrives.refuse_halfway(settings), is_under_lease=True
)
SILVER = Unfinished(lambda settings: bool(scope.unfinished_bronze(settings)), _finish_silver, is_under_lease=True)
LIVE_RESET = Unfinished(_is_reset_pending, _finish_reset, is_under_lease=True)


@dataclass(frozen=True)
class Wants:
    """What a job wants before it begins.

    `finished`: kinds of work that must not be left unfinished. `gates`: layers of which no verdict may be a closed one. `tables` exist,
    with all columns. `checks` raise LedgerError for what else speaks against the job. `topics` have their present rules on record.
    `retained` tables keep files for as long as the settings say.
    """

    finished: Sequence[Unfinished] = ()
    gates: Sequence[str] = ()
    tables: Sequence[Table] = ()
    checks: Sequence[Callable[[Settings], None]] = ()
    topics: Sequence[str] = ()
    retained: Sequence[Table] = ()


def warehouse_session(settings: Settings, name: str, *, works_on_all: bool = False) -> "SparkSession":
    """The session of a job that may read every row: its plans fit the number of bronze's rows, and its compilers, where it works on all."""
    rows = sum(control.count(table.open(settings)) for table in tables.BRONZE if table.exists(settings))
    spark = session.start_session(settings, name, new_rows=rows if works_on_all else 0)
    if rows <= _FEW_ROWS:  # plans cost more than their work
        for setting, value in session.SMALL_PLANS.items():
            spark.conf.set(setting, value)
    return spark


@contextmanager
def ready(
    settings: Settings, options: argparse.Namespace, wants: Wants, lock: Callable[[], AbstractContextManager[T]] | Sequence[Table] = ()
) -> Iterator[T | Any]:
    """Hold a lock (leases of tables, or what `lock` makes) with all that a job wants; gives what the lock gives.

    Raises GateClosed for a closed gate, LeaseHeld when another process holds the lock for too long, SettingsError for rules that cannot
    be used, and LedgerError for what only another command can finish.
    """
    by = Finisher(options.run_id, lambda: warehouse_session(settings, f"ledger {options.name}"))
    locked: Callable[[], AbstractContextManager[Any]] = lock if callable(lock) else lambda: _leases(settings, lock, options.name)
    with unfinished.lock_when_finished(settings, locked, wants.finished, by) as locked:
        if options.name != "forget":
            erasures.refuse_unfinished(settings)
        if wants.gates:
            gates.refuse_if_closed(settings, *wants.gates)
        tables.ensure_tables(settings, wants.tables)
        unfinished.finish_under_lease(settings, wants.finished, by)
        for check in wants.checks:
            check(settings)
        if wants.topics:
            rule_sets.register(settings, wants.topics)
        retention.bring_up_to_date(settings, wants.retained)  # a roll-back or a reset brings back the properties of an older version
        yield locked


def _leases(settings: Settings, wanted: Sequence[Table], owner: str) -> AbstractContextManager[Any]:
    return leases.hold(settings, wanted, owner) if wanted else nullcontext()


def open_warehouse(settings: Settings, options: argparse.Namespace) -> None:
    """Close the home to other users, and bring an older warehouse up, unless the job writes no table, as a rehearsal or a dry run.

    Raises LedgerError for a warehouse that is newer than this code, or that additions cannot bring up; SettingsError, before it changes
    anything, for a gold table whose SQL file is refused, and in jobs of the live tables for a live table whose file is.
    """
    if refused := [*tables.REFUSED, *(tables.REFUSED_LIVE.values() if options.name in _LIVE else ())]:
        raise SettingsError("; ".join(refused))
    private.close(settings)
    if is_trial(options) or options.name in _READING:
        schema.refuse_newer(settings)
    else:
        schema.bring_up(settings, tables.EVERY)
