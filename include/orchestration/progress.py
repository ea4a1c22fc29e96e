"""Is there anything to do? Asked before the first JVM of a run is started."""

import logging
from datetime import UTC, datetime

from spark_jobs.settings import read_settings

log = logging.getLogger(__name__)


def has_new_batches(force: bool) -> bool:
    """True when bronze holds batches that the newest release lacks, when the run is forced, or when bronze is stale.

    Stale: no new rows for longer than LEDGER_FRESHNESS_SECONDS. The run that is let through has bronze's gate record that as a
    failed expectation, once in as many seconds.

    Reads a few Delta log entries without Spark, within a second. Raises GateClosed when a gate is closed on record: nothing
    goes on before that is decided, and a JVM need not start to find out.
    """
    from spark_jobs.gates import is_overdue, refuse_if_closed  # neither is needed to parse a DAG
    from spark_jobs.releases import has_unreleased_batches

    settings = read_settings()
    refuse_if_closed(settings, "bronze", "silver", "gold")
    if force:
        log.info("Forced: every step runs, new batches or not.")
        return True
    if has_unreleased_batches(settings):
        log.info("Bronze holds batches that the newest release lacks.")
        return True
    if is_overdue(settings, datetime.now(UTC)):
        log.warning("Bronze had no new rows for more than %d s: bronze's gate is to record it.", settings.freshness_seconds)
        return True
    log.info("The newest release holds every bronze batch.")
    return False
