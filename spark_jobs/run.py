"""The one entry point of the pipeline: `python -m spark_jobs.run <job>`.

Each `run_` function below is a job: what must hold before it, and what it calls. Exit codes: 0 done, 1 failed, 2 unusable
arguments or settings, 3 gate closed, 4 audit difference, 5 another writer holds the lease.
"""

import argparse
import logging
import os
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from spark_jobs import (
    decisions,
    gates,
    kept,
    leases,
    rehearsal,
    releases,
    retention,
    rollback,
    tables,
    verdicts,
    written,
)
from spark_jobs.errors import LedgerError, SettingsError, first_line
from spark_jobs.masking import MaskingFormatter
from spark_jobs.session import start_session
from spark_jobs.settings import Settings, read_settings
from spark_jobs.silver import rule_sets

log = logging.getLogger("ledger")


_REDRIVEN = tuple(f"silver.{topic}{part}" for part in ("", "_quarantine") for topic in ("transactions", "customers", "accounts"))


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(SettingsError.exit_code, f"{self.prog}: {message} (see --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job; returns its exit code. A known failure is one line on stderr, without a stack trace."""
    options = parse_arguments(arguments)
    logging.Formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(MaskingFormatter("%(asctime)sZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what fails within a batch comes back as the error of its query
    try:
        options.job(read_settings(), options)
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


def run_bronze(settings: Settings, options: argparse.Namespace) -> None:
    """Kafka to bronze. Another bronze application on the same tables is refused at once."""
    from spark_jobs.bronze import ingest, offsets
    from spark_jobs.topics import ensure_topics

    offsets.check_start(options.starting_offsets)
    ensure_topics(settings.broker())
    with leases.hold(settings, tables.BRONZE, owner="bronze", wait_seconds=0):
        tables.ensure_tables(settings, (*tables.BRONZE, *tables.CONTROL))
        retention.bring_up_to_date(settings, tables.BRONZE)
        spark = start_session(settings, "ledger bronze")
        ingest.run(spark, settings, available_now=options.available_now, starting_offsets=options.starting_offsets)


def run_silver(settings: Settings, options: argparse.Namespace) -> None:
    """What bronze has gained to silver, in one pass. Starts no JVM when that is nothing."""
    rollback.finish(settings)
    gates.refuse_if_closed(settings, "bronze", "silver")
    with leases.hold(settings, (*tables.SILVER, *tables.SILVER_INDEXES), owner="silver"):
        tables.ensure_tables(settings, (*tables.BRONZE, *tables.SILVER, *tables.SILVER_INDEXES, *tables.CONTROL))
        retention.bring_up_to_date(settings, (*tables.SILVER, *tables.SILVER_INDEXES))
        rule_sets.register(settings, (table.name.removeprefix("bronze.") for table in tables.BRONZE))
        unread = written.unread_bronze(settings)
        if not unread:
            log.info("silver: nothing to do, bronze has no batch that silver lacks")
            return
        from spark_jobs.silver import job, redrive_plan

        redrive_plan.refuse_halfway(settings)
        job.run(start_session(settings, "ledger silver"), settings, options.run_id, unread)


def run_redrive(settings: Settings, options: argparse.Namespace) -> None:
    """Judge quarantined rows again, by the newest rules or with corrected values. A closed gate does not stop it: it may mend one."""
    rollback.finish(settings)
    with leases.hold(settings, (*tables.SILVER, *tables.SILVER_INDEXES), owner="redrive"):
        from spark_jobs.silver import redrive, redrive_plan

        plan = redrive_plan.plan(settings, options.rule, options.table, options.corrections)
        tables.ensure_tables(settings, (*tables.BRONZE, *tables.SILVER, *tables.SILVER_INDEXES, *tables.CONTROL))
        retention.bring_up_to_date(settings, (*tables.SILVER, *tables.SILVER_INDEXES))
        rule_sets.register(settings, (topic.name for topic in plan.topics))
        redrive.run(start_session(settings, "ledger redrive"), settings, plan, options.run_id)


def run_gold(settings: Settings, options: argparse.Namespace) -> None:
    """What silver has gained to gold, in one pass. Silver stands still meanwhile."""
    rollback.finish(settings)
    gates.refuse_if_closed(settings, "bronze", "silver", "gold")
    with leases.hold(settings, (*tables.SILVER, *tables.GOLD), owner="gold"):
        from spark_jobs.gold import job
        from spark_jobs.silver import redrive_plan

        tables.ensure_tables(settings, (*tables.SILVER, *tables.SILVER_INDEXES, *tables.GOLD, *tables.CONTROL))
        redrive_plan.refuse_halfway(settings)
        retention.bring_up_to_date(settings, tables.GOLD)
        job.run(start_session(settings, "ledger gold"), settings, options.run_id)


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
        kept.keep(settings, options.keep)


def run_decide(settings: Settings, options: argparse.Namespace) -> None:
    """What a person decides about closed gates: release anyway, roll back or wait. Starts no JVM."""
    decisions.decide(settings, options.choice.replace("-", " "), options.who, options.why)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line; an unusable one ends the process with exit code 2 and one line."""
    parser = _Parser(prog="python -m spark_jobs.run", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--run-id", default=os.environ.get("LEDGER_RUN_ID") or uuid.uuid4().hex, help="names this run in the control tables"
    )
    jobs = parser.add_subparsers(dest="name", required=True, metavar="job")

    bronze = jobs.add_parser("bronze", help=run_bronze.__doc__)
    bronze.add_argument("--available-now", action="store_true", help="stop when all that is there now was read")
    bronze.add_argument("--starting-offsets", metavar="WHERE", help="earliest, latest, committed or an ISO 8601 time with a zone")
    bronze.set_defaults(job=run_bronze)
    jobs.add_parser("silver", help=run_silver.__doc__).set_defaults(job=run_silver)
    jobs.add_parser("gold", help=run_gold.__doc__).set_defaults(job=run_gold)
    redrive = jobs.add_parser("redrive", help=run_redrive.__doc__)
    redrive.add_argument("--rule", required=True, metavar="NAME", help="judge the rows of quarantine that break this rule")
    redrive.add_argument("--table", choices=_REDRIVEN, help="of this table only; by default of every table that has the rule")
    redrive.add_argument("--corrections", type=Path, metavar="FILE", help="values to judge instead, one JSON object a line")
    redrive.set_defaults(job=run_redrive)
    gate = jobs.add_parser("gate", help=run_gate.__doc__)
    gate.add_argument("layer", choices=tuple(tables.LAYERS))
    gate.add_argument("--verdict", type=Path, metavar="FILE", help="write the verdict here, as JSON")
    gate.add_argument("--suite", type=Path, metavar="FILE", help="rehearse this suite or rule set on stored batches; writes nothing")
    gate.add_argument("--since", type=_whole, default=0, metavar="RELEASE", help="with --suite: the batches after this release (0: all)")
    gate.set_defaults(job=run_gate)
    release = jobs.add_parser("release", help=run_release.__doc__)
    release.add_argument("--keep", type=int, metavar="ID", help="publish nothing; copy this release, so that it can be read for good")
    release.set_defaults(job=run_release)
    decide = jobs.add_parser("decide", help=run_decide.__doc__)
    decide.add_argument("choice", choices=[choice.replace(" ", "-") for choice in verdicts.CHOICES])
    decide.add_argument("--who", required=True, metavar="NAME", help="who decides")
    decide.add_argument("--why", required=True, metavar="TEXT", help="the reason, for the record")
    decide.set_defaults(job=run_decide)
    return parser.parse_args(arguments)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
