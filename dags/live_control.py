"""Stop the live queries, restart them, or show their status.

Trigger it with an `action`: *status*, *stop* or *restart*. The log of the task `control` has the answer.
A stop loses nothing: bronze keeps the rows meanwhile, and no other table waits.
Without Airflow: `python -m spark_jobs.run live_control status|stop|restart`.

**When it fails**, either the application did not exit within five minutes (it finishes a large batch: wait, or trigger again), or
nothing restarted it: switch the DAG `live_queries` on.

- **status** prints whether the application runs and since when, and for every query the last batch, how many rows of bronze wait, and
  the watermark; or the error, and when it retries. It changes nothing.
- **stop**: the application finishes its current batches and exits. It stays down until a *restart*, even if the DAG `live_queries` runs
  or Airflow restarts.
- **restart**: the same, but the DAG `live_queries`, if it is on, starts the application again at once, with new code and settings. It
  also ends a *stop*.
"""

from include.orchestration.services import LIVE, control_dag

live_control = control_dag(LIVE, __doc__, tags=["gold", "streaming"])
