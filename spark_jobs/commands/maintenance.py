"""The jobs that keep a warehouse in order: small files, and an older version of the project. Their options are in arguments.py."""

import argparse
import logging
from functools import partial

from spark_jobs.commands.preconditions import BACKFILL, ROLL_BACK, Wants, ready
from spark_jobs.lake import leases, schema, tables
from spark_jobs.runtime import session
from spark_jobs.runtime.settings import Settings

log = logging.getLogger("ledger")


def run_maintenance(settings: Settings, options: argparse.Namespace) -> None:
    """Join small files, and remove files and commits that nobody needs. Bronze's ingestion is asked to do it while it runs."""
    lock = partial(leases.hold_names, settings, ["maintenance"], owner="maintenance", wait_seconds=0)
    with ready(settings, options, Wants((ROLL_BACK,)), lock):
        from spark_jobs.maintenance import job

        chosen = [table for table in tables.EVERY if table.name in options.tables]
        job.run(settings, chosen, lambda: session.start_session(settings, "ledger maintenance"), options.run_id, options.wait)


def run_migrate(settings: Settings, options: argparse.Namespace) -> None:
    """Bring an older warehouse and its checkpoints under this code, or say why not and what to do.

    Tables are brought up by additions, as by every job. Bronze's checkpoints need nothing: what they lack is found in bronze itself. The
    states of live queries must fit their present code.
    """
    present = [table for table in tables.EVERY if table.exists(settings)]
    with ready(settings, options, Wants((ROLL_BACK, BACKFILL), tables=present)):
        states = 0
        if tables.LIVE_TRANSACTIONS in present:
            from spark_jobs.live import fingerprint, upgrade

            recorded = upgrade.recorded(settings)
            fingerprint.check(
                upgrade.fingerprints(session.start_session(settings, "ledger migrate", session.state_conf()), settings), recorded
            )
            states = len(recorded)
    version = schema.refuse_newer(settings)
    log.info("%s: schema version %d, %d tables and %d live states fit this code", settings.warehouse, version, len(present), states)
