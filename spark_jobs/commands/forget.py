"""The job that erases a person: what must hold before it, its steps, and the proof."""

import argparse
import logging
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from spark_jobs.commands.preconditions import BACKFILL, LIVE_RESET, REDRIVE, ROLL_BACK, SILVER, Wants, ready, warehouse_session
from spark_jobs.control import erasures
from spark_jobs.control.erasures import Plan
from spark_jobs.lake import file_search, leases, purge, tables
from spark_jobs.live import places
from spark_jobs.releases import withdrawal
from spark_jobs.runtime import progress, scratch, storage
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings
from spark_jobs.service import heartbeat
from spark_jobs.service.services import INGESTION, LIVE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("ledger")

_LEASED = (*tables.BRONZE, *tables.SILVER_OWNED, *tables.GOLD, *tables.LIVE)
_TABLES = (*tables.BRONZE, *tables.SILVER_OWNED, *tables.GOLD, *tables.CONTROL)
_WITH_ID = ("bronze/customers", "silver/customers_quarantine")  # the key of a customer's record stays: it is part of its coordinates
_WITH_KEYS = ("bronze/transactions", "silver/transactions_quarantine")  # so does the key of a transaction
_MOST_IDS = 200  # of transactions that are searched for
_LISTED = 10


def run_forget(settings: Settings, options: argparse.Namespace) -> None:
    """Erase a person from all tables, releases, reports and states, and search every file for what is left."""
    _check(settings, options.customer)
    if options.dry_run:
        _tell(settings, options)
        return
    wants = Wants((ROLL_BACK, BACKFILL, REDRIVE, SILVER, LIVE_RESET), tables=_TABLES)
    with ready(settings, options, wants, _LEASED):
        spark = warehouse_session(settings, "ledger forget")
        plan = erasures.unfinished(settings) or _begin(spark, settings, options)
        if not plan.is_erased:
            _erase(spark, settings, plan, options.run_id)
        found = _prove(spark, settings, plan)
        if not found:
            erasures.file_of(settings).unlink()
    kept = ", ".join(f"{topic} ({len(of_topic)} records)" for topic, of_topic in plan.places.items() if of_topic)
    log.info("not reached: Kafka, until its topics drop what control.erasures lists: %s; exports, backups and logs elsewhere", kept)
    if found:
        listed = ", ".join(str(file) for file in found[:_LISTED])
        raise LedgerError(
            f"the person is erased from all tables, and values are left in {len(found)} files: found {listed}, expected none: "
            "remove them by hand, and run the same command: it only searches once more"
        )


def _check(settings: Settings, customer: str) -> None:
    """Refuse at once what cannot work: another erasure that is unfinished, or an application that writes meanwhile."""
    if (plan := erasures.unfinished(settings)) and plan.customer != customer:
        raise LedgerError(
            f"the erasure of another customer, by {plan.who}, stopped halfway: finish it first: run forget with its --customer"
        )
    for service in (INGESTION, LIVE):
        if any(beat.is_alive() for beat in heartbeat.read(settings, service)):
            raise LedgerError(f"{service.name} runs, expected it to be stopped: python -m spark_jobs.run {service.control} stop")


def _begin(spark: "SparkSession", settings: Settings, options: argparse.Namespace) -> Plan:
    from spark_jobs.reprocessing import erasure

    withdrawal.refuse_unreleased(settings)
    plan = erasure.make_plan(spark, settings, options.run_id, options.customer, options.who, options.why)
    if not any(plan.places.values()):
        raise SettingsError("--customer: found no record in bronze that holds this customer, expected one: nothing to erase")
    erasures.save(settings, plan)
    log.info("records to empty: %s", erasure.count_by_topic(plan))
    kill_point("after the plan of an erasure")
    return plan


def _tell(settings: Settings, options: argparse.Namespace) -> None:
    from spark_jobs.reprocessing import erasure

    spark = warehouse_session(settings, "ledger forget, dry run")
    plan = erasure.make_plan(spark, settings, options.run_id, options.customer, options.who, options.why)
    sys.stdout.write(f"records that it would empty: {erasure.count_by_topic(plan)}\n")


def _erase(spark: "SparkSession", settings: Settings, plan: Plan, run_id: str) -> None:
    """Everything but the search; may be repeated from the beginning."""
    from spark_jobs.reprocessing import erasure

    erasures.record(settings, plan, datetime.now(UTC))
    with progress.phase("emptying records"):
        erasure.erase(spark, settings, plan, run_id)
    _remove_states(settings)
    number = withdrawal.publish_anew(settings, run_id)
    with progress.phase("removing older files"):
        for table in (*tables.BRONZE, *tables.SILVER_OWNED, *tables.GOLD):  # sealed already: the release names that version
            purge.sweep(settings, table)
        for table in tables.CONTROL:
            with leases.hold(settings, [table], owner="forget"):
                purge.seal(settings, table)
                purge.sweep(settings, table)
    erasures.save_erased(settings, plan)
    log.info("erased; %s", f"release {number} is the only one" if number else "nothing was released before, and nothing is now")


def _remove_states(settings: Settings) -> None:
    """Remove live tables with their states and savepoints, and what backfills staged: all are made again from bronze."""
    from spark_jobs.reprocessing.backfill import FOLDER, FOLDER_OF_END

    if names := [savepoint.name for savepoint in places.read_savepoints(settings)]:
        log.warning("savepoints hold states of all customers and are removed: %s", ", ".join(names))
    folders = [table.path(settings) for table in tables.LIVE]
    folders += [places.root(settings), places.savepoint_folder(settings)]
    folders += [settings.checkpoints / name for name in (FOLDER, FOLDER_OF_END)]
    for folder in folders:
        storage.remove(folder)
    log.info("live tables and their states are removed: run live makes them again from bronze")


def _prove(spark: "SparkSession", settings: Settings, plan: Plan) -> list[Path]:
    """Search every file that the stack writes; reports that hold the person are removed. Returns where something is left."""
    from spark_jobs.reprocessing import erasure

    others = erasure.others_values(spark, settings, plan)
    values = [value for value in plan.values if value not in others]
    ids = [each for each in plan.ids if each not in others][:_MOST_IDS]
    scratch.sweep(settings)  # what is there after that goes with the processes that live, as this one
    files = file_search.files_below({settings.home, settings.warehouse, settings.checkpoints, settings.quality})
    unsearched = (erasures.file_of(settings), scratch.root_of(settings), settings.home / "stack/kafka")
    files = [file for file in files if not any(storage.is_below(file, each) for each in unsearched)]
    searches = [(values, files), ([plan.customer], _beside(settings, files, _WITH_ID)), (ids, _beside(settings, files, _WITH_KEYS))]
    with progress.phase("searching files"):
        made = [(search := file_search.Search(wanted), search.find(among)) for wanted, among in searches]
    found = {file for _, places in made for file in places}
    reports = {file for file in found if storage.is_below(file, settings.quality)}
    for report in reports:
        report.unlink()
    left = sorted(found - reports)
    says = (
        f"searched {made[0][0].files} files ({made[0][0].bytes} bytes) for {len(values)} values, the id and {len(ids)} of "
        f"{len(plan.ids)} ids of transactions; {len(others)} are also others'; {len(reports)} reports removed; left in {len(left)} files"
    )
    log.info("%s", says)
    erasures.record_found(settings, plan, says, datetime.now(UTC))
    return left


def _beside(settings: Settings, files: Sequence[Path], but: Sequence[str]) -> list[Path]:
    return [file for file in files if not any(storage.is_below(file, settings.warehouse / name) for name in but)]
