"""Are silver and gold what bronze says? Once a day, computed a second time by other code, and compared row by row.

**What it does.** Its one task computes every table of silver and gold once more from bronze, by plain batch SQL that shares nothing with
the jobs but the parsing of JSON values and the recorded row rules, and compares both ways: rows that are missing, rows that are
unexpected. Its log has a line for each table: rows, differences, seconds; and up to ten rows of one that differs, key first, personal
values left out. The page *Quality* shows the newest result; `control.audits` keeps all of them. No other table is written.

**Beside the live flow.** It waits until no job writes silver or gold, notes the versions of their tables, and reads just these from
then on: the pipeline goes on meanwhile. It is one more Spark application of 1 GB for as long as it runs.

**Trigger it by hand** at any time: after a backfill, after a repair, or with `as_of` for the tables of a release that is still offered.

**When it fails**, its last line says why:

- exit code 4: *found rows that are not what bronze says*: the tables and the first row are named. Somebody or something changed a table
  past the jobs, a setting (`LEDGER_LARGE_CREDIT`, `LEDGER_ALLOWED_LATENESS_SECONDS`) was changed and older rows were not made anew, or a
  job is wrong. Run the DAG `backfill_days` over the times of these rows, and audit again: what comes back is a fault of the code.
- exit code 1, *stopped halfway*: a job died between two tables. The next run of `medallion` ends it.
- exit code 2: there is no such release, or it has expired. 5: another process wrote silver or gold for 10 minutes.

Exit codes 2 and 4 are not retried, and an audit that failed is told to the webhook and the mail addresses of the settings. It is on from
the start. **Switch it off** at will: nothing depends on it.
"""

from datetime import timedelta

from airflow.sdk import CronTriggerTimetable, Param, dag

from include.orchestration.alerts import alerts
from include.orchestration.defaults import DEFAULT_ARGS, NO_BACKFILL, START
from include.orchestration.jobs import spark_job


@dag(
    dag_id="audit",
    schedule=CronTriggerTimetable("47 4 * * *", timezone="UTC", run_immediately=timedelta(0)),
    start_date=START,
    catchup=False,
    max_active_runs=1,
    allowed_run_types=NO_BACKFILL,
    is_paused_upon_creation=False,  # it only looks
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["silver", "gold", "quality"],
    params={
        "as_of": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Release",
            description="Empty: the tables as they are now. Otherwise the number of a release that readers are still offered.",
        ),
    },
)
def audit() -> None:
    """One task."""
    spark_job(
        "audit",
        "{{ '--as-of=' ~ params.as_of if params.as_of is not none else '' }}",
        task_id="compare_with_bronze",
        execution_timeout=timedelta(hours=12),
        on_failure_callback=alerts(
            "the audit failed",
            "if rows differ: run the DAG backfill_days over their times and audit again; see the page Quality, and include/docs/audit.md.",
        ),
        doc_md="Computes silver and gold a second time from bronze and compares them row by row; fails where they differ.",
    )


audit()
