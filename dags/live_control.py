"""Stop the live queries, start them again, or ask how they do. Trigger it with an `action`.

- **status**: the log of the task `control` says whether the application runs, since when, and for every query its last batch, how many
  records of bronze wait for it, and its watermark; or its error, and when it is tried again. Changes nothing.
- **stop**: the batch under way is finished, then the application ends, and stays down until somebody asks for *restart*: also when
  the DAG `live_queries` runs, and when Airflow is started again. Bronze keeps the records meanwhile; no other table is held up.
- **restart**: the same, but the DAG `live_queries` starts the application again at once (if that DAG is on). Also the way back
  after a stop, and how changed code or settings come into force.

**When it fails**: the application did not end within five minutes (a large batch is under way: wait, or trigger it again), or nothing
started it again: switch the DAG `live_queries` on.

Without Airflow: `python -m spark_jobs.run live_control status|stop|restart`.
"""

from include.orchestration.services import LIVE, control_dag

live_control = control_dag(LIVE, __doc__, tags=["gold", "streaming"])
