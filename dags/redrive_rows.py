"""Re-drive: judge quarantined rows again, by the present rules.

Use it when a rule was too strict and has been changed. The page *Quarantine* of *Quality* starts it with its choice filled in.
Do not use it for wrong values (`run redrive --corrections FILE`) or for days that follow changed code (`backfill_days`).
It starts as a dry run: the log of `redrive` says how many rows would be judged again, and nothing changes.

**When it fails**, its log ends with one line: what was found, what was expected, what to do.

- Exit code 2: the rule, the batches or a setting is wrong; the line lists the rules. Exit code 5: another job held silver's tables for
  10 minutes; the task is retried. A re-drive that was killed blocks silver and gold until it is repeated: trigger it again with the
  same params (`dry_run` off).
- A closed gate does not stop it, because it may repair what closed the gate. Run that gate again afterwards, or decide.

**What it does.** Rows that pass take their old places in silver: the batch and the coordinates of their records. Rows that still break
rules stay in quarantine with the rules that they break now. `control.redrives` keeps the outcome of each. Then `medallion`, if it is on,
takes the change to gold, through the gates, to a release.

Rows are chosen by `rule`, and narrowed by `table`, `first_batch`, `last_batch` and `source`. By hand:
`python -m spark_jobs.run redrive --rule NAME [--table TABLE] [--dry-run]`. More: `include/docs/redrive.md`.
"""

from airflow.sdk import dag

from include.orchestration.defaults import ON_REQUEST, REDRIVE_DAG, about
from include.orchestration.jobs import spark_job
from include.orchestration.redrive import PARAMS, Redrive
from include.orchestration.timetable import OnRequest


@dag(dag_id=REDRIVE_DAG, schedule=OnRequest(), **about(__doc__), tags=["silver", "quarantine"], params=PARAMS, **ON_REQUEST)
def redrive_rows() -> None:
    """Wire the task of the run."""
    spark_job(
        "redrive", operator=Redrive, doc_md="Judges the chosen rows again, or says how many there are. Nothing is lost if it is killed."
    )


redrive_rows()
