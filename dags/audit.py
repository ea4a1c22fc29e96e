"""Are silver and gold what bronze says? Checked once a day.

Its one task recomputes every table of silver and gold from bronze and compares the result with the stored rows.
Trigger it by hand at any time: after a backfill, after a repair, or with `as_of` for the tables of an available release.
It writes only `control.audits`. Nothing depends on it, so you may switch it off.

**When it fails**, its last line says why:

- exit code 4, *found rows that are not what bronze says*: the line names the tables and the first row. Either a table was changed
  without the jobs, or a setting (`LEDGER_LARGE_CREDIT`, `LEDGER_ALLOWED_LATENESS_SECONDS`) was changed and older rows were not rebuilt,
  or a job is wrong. Run the DAG `backfill_days` over the times of these rows and audit again. A difference that returns is a fault of
  the code.
- exit code 1, *stopped halfway*: a job died between two tables. The next run of `medallion` repairs them.
- exit code 2: there is no such release, or it has expired.
- exit code 5: another process wrote silver or gold for 10 minutes.

Exit codes 2 and 4 are not retried. A failed audit sends an alert.

**What it compares.** Its SQL shares nothing with the jobs except the parsing of JSON values and the recorded row rules. It finds
missing rows and unexpected rows. Its log has one line for each table (rows, differences, seconds) and up to ten rows that differ, by
key and without personal values. The page *Quality* shows the newest result, `control.audits` all of them.

**While other jobs run**, it waits until no job writes silver or gold, notes the versions of their tables, and reads only these. The
pipeline continues meanwhile. It is one more Spark application of 1 GB, and leaves the engine to the
pipeline. More: `include/docs/audit.md`.
"""

from datetime import timedelta

from airflow.sdk import Param, dag

from include.orchestration.alerts import alerts
from include.orchestration.defaults import ON_SCHEDULE, about
from include.orchestration.jobs import WITHOUT_ENGINE, spark_job
from include.orchestration.timetable import AtTimes


@dag(
    dag_id="audit",
    schedule=AtTimes("47 4 * * *", "daily at 04:47 UTC"),
    **about(__doc__),
    tags=["silver", "gold", "quality"],
    **ON_SCHEDULE,
    params={
        "as_of": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Release",
            description="Empty: the tables as they are now. Otherwise the number of an available release.",
        ),
    },
)
def audit() -> None:
    """One task."""
    spark_job(
        "audit",
        WITHOUT_ENGINE,
        "{{ '--as-of=' ~ params.as_of if params.as_of is not none else '' }}",
        task_id="compare_with_bronze",
        execution_timeout=timedelta(hours=12),
        on_failure_callback=alerts(
            "the audit failed",
            "if rows differ, run the DAG backfill_days over their times and audit again; see the page Quality and include/docs/audit.md.",
        ),
        doc_md="Recomputes silver and gold from bronze and compares them row by row. Fails if they differ.",
    )


audit()
