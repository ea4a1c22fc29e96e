"""The jobs that write bronze or steer who writes it: what must hold before each, and what it calls. Their options are in arguments.py."""

import argparse
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from spark_jobs.commands.preconditions import Wants, ready
from spark_jobs.lake import tables
from spark_jobs.runtime.errors import LeaseHeld
from spark_jobs.runtime.session import bronze_conf, start_session
from spark_jobs.runtime.settings import Settings
from spark_jobs.service import desired_state
from spark_jobs.service.ownership import leasing, owning
from spark_jobs.service.services import INGESTION

log = logging.getLogger("ledger")


def run_bronze(settings: Settings, options: argparse.Namespace) -> None:
    """Kafka to bronze. Another bronze application on the same tables is refused at once."""
    from spark_jobs.bronze import ingest, resume_state
    from spark_jobs.kafka import offsets
    from spark_jobs.maintenance.requests import Maintenance

    obeyed = desired_state.read_wanted(settings, INGESTION).number if options.obeying is None else options.obeying
    offsets.check_start(options.starting_offsets)
    if options.available_now:
        resume_state.make_topics(settings, options.only)  # in a service, each stream waits for the broker by itself
    settings.broker()
    chosen = [table for table in tables.BRONZE if table.topic in options.only]
    name = INGESTION.application(options.only)
    lock = partial(owning, settings, INGESTION, chosen, name, options.only, options.run_id)
    with ready(settings, options, _wants(chosen), lock) as heart:
        spark = start_session(settings, "ledger bronze", bronze_conf())
        start = ingest.Start(tuple(chosen), options.available_now, options.starting_offsets, obeyed)
        ingest.run(spark, settings, start, heart, Maintenance(spark, settings, start.tables))


def run_ingestion(settings: Settings, options: argparse.Namespace) -> None:
    """Stop or restart the bronze application gracefully, or log its status. Starts no JVM."""
    desired_state.run(settings, INGESTION, options.action, options.who, options.why, options.wait)


def run_accept(settings: Settings, options: argparse.Namespace) -> None:
    """Accept that Kafka has lost offsets of a topic, that it was created again, or that one record is given up. Starts no JVM."""
    from spark_jobs.bronze import acceptance

    acceptance.check_place(options.partition, options.offset)
    settings.broker()
    table = next(table for table in tables.BRONZE if table.name == f"bronze.{options.topic}")
    if options.offset is None:
        acceptance.run(settings, table, options.topic, options.who, options.why)
    else:
        acceptance.give_up(settings, table, options.partition, options.offset, options.who, options.why)


def run_replay(settings: Settings, options: argparse.Namespace) -> None:
    """Fetch again from Kafka what bronze lacks between two broker times. Starts no JVM; ingestion must not run meanwhile."""
    from spark_jobs.bronze import replay
    from spark_jobs.kafka import offsets

    begin = offsets.parse_time(options.begin, "--from")
    end = offsets.parse_time(options.end, "--to") if options.end else None
    replay.check_times(begin, end)
    settings.broker()
    chosen = [table for table in tables.BRONZE if table.topic in options.only]
    with _stopped(settings, options, chosen):
        replay.run(settings, chosen, begin, end)


def run_import(settings: Settings, options: argparse.Namespace) -> None:
    """History from files or a Postgres table to bronze, once however often it is run. Starts no JVM; ingestion must not run meanwhile."""
    from spark_jobs.bronze.imports import job

    source = job.Source(options.source, options.file, options.postgres, options.order_by)
    job.check_source(source)
    table = next(table for table in tables.BRONZE if table.name == f"bronze.{options.topic}")
    with _stopped(settings, options, [table]):
        job.run(settings, table, source)


@contextmanager
def _stopped(settings: Settings, options: argparse.Namespace, bronze: Sequence[tables.Table]) -> Iterator[None]:
    """The leases of some bronze tables, at once or not at all: no ingestion writes them. The tables exist."""
    job = options.name
    try:
        with ready(settings, options, _wants(bronze), partial(leasing, settings, INGESTION, bronze, job, [each.topic for each in bronze])):
            yield
    except LeaseHeld as error:
        raise LeaseHeld(
            f"{error}; if it is the ingestion: run ingestion stop, or trigger the DAG bronze_control with stop, "
            f"run {job} again, then the same with restart: it continues where it stopped"
        ) from None


def _wants(bronze: Sequence[tables.Table]) -> Wants:
    return Wants(tables=(*bronze, *tables.CONTROL), retained=bronze)
