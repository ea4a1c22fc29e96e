"""The jobs of the live queries and of their districts: what must hold before each, and what it calls. Options are in arguments.py."""

import argparse
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from spark_jobs.commands.preconditions import LIVE_RESET, Wants, ready
from spark_jobs.control import districts
from spark_jobs.lake import leases, tables
from spark_jobs.releases import retention
from spark_jobs.runtime.errors import LeaseHeld, SettingsError
from spark_jobs.runtime.session import live_conf, start_session, state_conf
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.times import parse_time
from spark_jobs.service import desired_state, heartbeat
from spark_jobs.service.ownership import leasing, owning
from spark_jobs.service.services import LIVE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("ledger")

_OURS = ("run upgrade", "run savepoint create", "run savepoint restore")  # who asks for a stop that is over when the job is


@contextmanager
def _stopped(settings: Settings, options: argparse.Namespace, job: str) -> Iterator[None]:
    """The leases of the live tables, with the application stopped after its batches; it may start again afterwards, if it might before.

    What such a job asked for and never took back, because it was killed, counts as not asked for.
    """
    from spark_jobs.live.queries import BY_NAME, INTAKE

    before = desired_state.read_wanted(settings, LIVE)
    might_run = before.state == desired_state.RUN or before.who in _OURS
    try:
        if any(beat.is_alive() for beat in heartbeat.read(settings, LIVE)):
            desired_state.run(settings, LIVE, "stop", f"run {job}", "", wait_seconds=300)
        lock = partial(leasing, settings, LIVE, tables.LIVE, job, (INTAKE, *BY_NAME))
        with ready(settings, options, Wants((LIVE_RESET,), tables=tables.LIVE), lock):
            yield
    finally:
        asked = desired_state.read_wanted(settings, LIVE)
        if might_run and asked.state == desired_state.STOPPED and asked.who in _OURS:
            desired_state.ask(settings, LIVE, desired_state.RUN, f"run {job}", "")
            log.info("live processing may run again: the DAG live_queries starts it, or run live")


def run_upgrade(settings: Settings, options: argparse.Namespace) -> None:
    """New code for the live queries: keep their states (last-state, savepoint), or rebuild tables and states (stateless)."""
    from spark_jobs.live import fingerprint, places, upgrade

    present = upgrade.fingerprints(start_session(settings, "ledger upgrade", state_conf()), settings)
    if options.mode != places.STATELESS:
        recorded = upgrade.recorded(settings)
        fingerprint.check(present, recorded)
        log.info("the states of these live queries can be kept: %s", ", ".join(recorded) or "none has run yet")
    with _stopped(settings, options, "upgrade"):
        if options.mode == places.STATELESS:
            upgrade.stateless(settings, present, options.query)
        else:
            upgrade.keep(settings, options.mode, datetime.now(UTC))


def run_savepoint(settings: Settings, options: argparse.Namespace) -> None:
    """Keep the states of the live queries with the versions of their tables, list the savepoints, or restore one."""
    from spark_jobs.live import fingerprint, places, savepoints, upgrade

    now = datetime.now(UTC)
    if options.action == "list":
        for each in places.read_savepoints(settings):
            sys.stdout.write(f"{savepoints.line(settings, each)}\n")
    elif options.action == "create":
        name = options.savepoint or f"{now:%Y%m%dT%H%M%SZ}"
        savepoints.check_name(settings, name)  # before the application is stopped
        with _stopped(settings, options, "savepoint create"):
            savepoints.create(settings, name, now)
    else:
        found = savepoints.find(settings, options.savepoint)
        present = upgrade.fingerprints(start_session(settings, "ledger savepoint", state_conf()), settings)
        fingerprint.check(present, found.fingerprints, f"savepoint {found.name}")
        with _stopped(settings, options, "savepoint restore"):
            savepoints.restore(settings, found, present)


def run_live(settings: Settings, options: argparse.Namespace) -> None:
    """Bronze to the live tables, by watermarked streams. Another live application is refused at once.

    Tables in SQL are created once their SELECT fits: until then their header may still change.
    """
    from spark_jobs.live import application, checkpoints
    from spark_jobs.live.queries import BY_NAME, INTAKE
    from spark_jobs.maintenance.requests import Maintenance

    obeyed = desired_state.read_wanted(settings, LIVE).number if options.obeying is None else options.obeying
    in_python = [table for table in tables.LIVE if table not in tables.LIVE_IN_SQL]
    wants = Wants(
        (LIVE_RESET,),
        tables=(*tables.BRONZE, tables.SILVER_ACCOUNTS, *in_python, *tables.CONTROL),
        checks=[checkpoints.refuse_ahead],
        topics=["transactions", "customers"],
        retained=in_python,
    )
    lock = partial(owning, settings, LIVE, tables.LIVE, LIVE.command, (INTAKE, *BY_NAME), options.run_id)
    with ready(settings, options, wants, lock) as heart:
        spark = start_session(settings, "ledger live", live_conf())
        application.refuse(spark, settings)
        tables.ensure_tables(settings, tables.LIVE_IN_SQL)
        retention.bring_up_to_date(settings, tables.LIVE_IN_SQL)
        start = application.Start(options.available_now, obeyed)
        application.run(spark, settings, start, heart, Maintenance(spark, settings, tables.LIVE))


def run_districts(settings: Settings, options: argparse.Namespace) -> None:
    """Replace the districts by those of a CSV file. Starts no JVM; live queries that run use them from their next batch on."""
    given = districts.read_file(options.file)
    with ready(settings, options, Wants(tables=(tables.DISTRICTS,))):
        version, is_new = districts.replace(settings, given)
    log.info("control.districts: %d districts, %s %d", len(given), "version" if is_new else "nothing new, still version", version)


def run_state(settings: Settings, options: argparse.Namespace) -> None:
    """What the live queries hold, read from their checkpoints while they run: a list, the rows of a key, or all of a query as Parquet."""
    from spark_jobs.live import state_job

    def session() -> "SparkSession":
        return start_session(settings, "ledger state")

    match options.action:
        case "list":
            state_job.list_all(settings, session)
        case "show":
            state_job.show(settings, session, options.query, options.where)
        case _:
            state_job.export(settings, session, options.query, options.to)


def run_live_control(settings: Settings, options: argparse.Namespace) -> None:
    """Stop or restart the application of the live queries gracefully, or say how it does. Starts no JVM."""
    desired_state.run(settings, LIVE, options.action, options.who, options.why, options.wait)


def run_live_alerts(settings: Settings, options: argparse.Namespace) -> None:
    """List the live alerts, or silence those of an account: they are still written, and not published. Starts no JVM."""
    from spark_jobs.control import alert_silences
    from spark_jobs.live import alert_list

    now = datetime.now(UTC)
    if options.action == "list":
        alert_list.print_all(settings, options.account, now)
        return
    is_silenced = options.action == "silence"
    until = parse_time(options.until, "--until") if is_silenced and options.until else None
    if until and until <= now:
        raise SettingsError(f"--until: found {options.until}, expected a time that is yet to come")
    alert_silences.record(settings, options.account, options.who, options.why, now, until=until, is_silenced=is_silenced)
    log.info("alerts of %s raised from now on are %s", options.account, "silenced" if is_silenced else "published again")


def run_example(settings: Settings, options: argparse.Namespace) -> None:
    """The smallest stream: rows at a rate, summed in windows of 5 seconds. Where it runs already, only its rate changes."""
    from spark_jobs.live import example

    example.set_rate(settings, options.rate)
    try:
        with leases.hold_names(settings, [example.LEASE], owner="run example", wait_seconds=0):
            example.run(start_session(settings, "ledger example"), settings, options.seconds)
    except LeaseHeld:
        log.info("the example that runs makes %d rows a second from now on", options.rate)
