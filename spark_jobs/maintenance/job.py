"""The job behind `run maintenance`: maintains the tables one after the other, each under its lease.

While the ingestion runs, it owns bronze. Then this job sends it a request and waits. It never takes a table from its owner.
"""

import logging
import time
from collections.abc import Callable, Sequence
from functools import cache

from pyspark.sql import SparkSession

from spark_jobs.lake import leases
from spark_jobs.lake.layout import SMALL_PAGES
from spark_jobs.lake.tables import BRONZE, GOLD, LAYERS, LIVE, QUALITY_RESULTS, Table
from spark_jobs.lake.topics import EVENTS
from spark_jobs.maintenance import expiry, requests, table_maintenance
from spark_jobs.maintenance.table_maintenance import Report
from spark_jobs.releases import catalogues, retention, rollback
from spark_jobs.runtime import progress
from spark_jobs.runtime.errors import LeaseHeld, LedgerError
from spark_jobs.runtime.settings import Settings
from spark_jobs.silver import id_index

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
# How silver writes the tables in which it looks up rows by their place, and gold all of its own.
_WRITING = {
    **dict.fromkeys(GOLD, SMALL_PAGES),
    **{topic.silver: id_index.SESSION for topic in EVENTS},
    **{topic.ids: id_index.SESSION | id_index.LARGE_PAGES for topic in EVENTS},
}


def run(settings: Settings, tables: Sequence[Table], start: Callable[[], SparkSession], who: str, wait_seconds: float) -> list[Report]:
    """Maintain these tables, as far as they exist, and say of each what was done; `start` makes a session, if one is needed.

    Waits at most `wait_seconds` for the lease of a table. Raises LedgerError that names every table whose maintenance failed,
    after all others were maintained.
    """
    session = cache(start)
    present = [table for table in tables if table.exists(settings)]
    served = [table for table in present if table in (*BRONZE, *LIVE)]
    with progress.phase("tables of running applications"):
        reports = _maintain_served(settings, served, session, who, wait_seconds)
    with progress.phase("", len(present), "tables") as phase:
        for table in present:
            if table not in served:
                phase.reach(len(reports), table.name)
                reports.append(_maintain(settings, table, session, wait_seconds))
                log.info("%s", reports[-1])
    if QUALITY_RESULTS in tables:
        expiry.remove_expired_reports(settings, table_maintenance.utc_now())
        catalogues.bring_up_to_date(settings)
        expiry.remove_leftovers(settings, table_maintenance.utc_now())
    if failed := [report for report in reports if report.error]:
        raise LedgerError(f"maintenance of {len(failed)} of {len(reports)} tables failed: {'; '.join(map(str, failed))}")
    return reports


def _maintain(settings: Settings, table: Table, session: Callable[[], SparkSession], wait_seconds: float) -> Report:
    try:
        if table_maintenance.plan(settings, table):
            session()  # now: a JVM takes long to start, and others may want the table meanwhile
        with rollback.hold(settings, [table], owner="maintenance", wait_seconds=wait_seconds):
            retention.bring_up_to_date(settings, [table])
            if table.layer not in LAYERS:
                expiry.remove_rows(settings, table, table_maintenance.utc_now())
            return table_maintenance.maintain(settings, table, session, table_maintenance.utc_now(), _WRITING.get(table, {}))
    except LeaseHeld as error:
        return Report(table.name, error=str(error))
    except Exception as error:
        log.info("where maintenance failed:", exc_info=True)
        return Report.of_failure(table, error)


def _maintain_served(
    settings: Settings, tables: Sequence[Table], session: Callable[[], SparkSession], who: str, wait_seconds: float
) -> list[Report]:
    """What nobody holds is maintained here; for the rest the application that writes it is asked. What comes free meanwhile is taken."""
    deadline = time.monotonic() + wait_seconds
    reports: dict[str, Report] = {}
    request: requests.Request | None = None
    try:
        while True:
            if request:
                reports |= requests.answers(settings, request)
            for table in tables:
                if table.name not in reports and _is_free(settings, table):
                    reports[table.name] = _maintain(settings, table, session, wait_seconds=0)
            waiting = [table for table in tables if table.name not in reports]
            if not waiting or time.monotonic() >= deadline:
                break
            if request is None:
                log.info("asking who writes them for the maintenance of %s", ", ".join(table.name for table in waiting))
                request = requests.ask(settings, waiting, who, table_maintenance.utc_now(), wait_seconds)
            time.sleep(_POLL_SECONDS)
        for table in waiting:
            reports[table.name] = _no_answer(settings, table, wait_seconds)
    finally:
        if request:
            requests.withdraw(settings, request)
    for report in reports.values():
        log.info("%s", report)
    return [reports[table.name] for table in tables]


def _is_free(settings: Settings, table: Table) -> bool:
    try:
        with leases.hold(settings, [table], owner="maintenance", wait_seconds=0):
            return True
    except LeaseHeld:
        return False


def _no_answer(settings: Settings, table: Table, wait_seconds: float) -> Report:
    error = f"found no answer within {wait_seconds:.0f} s"
    try:
        with leases.hold(settings, [table], owner="maintenance", wait_seconds=0):
            error = f"{error}, and nobody who holds it: run maintenance again"
    except LeaseHeld as refused:
        error = f"{error}, expected one of who writes it: {refused}"
    return Report(table.name, error=error)
