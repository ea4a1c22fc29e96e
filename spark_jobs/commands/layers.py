"""The jobs that write silver and gold: what must hold before each, and what it calls. Their options are in arguments.py."""

import argparse
import logging

from spark_jobs.commands.preconditions import BACKFILL, REDRIVE, ROLL_BACK, SILVER, Wants, ready, warehouse_session
from spark_jobs.control import scope
from spark_jobs.lake import leases, tables
from spark_jobs.runtime import session, times
from spark_jobs.runtime.settings import Settings

log = logging.getLogger("ledger")

_TOPICS = tuple(table.topic for table in tables.BRONZE)
_UP_TO_SILVER = (*tables.BRONZE, *tables.SILVER_OWNED, *tables.CONTROL)
_ALL = (*_UP_TO_SILVER, *tables.GOLD)


def run_silver(settings: Settings, options: argparse.Namespace) -> None:
    """Bring new bronze batches into silver, in one pass. Starts no JVM when there are none."""
    wants = Wants((ROLL_BACK, BACKFILL, REDRIVE), ("bronze", "silver"), _UP_TO_SILVER, topics=_TOPICS, retained=tables.SILVER_OWNED)
    with ready(settings, options, wants, tables.SILVER_OWNED):
        unread = scope.unread_bronze(settings)
        if not unread:
            log.info("silver: nothing to do, bronze has no batch that silver lacks")
            return
        from spark_jobs.silver import batches, job

        spark = session.start_session(settings, "ledger silver", new_rows=batches.unread_rows(settings, unread))
        job.run(spark, settings, options.run_id, unread)


def run_gold(settings: Settings, options: argparse.Namespace) -> None:
    """Bring changes of silver into gold, in one pass. Silver is not written meanwhile."""
    wants = Wants((ROLL_BACK, BACKFILL, REDRIVE), ("bronze", "silver", "gold"), _ALL, retained=tables.GOLD)
    with ready(settings, options, wants, (*tables.SILVER, *tables.GOLD)):
        from spark_jobs.gold import job

        spark = session.start_session(settings, "ledger gold", new_rows=job.missing_rows(settings))
        job.run(spark, settings, options.run_id)


def run_redrive(settings: Settings, options: argparse.Namespace) -> None:
    """Judge quarantined rows again, by the newest rules or with corrected values. Runs past a closed gate, whose cause it may repair."""
    from spark_jobs.control import corrections
    from spark_jobs.reprocessing import redrive, redrive_plan

    given = corrections.read_file(options.corrections) if options.corrections else []  # refused before waiting for a lease
    chosen = redrive_plan.Selection(options.first_batch, options.last_batch, options.source)
    checked = redrive_plan.plan(settings, options.rule, options.table, None, (), chosen)  # so is a rule that no table knows
    if options.dry_run:
        redrive_plan.tell(settings, checked, len(given))
        return
    wants = Wants((ROLL_BACK, BACKFILL, SILVER), tables=_UP_TO_SILVER, topics=_TOPICS, retained=tables.SILVER_OWNED)
    with ready(settings, options, wants, tables.SILVER_OWNED):
        plan = redrive_plan.plan(settings, options.rule, options.table, options.corrections, given, chosen)
        redrive.run(warehouse_session(settings, "ledger redrive"), settings, plan, options.run_id)


def run_backfill(settings: Settings, options: argparse.Namespace) -> None:
    """Rebuild silver and gold of a range of event times from bronze, by today's rules, while the pipeline runs."""
    start, end = times.parse_range(options.start, options.end)
    with ready(settings, options, Wants((ROLL_BACK,)), lambda: leases.hold_names(settings, ["backfill"], owner="backfill")):
        from spark_jobs.reprocessing import backfill, dry_run

        request = backfill.Request(start, end, tuple(dict.fromkeys(options.tables)), options.step_rows, options.publish)
        if options.dry_run:
            dry_run.run(settings, request, lambda: warehouse_session(settings, "ledger backfill, dry run"))
            return
        with ready(settings, options, Wants((ROLL_BACK, BACKFILL, REDRIVE), tables=_ALL, topics=_TOPICS), backfill.LEASED):
            pass  # each step takes these leases again
        backfill.run(warehouse_session(settings, "ledger backfill", works_on_all=True), settings, request, options.run_id)
