"""The job that joins small files and removes what nobody needs. Its options are in arguments.py."""

import argparse
from functools import partial

from spark_jobs.commands.preconditions import ROLL_BACK, Wants, ready
from spark_jobs.lake import leases, tables
from spark_jobs.runtime import session
from spark_jobs.runtime.settings import Settings


def run_maintenance(settings: Settings, options: argparse.Namespace) -> None:
    """Join small files, and remove files and commits that nobody needs. Bronze's ingestion is asked to do it while it runs."""
    lock = partial(leases.hold_names, settings, ["maintenance"], owner="maintenance", wait_seconds=0)
    with ready(settings, options, Wants((ROLL_BACK,)), lock):
        from spark_jobs.maintenance import job

        chosen = [table for table in tables.EVERY if table.name in options.tables]
        job.run(settings, chosen, lambda: session.start_session(settings, "ledger maintenance"), options.run_id, options.wait)
