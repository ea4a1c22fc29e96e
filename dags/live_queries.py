"""Bronze to the live tables, all the time.

**What it does.** Keeps a Spark application running that reads new rows of `bronze.transactions` and writes `gold.live_*`: windows and the
join of gold as streams with a watermark. A result is written once, when the watermark has passed its end, and never amended; the other
tables of gold, which `medallion` brings up to date, amend theirs.

**It is off when it is made**: switch it on if you need live tables. It runs beside `bronze_ingestion`, from which its rows come; nothing
else depends on it, so it may stand still for as long as you like, and then goes on where it stopped.

The task `live` stays *deferred*: that is its normal state. It waits in the triggerer, holds no worker, and its log says what changes:
started, found again, a query that fails. The application belongs to no process of Airflow's. Stopping, killing or upgrading Airflow,
marking the run as failed, clearing it or pausing this DAG neither stops nor doubles it; the task of the next run finds it again.

**Stop it, start it again, ask how it does**: trigger `live_control`.

**When it dies**, it is started again within seconds; when it hangs, it is killed first. Each query goes on from its checkpoint.

**When the task fails**, no other start could help: its line says what was found. After three failed runs in a row the DAG pauses
itself. Nothing is lost meanwhile: bronze keeps the rows.

- exit code 2: an argument or setting cannot be used: mend it, switch the DAG on. Or the state of a query is not of this code: its line
  says what differs, and which `run upgrade` makes the table anew.
- otherwise 48 starts in a row failed, over about four hours; each is in the task's log. The application's own output is in the file that
  the log names.

Exit code 5 is no failure: another process writes the live tables (an application that was started by hand), and the next start waits
for it. What each fault looks like: `include/docs/runbook.md`.
"""

from airflow.sdk import dag

from include.orchestration.services import ENDLESS, LIVE, keep_running


@dag(dag_id="live_queries", schedule="@continuous", doc_md=__doc__, tags=["gold", "streaming"], **ENDLESS)
def live_queries() -> None:
    """One task, held open for as long as the queries run."""
    keep_running(LIVE, "live")


live_queries()
