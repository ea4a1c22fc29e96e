"""Is there anything to do? Asked before the first JVM of a run is started."""

import logging

from spark_jobs.settings import read_settings

log = logging.getLogger(__name__)


def has_new_batches(force: bool) -> bool:
    """True when bronze holds batches that the newest release lacks, or when the run is forced.

    Reads a few Delta log entries without Spark, within a second.
    """
    if force:
        log.info("Forced: every step runs, new batches or not.")
        return True
    from spark_jobs.progress import has_unreleased_batches  # not needed to parse a DAG

    found = has_unreleased_batches(read_settings())
    log.info("Bronze holds batches that the newest release lacks." if found else "The newest release holds every bronze batch.")
    return found
