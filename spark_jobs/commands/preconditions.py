"""What must hold before a job: the shape of the warehouse, leases, and nothing left halfway by a job that died."""

import argparse
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from spark_jobs.control import backfills
from spark_jobs.lake import schema, tables
from spark_jobs.releases import rollback
from spark_jobs.runtime import private, session
from spark_jobs.runtime.settings import Settings

_READING = ("explain", "export", "state")  # they write no table


def open_warehouse(settings: Settings, options: argparse.Namespace) -> None:
    """Close the home to other users, and bring an older warehouse up, unless the job writes no table, as a rehearsal or a dry run.

    Raises LedgerError for a warehouse that is newer than this code, or that additions cannot bring up.
    """
    private.close(settings)
    is_trial = getattr(options, "suite", None) or getattr(options, "dry_run", False)
    if is_trial or options.name in _READING:
        schema.refuse_newer(settings)
    else:
        schema.bring_up(settings, tables.EVERY)


@contextmanager
def holding(settings: Settings, options: argparse.Namespace, wanted: Collection[tables.Table]) -> Iterator[None]:
    """The leases of some tables, with nothing left halfway by a roll-back or a backfill's step: what came meanwhile is ended first."""
    while True:
        finish_backfill(settings, options)
        with rollback.hold(settings, wanted, owner=options.name):
            if not backfills.halfway(settings):
                yield
                return


def finish_backfill(settings: Settings, options: argparse.Namespace) -> None:
    """End a backfill's step that stopped halfway, before anything builds upon it."""
    if backfills.halfway(settings):
        from spark_jobs.reprocessing import backfill

        backfill.finish_halfway(settings, options.run_id, lambda: session.start_session(settings, f"ledger {options.name}"))
