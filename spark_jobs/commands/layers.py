"""The jobs that write silver and gold: what must hold before each, and what it calls. Their options are in arguments.py."""

import argparse
import logging

from spark_jobs.commands.preconditions import finish_backfill, holding
from spark_jobs.control import rule_sets, scope
from spark_jobs.lake import leases, tables
from spark_jobs.releases import gates, retention, rollback
from spark_jobs.runtime import session, times
from spark_jobs.runtime.settings import Settings

log = logging.getLogger("ledger")


def run_silver(settings: Settings, options: argparse.Namespace) -> None:
    """What bronze has gained to silver, in one pass. Starts no JVM when that is nothing."""
    with holding(settings, options, tables.SILVER_OWNED):
        gates.refuse_if_closed(settings, "bronze", "silver")
        tables.ensure_tables(settings, (*tables.BRONZE, *tables.SILVER_OWNED, *tables.CONTROL))
        retention.bring_up_to_date(settings, tables.SILVER_OWNED)
        rule_sets.register(settings, (table.topic for table in tables.BRONZE))
        unread = scope.unread_bronze(settings)
        if not unread:
            log.info("silver: nothing to do, bronze has no batch that silver lacks")
            return
        from spark_jobs.reprocessing import redrive_plan
        from spark_jobs.silver import job

        redrive_plan.refuse_halfway(settings)
        job.run(session.start_session(settings, "ledger silver"), settings, options.run_id, unread)


def run_gold(settings: Settings, options: argparse.Namespace) -> None:
    """What silver has gained to gold, in one pass. Silver stands still meanwhile."""
    with holding(settings, options, (*tables.SILVER, *tables.GOLD)):
        gates.refuse_if_closed(settings, "bronze", "silver", "gold")
        from spark_jobs.gold import job
        from spark_jobs.reprocessing import redrive_plan

        tables.ensure_tables(settings, (*tables.SILVER_OWNED, *tables.GOLD, *tables.CONTROL))
        redrive_plan.refuse_halfway(settings)
        retention.bring_up_to_date(settings, tables.GOLD)
        job.run(session.start_session(settings, "ledger gold"), settings, options.run_id)


def run_redrive(settings: Settings, options: argparse.Namespace) -> None:
    """Judge quarantined rows again, by the newest rules or with corrected values. A closed gate does not stop it: it may mend one."""
    from spark_jobs.control import corrections
    from spark_jobs.reprocessing import redrive, redrive_plan

    given = corrections.read_file(options.corrections) if options.corrections else []  # refused before any lease is waited for
    with holding(settings, options, tables.SILVER_OWNED):
        plan = redrive_plan.plan(settings, options.rule, options.table, options.corrections, given)
        tables.ensure_tables(settings, (*tables.BRONZE, *tables.SILVER_OWNED, *tables.CONTROL))
        retention.bring_up_to_date(settings, tables.SILVER_OWNED)
        rule_sets.register(settings, (topic.name for topic in plan.topics))
        redrive.run(session.start_session(settings, "ledger redrive"), settings, plan, options.run_id)


def run_backfill(settings: Settings, options: argparse.Namespace) -> None:
    """Rebuild silver and gold of a range of event times from bronze, by today's rules, beside the live flow."""
    start, end = times.parse_range(options.start, options.end)
    rollback.finish(settings)
    with leases.hold_names(settings, ["backfill"], owner="backfill"):
        from spark_jobs.reprocessing import backfill, dry_run, redrive_plan

        order = backfill.Order(start, end, tuple(dict.fromkeys(options.tables)), options.step_rows, options.publish)
        if options.dry_run:
            dry_run.run(settings, order, lambda: session.start_session(settings, "ledger backfill, dry run"))
            return
        with rollback.hold(settings, backfill.LEASED, owner="backfill"):
            tables.ensure_tables(settings, (*tables.BRONZE, *tables.SILVER_OWNED, *tables.GOLD, *tables.CONTROL))
            redrive_plan.refuse_halfway(settings)
            rule_sets.register(settings, (table.topic for table in tables.BRONZE))
        finish_backfill(settings, options)
        backfill.run(session.start_session(settings, "ledger backfill"), settings, order, options.run_id)
