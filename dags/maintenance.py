"""Upkeep, once a day: small files joined; files, commits and records removed that nobody needs; Airflow's own records too.

**What it does.** The task `tend_tables` goes through the tables one after the other, holds each for as long as that takes (mostly less
than a second), and prints a line for each: how many files there were and are, and what was removed. No row of bronze, silver or gold
changes, no reader and no stream notices, no gate judges anew. A JVM is started only when there is something to join.

It also removes what has expired with the releases (LEDGER_RELEASE_DAYS and a day): verdicts with their reports, releases, audits. The
newest verdicts and those of the releases that readers are offered stay. The task `clean_airflow` removes runs older than 30 days (or
LEDGER_RELEASE_DAYS and a day, if that is longer) from Airflow's database, and the logs of their tasks.
Runs that have not ended stay. By hand: `python -m include.airflow_cleanup`.

**Bronze belongs to the ingestion.** While that runs, the task asks it, and the ingestion does the work beside its streams; the task
waits for its answer, at most half an hour. When nobody ingests, the task does it itself.

**What it spares**: every version that a release names which readers are offered, and what silver has not taken of bronze, or gold of
silver, however long that takes. The task's line then says who is waited for.

**When it fails**, its last line names the tables and why; the others were tended. Nothing is half done: the next run does what is
missing. It is retried twice with growing pauses.

- *is being written by ...*: another job held the table for half an hour: does it hang?
- *found no answer*: the ingestion runs and does not answer: look at `bronze_ingestion`.
- *files ... to join*, *rows in files*: the table is damaged, or somebody writes it without its lease.

It is on from the start. **Trigger it by hand** after a large backfill, or when `waits` has ended, with nothing to set; all at once is
never harmful. **Switch it off** at will: files then grow in number, and commits are kept for ever.
"""

import sys
from datetime import timedelta

from airflow.sdk import CronTriggerTimetable, dag

from include.orchestration.defaults import DEFAULT_ARGS, NO_BACKFILL, START
from include.orchestration.jobs import Job, job


@dag(
    dag_id="maintenance",
    schedule=CronTriggerTimetable("17 3 * * *", timezone="UTC", run_immediately=timedelta(0)),
    start_date=START,
    catchup=False,
    max_active_runs=1,
    allowed_run_types=NO_BACKFILL,
    is_paused_upon_creation=False,  # files would grow in number unseen
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["bronze", "silver", "gold", "files"],
)
def maintenance() -> None:
    """Two tasks that do not wait for each other."""
    job(
        "maintenance",
        task_id="tend_tables",
        execution_timeout=timedelta(hours=6),
        doc_md="Joins small files and removes what nobody needs, table by table; asks the ingestion for bronze.",
    )
    Job(
        task_id="clean_airflow",
        command=(sys.executable, "-m"),
        arguments=["include.airflow_cleanup"],
        execution_timeout=timedelta(hours=1),
        doc_md="Removes old runs from Airflow's database, and the logs of their tasks.",
    )


maintenance()
