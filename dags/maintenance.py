"""Maintenance: joins small files and removes what has expired, once a day.

It changes no row of bronze, silver or gold; readers, streams and gates notice nothing.
Trigger it by hand after a large backfill or import. It has no parameter and is never harmful.
If you switch it off, files grow in number and commits stay for ever.

**When it fails**, its last line names the tables and the reasons. The other tables are done; the next run does the rest. It is retried
twice with growing pauses.

- *is being written by ...*: another job held the table for half an hour. Does it hang?
- *found no answer*: the ingestion runs and does not answer: see `bronze_ingestion`.
- *files ... to join*, *rows in files*: the table is damaged, or another process writes it without its lease.

**What it does.** The task `tend_tables` takes the tables one after the other, holds each (mostly for less than a second), and prints a
line for each: the number of files before and after, and what was removed. It starts a JVM only if there is something to join. It also
removes what expires with the releases (`LEDGER_RELEASE_DAYS` and a day): verdicts with their reports, releases, audits.

The task `clean_airflow` removes runs older than 30 days (or `LEDGER_RELEASE_DAYS` and a day, if that is longer) from Airflow's
database, and the logs of their tasks. Runs that have not ended stay. By hand: `python -m include.airflow_cleanup`.

**Bronze belongs to the ingestion.** While the ingestion runs, the task sends it a request, and the ingestion does the work beside its
streams. The task waits at most half an hour for the answer. If no ingestion runs, the task does the work.

**What it keeps**: every version that an available release names, and what silver has not taken of bronze, or gold of silver, however
long that takes. The table's line then names the job it waits for. More: `include/docs/maintenance.md`.
"""

import sys
from datetime import timedelta

from airflow.sdk import dag

from include.orchestration.defaults import ON_SCHEDULE, about
from include.orchestration.jobs import WITHOUT_ENGINE, Job, job
from include.orchestration.timetable import AtTimes


@dag(
    dag_id="maintenance",
    schedule=AtTimes("17 3 * * *", "daily at 03:17 UTC"),
    **about(__doc__),
    tags=["bronze", "silver", "gold", "files"],
    **ON_SCHEDULE,
)
def maintenance() -> None:
    """Two tasks that do not wait for each other."""
    job(
        "maintenance",
        WITHOUT_ENGINE,
        task_id="tend_tables",
        execution_timeout=timedelta(hours=6),
        doc_md="Joins small files and removes expired ones, table by table. For bronze it sends a request to the ingestion.",
    )
    Job(
        task_id="clean_airflow",
        command=(sys.executable, "-m"),
        arguments=["include.airflow_cleanup"],
        execution_timeout=timedelta(hours=1),
        doc_md="Removes old runs from Airflow's database, and the logs of their tasks.",
    )


maintenance()
