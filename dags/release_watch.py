"""Is the release that readers see up to date? Looked at every five minutes.

**What it does.** Its one task fails when bronze has held rows for longer than `LEDGER_RELEASE_STALE_MINUTES` (60) that the newest
release lacks, and that release is as old. Rows that have just come are no reason: `medallion` brings them within minutes. No JVM is
started, no table is written.

**It tells** the webhook and the mail addresses of the settings (`LEDGER_ALERT_WEBHOOK`, `LEDGER_ALERT_MAIL`), once for each release,
however often it fails meanwhile. Without these settings the failed run is all there is to see.

**When it fails**, its line names the release, for how long rows have waited, and what the pipeline waits for:

- a decision: a gate is closed. Answer under *Required Actions*, or trigger `quality_decision`.
- nothing that is known: look at the last runs of `medallion`. Is the DAG switched on? Which task failed?

It is on from the start and never changes anything. **Switch it off** where nobody expects a release, such as on a machine that only
collects bronze. Trigger it by hand at any time (no parameter).
"""

from datetime import UTC, datetime, timedelta

from airflow.sdk import CronTriggerTimetable, dag, task

from include.orchestration.alerts import alerts, once_per_release
from include.orchestration.defaults import DEFAULT_ARGS, NO_BACKFILL, START
from include.orchestration.progress import refuse_stale_release


@dag(
    dag_id="release_watch",
    schedule=CronTriggerTimetable("*/5 * * * *", timezone="UTC", run_immediately=timedelta(0)),
    start_date=START,
    catchup=False,
    max_active_runs=1,
    allowed_run_types=NO_BACKFILL,
    is_paused_upon_creation=False,  # it only looks
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["release", "quality", "alert"],
)
def release_watch() -> None:
    """One task."""
    told = alerts("the release is stale", "see the last runs of the DAG medallion, and whether a gate waits for a decision.")

    @task(
        on_failure_callback=[once_per_release(alert) for alert in told],
        execution_timeout=timedelta(minutes=4),
        doc_md="Fails when the newest release lacks rows that bronze has held for too long.",
    )
    def check_release() -> None:
        refuse_stale_release(datetime.now(UTC))

    check_release()


release_watch()
