"""The live application: the intake and the live queries in one process, until asked to stop."""

import logging
import time
from dataclasses import dataclass

from pyspark.sql import SparkSession

from spark_jobs.live import fingerprint, places, running, upgrade
from spark_jobs.live.publications import PUBLICATIONS
from spark_jobs.live.publishing import Publishing
from spark_jobs.live.queries import switched_on
from spark_jobs.runtime.errors import LedgerError, line_with_cause
from spark_jobs.runtime.identity import identify
from spark_jobs.runtime.session import jvm_of
from spark_jobs.runtime.settings import Settings
from spark_jobs.service import desired_state, run_loop
from spark_jobs.service.heartbeat import RUNNING, STOPPING, HeartbeatFile
from spark_jobs.service.services import LIVE as LIVE_SERVICE

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """What an application is started for. `obeyed`: the number of the last request that it need not heed (service/desired_state.py)."""

    available_now: bool
    obeyed: str


def refuse(spark: SparkSession, settings: Settings) -> None:
    """Raise SettingsError for a query in SQL that cannot be one, a state that is not of the present code, look-ups without Postgres."""
    if settings.live_lookups:
        settings.postgres()
    fingerprint.check(upgrade.fingerprints(spark, settings), upgrade.recorded(settings, passes_over_lost=True))


def run(spark: SparkSession, settings: Settings, start: Start, heart: HeartbeatFile, maintenance: run_loop.SideWork) -> None:
    """Run the live queries until asked to stop (SIGTERM, SIGINT, `run live_control stop`), or until all that is there now was taken.

    The caller holds the leases of the live tables, which exist, and has called `refuse`. Raises LedgerError, with `available_now`, when
    a query failed.
    """
    heart.beat(jvm=identify(jvm_of(spark)))
    stages = running.stages(spark, settings, switched_on(settings), available_now=start.available_now)
    if settings.live_topics:
        stages.append(
            [Publishing(settings, of, available_now=start.available_now) for of in PUBLICATIONS if places.is_on(settings, of.table)]
        )
    every = [query for stage in stages for query in stage]

    def report(is_stopping: bool) -> None:
        status = {query.name: query.status(time.monotonic()) for query in every}
        heart.beat(state=STOPPING if is_stopping else RUNNING, topics=status)
        if not is_stopping:
            maintenance.serve()

    try:
        for stage in stages if start.available_now else [every]:
            if not run_loop.run(stage, report, lambda: desired_state.must_end(settings, LIVE_SERVICE, start.obeyed)):
                log.info("live stopped on request")
                return
            if failed := [query for query in stage if query.error]:
                error = failed[0].error or LedgerError()
                raise LedgerError(f"live {failed[0].name} stopped: {line_with_cause(error)}") from error
    finally:
        maintenance.finish()
    log.info("live stopped: all that was there is taken")
