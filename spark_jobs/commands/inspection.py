"""The jobs that read what is there: audit, explain, export. Their options are in arguments.py."""

import argparse
import logging
import uuid
from datetime import UTC, datetime

from spark_jobs.commands.preconditions import REDRIVE, Wants, ready, warehouse_session
from spark_jobs.lake import leases, tables
from spark_jobs.runtime import session
from spark_jobs.runtime.settings import Settings

log = logging.getLogger("ledger")


def run_audit(settings: Settings, options: argparse.Namespace) -> None:
    """Recompute silver and gold from bronze with separate code, and compare row by row. Writes only its result."""
    from spark_jobs.audit import job, snapshot

    if options.as_of is not None:
        audited = snapshot.of_release(settings, options.as_of)
    elif snapshot.has_run(settings):
        owned = (*tables.SILVER_OWNED, *tables.GOLD)
        with ready(settings, options, Wants((REDRIVE,)), lambda: leases.hold(settings, owned, owner="audit, which notes versions")):
            audited = snapshot.of_now(settings)
    else:
        log.info("audit: nothing to compare, silver has taken no batch yet")
        return
    job.run(warehouse_session(settings, "ledger audit", works_on_all=True), settings, audited, options.run_id)


def run_explain(settings: Settings, options: argparse.Namespace) -> None:
    """Print the silver rows, Kafka records, versions and runs that made a cell of gold. Starts no JVM, writes nothing."""
    from spark_jobs.explain import job

    job.run(settings, options.table, options.where, options.as_of)


def run_export(settings: Settings, options: argparse.Namespace) -> None:
    """Rows of a release, or of a table in Postgres, as Parquet in date folders of a folder or an S3 bucket. Holds no table's lease."""
    from spark_jobs.export import job, request
    from spark_jobs.releases import retention

    now = datetime.now(UTC)
    asked = request.check(options, settings, now)
    release = None if asked.is_postgres else retention.find_asked(settings, asked.release, now=now)
    with leases.hold_names(settings, [asked.lease], owner=f"export to {asked.folder}", wait_seconds=0):
        spark = session.start_session(settings, "ledger export", session.s3_conf(settings) if asked.bucket else {})
        job.run(spark, settings, asked, uuid.uuid4().hex[:12], release)  # another name for every try of a task
