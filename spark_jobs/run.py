"""The one entry point of the pipeline: `python -m spark_jobs.run <job>`.

Each `run_` function is a job, those of bronze in bronze/commands.py: what must hold before it, and what it calls; its options are in
arguments.py.
Exit codes: 0 done, 1 failed, 2 unusable arguments or settings, 3 gate closed, 4 audit difference, 5 another writer holds the lease.
"""

import argparse
import logging
import sys
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime

from spark_jobs.commands import arguments
from spark_jobs.commands.ingestion import run_accept, run_bronze, run_import, run_ingestion, run_replay
from spark_jobs.commands.live import run_live, run_savepoint, run_state, run_upgrade
from spark_jobs.control import backfills, rule_sets, scope
from spark_jobs.lake import leases, schema, tables
from spark_jobs.releases import archive, decisions, gates, rehearsal, releases, retention, rollback
from spark_jobs.runtime import private, times
from spark_jobs.runtime.errors import LedgerError, first_line
from spark_jobs.runtime.masking import MaskingFormatter
from spark_jobs.runtime.session import s3_conf, start_session
from spark_jobs.runtime.settings import Settings, read_settings
from spark_jobs.service import desired_state
from spark_jobs.service.services import LIVE

log = logging.getLogger("ledger")


def main(words: Sequence[str] | None = None) -> int:
    """Run one job; returns its exit code. A known failure is one line on stderr, without a stack trace."""
    private.keep_files_private()
    options = parse_arguments(words)
    logging.Formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(MaskingFormatter("%(asctime)sZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what fails within a batch comes back as the error of its query
    try:
        settings = read_settings()
        private.close(settings)
        schema.refuse_newer(settings)
        if options.name not in _READING:
            schema.bring_up(settings, tables.EVERY)
        JOBS[options.name](settings, options)
        return 0
    except LedgerError as error:
        log.error("%s", error)
        return error.exit_code
    except KeyboardInterrupt:
        log.error("interrupted")
        return 1
    except Exception as error:
        log.info("where it failed:", exc_info=True)  # not foreseen: whoever mends it needs the stack
        log.error("%s failed: %s: %s", options.name, type(error).__name__, first_line(error))
        return 1


def run_live_control(settings: Settings, options: argparse.Namespace) -> None:
    """Stop or restart the application of the live queries gracefully, or say how it does. Starts no JVM."""
    desired_state.run(settings, LIVE, options.action, options.who, options.why, options.wait)


def run_silver(settings: Settings, options: argparse.Namespace) -> None:
    """What bronze has gained to silver, in one pass. Starts no JVM when that is nothing."""
    with _holding(settings, options, tables.SILVER_OWNED):
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
        job.run(start_session(settings, "ledger silver"), settings, options.run_id, unread)


def run_redrive(settings: Settings, options: argparse.Namespace) -> None:
    """Judge quarantined rows again, by the newest rules or with corrected values. A closed gate does not stop it: it may mend one."""
    from spark_jobs.control import corrections
    from spark_jobs.reprocessing import redrive, redrive_plan

    given = corrections.read_file(options.corrections) if options.corrections else []  # refused before any lease is waited for
    with _holding(settings, options, tables.SILVER_OWNED):
        plan = redrive_plan.plan(settings, options.rule, options.table, options.corrections, given)
        tables.ensure_tables(settings, (*tables.BRONZE, *tables.SILVER_OWNED, *tables.CONTROL))
        retention.bring_up_to_date(settings, tables.SILVER_OWNED)
        rule_sets.register(settings, (topic.name for topic in plan.topics))
        redrive.run(start_session(settings, "ledger redrive"), settings, plan, options.run_id)


def run_backfill(settings: Settings, options: argparse.Namespace) -> None:
    """Rebuild silver and gold of a range of event times from bronze, by today's rules, beside the live flow."""
    start, end = times.parse_range(options.start, options.end)
    rollback.finish(settings)
    with leases.hold_names(settings, ["backfill"], owner="backfill"):
        from spark_jobs.reprocessing import backfill, dry_run, redrive_plan

        order = backfill.Order(start, end, tuple(dict.fromkeys(options.tables)), options.step_rows, options.publish)
        if options.dry_run:
            dry_run.run(settings, order, lambda: start_session(settings, "ledger backfill, dry run"))
            return
        with rollback.hold(settings, backfill.LEASED, owner="backfill"):
            tables.ensure_tables(settings, (*tables.BRONZE, *tables.SILVER_OWNED, *tables.GOLD, *tables.CONTROL))
            redrive_plan.refuse_halfway(settings)
            rule_sets.register(settings, (table.topic for table in tables.BRONZE))
        _finish_backfill(settings, options)
        backfill.run(start_session(settings, "ledger backfill"), settings, order, options.run_id)


def run_gold(settings: Settings, options: argparse.Namespace) -> None:
    """What silver has gained to gold, in one pass. Silver stands still meanwhile."""
    with _holding(settings, options, (*tables.SILVER, *tables.GOLD)):
        gates.refuse_if_closed(settings, "bronze", "silver", "gold")
        from spark_jobs.gold import job
        from spark_jobs.reprocessing import redrive_plan

        tables.ensure_tables(settings, (*tables.SILVER_OWNED, *tables.GOLD, *tables.CONTROL))
        redrive_plan.refuse_halfway(settings)
        retention.bring_up_to_date(settings, tables.GOLD)
        job.run(start_session(settings, "ledger gold"), settings, options.run_id)


def run_audit(settings: Settings, options: argparse.Namespace) -> None:
    """Silver and gold computed once more from bronze, by separate code, and compared row by row. Writes nothing but its result."""
    from spark_jobs.audit import job, snapshot
    from spark_jobs.reprocessing import redrive_plan

    if options.as_of is not None:
        audited = snapshot.of_release(settings, options.as_of)
    elif snapshot.has_run(settings):
        with leases.hold(settings, (*tables.SILVER_OWNED, *tables.GOLD), owner="audit, which notes versions"):
            redrive_plan.refuse_halfway(settings)
            audited = snapshot.of_now(settings)
    else:
        log.info("audit: nothing to compare, silver has taken no batch yet")
        return
    job.run(start_session(settings, "ledger audit"), settings, audited, options.run_id)


def run_maintenance(settings: Settings, options: argparse.Namespace) -> None:
    """Join small files, and remove files and commits that nobody needs. Bronze's ingestion is asked to do it while it runs."""
    rollback.finish(settings)
    with leases.hold_names(settings, ["maintenance"], owner="maintenance", wait_seconds=0):
        from spark_jobs.upkeep import maintenance

        chosen = [table for table in tables.EVERY if table.name in options.tables]
        maintenance.run(settings, chosen, lambda: start_session(settings, "ledger maintenance"), options.run_id, options.wait)


def run_gate(settings: Settings, options: argparse.Namespace) -> None:
    """Judge what a layer's job wrote since the last judgement that passed, or rehearse a changed suite or rule set on stored batches."""
    if options.suite:
        rehearsal.run(settings, options.layer, options.suite, options.since)
        return
    rollback.finish(settings)
    gates.run(settings, options.layer, options.run_id, verdict_file=options.verdict, limit_seconds=settings.gate_seconds)


def run_release(settings: Settings, options: argparse.Namespace) -> None:
    """Name one version of every table for readers, or keep what a release named. Starts no JVM."""
    if options.keep is None:
        rollback.finish(settings)
        releases.publish(settings)
    else:
        archive.keep(settings, options.keep)


def run_decide(settings: Settings, options: argparse.Namespace) -> None:
    """What a person decides about closed gates: release anyway, roll back or wait. Starts no JVM."""
    decisions.decide(settings, options.choice.replace("-", " "), options.who, options.why)


@contextmanager
def _holding(settings: Settings, options: argparse.Namespace, wanted: Collection[tables.Table]) -> Iterator[None]:
    """The leases of some tables, with nothing left halfway by a roll-back or a backfill's step: what came meanwhile is ended first."""
    while True:
        _finish_backfill(settings, options)
        with rollback.hold(settings, wanted, owner=options.name):
            if not backfills.halfway(settings):
                yield
                return


def _finish_backfill(settings: Settings, options: argparse.Namespace) -> None:
    """End a backfill's step that stopped halfway, before anything builds upon it."""
    if backfills.halfway(settings):
        from spark_jobs.reprocessing import backfill

        backfill.finish_halfway(settings, options.run_id, lambda: start_session(settings, f"ledger {options.name}"))


def run_export(settings: Settings, options: argparse.Namespace) -> None:
    """Rows of a release, or of a table in Postgres, as Parquet in date folders of a folder or an S3 bucket. Holds no table's lease."""
    from spark_jobs.export import job, request, source

    now = datetime.now(UTC)
    asked = request.check(request.Asked(**{field.name: getattr(options, field.name) for field in fields(request.Asked)}), settings, now)
    release = None if asked.is_postgres else source.find_release(settings, asked.release, now)
    with leases.hold_names(settings, [asked.lease], owner=f"export to {asked.folder}", wait_seconds=0):
        spark = start_session(settings, "ledger export", s3_conf() if asked.bucket else {})
        job.run(spark, settings, asked, uuid.uuid4().hex[:12], release)  # another name for every try of a task


def run_explain(settings: Settings, options: argparse.Namespace) -> None:
    """Print the silver rows, Kafka records, versions and runs that made a cell of gold. Starts no JVM, writes nothing."""
    from spark_jobs.explain import job

    job.run(settings, options.table, options.where, options.as_of)


_JOBS: tuple[Callable[[Settings, argparse.Namespace], None], ...] = (
    *(run_bronze, run_ingestion, run_accept, run_replay, run_import, run_silver, run_redrive, run_backfill, run_gold),
    *(run_live, run_live_control, run_state, run_upgrade, run_savepoint),
    *(run_gate, run_release, run_decide, run_maintenance, run_audit, run_explain, run_export),
)
_READING = ("explain", "export", "state")  # they write no table
JOBS = {job.__name__.removeprefix("run_"): job for job in _JOBS}


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line; an unusable one ends the process with exit code 2 and one line."""
    return arguments.parse(words, {name: job.__doc__ for name, job in JOBS.items()})


if __name__ == "__main__":
    sys.exit(main())
