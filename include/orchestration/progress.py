"""Is there anything to do? Asked before the first JVM of a run is started."""

import logging

from spark_jobs.settings import read_settings

log = logging.getLogger(__name__)


def has_new_batches(force: bool) -> bool:
    """True when bronze holds batches that the newest release lacks, or when the run is forced.

    Reads a few Delta log entries without Spark, within a second. Raises GateClosed when a gate is closed on record: nothing
    goes on before that is decided, and a JVM need not start to find out.
    """
    from spark_jobs.gates import refuse_if_closed  # neither is needed to parse a DAG
    from spark_jobs.releases import has_unreleased_batches

    settings = read_settings()
    refuse_if_closed(settings, "bronze", "silver", "gold")
    if force:
        log.info("Forced: every step runs, new batches or not.")
        return True
    found = has_unreleased_batches(settings)
    log.info("Bronze holds batches that the newest release lacks." if found else "The newest release holds every bronze batch.")
    return found
