"""Upkeep of all tables, once a day: small files joined, and files and commits removed that nobody needs.

**What it does.** Its one task goes through the tables one after the other, holds each for as long as that takes (mostly less than a
second), and prints a line for each: how many files there were and are, and what was removed. No row changes, no reader and no stream
notices, no gate judges anew. A JVM is started only when there is something to join.

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

from datetime import timedelta

from airflow.sdk import CronTriggerTimetable, dag

from include.orchestration.defaults import DEFAULT_ARGS, NO_BACKFILL, START
from include.orchestration.jobs import job


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
    """One task."""
    job(
        "maintenance",
        task_id="tend_tables",
        execution_timeout=timedelta(hours=6),
        doc_md="Joins small files and removes what nobody needs, table by table; asks the ingestion for bronze.",
    )


maintenance()
