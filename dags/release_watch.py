"""Is the release that readers see up to date? Checked every 15 minutes.

Its one task fails if bronze has held rows that the newest release lacks for longer than `LEDGER_RELEASE_STALE_MINUTES` (60).
It sends one alert for each stale release, however often it fails. It writes no table and starts no JVM.
Switch it off where no release is expected, such as on a machine that only collects bronze.

**When it fails**, its line names the release, how long rows have waited, and the reason:

- a decision: a gate is closed. Answer under *Required Actions*, or trigger `quality_decision`.
- no known reason: see the last runs of `medallion`. Is that DAG switched on? Which task failed?

Rows that have just arrived are no reason to fail: `medallion` releases them within minutes, so the newest release must be as old as the
limit too. The DAG is on from the start; you may trigger it at any time (no parameter).
"""

from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, task

from include.orchestration.alerts import alerts, once_per_release
from include.orchestration.defaults import ON_SCHEDULE, about
from include.orchestration.progress import refuse_stale_release
from include.orchestration.timetable import AtTimes


@dag(
    dag_id="release_watch",
    schedule=AtTimes("*/15 * * * *", "every 15 minutes"),
    **about(__doc__),
    tags=["release", "quality", "alert"],
    **ON_SCHEDULE,
)
def release_watch() -> None:
    """One task."""
    alerted = alerts("the release is stale", "see the last runs of the DAG medallion, and whether a gate waits for a decision.")

    @task(
        on_failure_callback=[once_per_release(alert) for alert in alerted],
        execution_timeout=timedelta(minutes=4),
        doc_md="Fails when the newest release lacks rows that bronze has held for too long.",
    )
    def check_release() -> None:
        refuse_stale_release(datetime.now(UTC))

    check_release()


release_watch()
