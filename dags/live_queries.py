"""Live queries: bronze to the live tables, all the time.

It keeps a Spark application running that reads new rows of `bronze.transactions` and writes `gold.live_*`, which are ahead of the gates.
It is off from the start: switch it on if you need live tables. Nothing else depends on it, so it may stay off for any time.
Its task is normally *deferred*: it waits in the triggerer and holds no worker. To stop or restart the queries, trigger `live_control`.

**When the task fails**, no restart could help; its line says what was found. After three failed runs in a row the DAG pauses itself.
Nothing is lost: bronze keeps the rows.

- exit code 2: an argument or setting is invalid: correct it, then switch the DAG on. Or the state of a query does not fit this code:
  the line says what differs, and which `run upgrade` rebuilds the table.
- otherwise 48 starts in a row failed, over about four hours. The task's log has each of them, and names the file with the application's
  own output.

Exit code 5 is no failure: another process writes the live tables (an application started by hand), and the next start waits for it.
Every fault and its repair: `include/docs/runbook.md`.

**What recovers by itself**: an application that dies is restarted within seconds; one that hangs is killed first. Each query continues
from its checkpoint. Stopping Airflow, marking the run as failed, clearing it or pausing this DAG does not stop the application.

**What it writes**: gold's windows and join as streams with a watermark. A result is written once, when the watermark has passed its
end, and never changes. More: `include/docs/live.md`.
"""

from airflow.sdk import dag

from include.orchestration.defaults import about
from include.orchestration.services import ENDLESS, LIVE, keep_running


@dag(dag_id="live_queries", schedule="@continuous", **about(__doc__), tags=["gold", "streaming"], **ENDLESS)
def live_queries() -> None:
    """One task, held open for as long as the queries run."""
    keep_running(LIVE, "live")


live_queries()
