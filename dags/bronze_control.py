"""Stop the ingestion, restart it, or show its status.

Trigger it with an `action`: *status*, *stop* or *restart*. The log of the task `control` has the answer.
A stop loses nothing: Kafka keeps the records meanwhile, for as long as its retention lasts.
Without Airflow: `python -m spark_jobs.run ingestion status|stop|restart`.

**When it fails**, either the application did not exit within five minutes (it finishes a large batch: wait, or trigger again), or
nothing restarted it: switch the DAG `bronze_ingestion` on.

- **status** prints for every application whether it runs and since when, and for every topic the last batch, what waits, how fast
  records arrive and are processed, and whether it keeps up. It changes nothing.
- **stop**: the application finishes its current batch and exits. It stays down until a *restart*, even if the DAG `bronze_ingestion`
  runs or Airflow restarts.
- **restart**: the same, but the DAG `bronze_ingestion`, if it is on, starts the application again at once, with new code and settings.
  It also ends a *stop*.
"""

from include.orchestration.services import INGESTION, control_dag

bronze_control = control_dag(INGESTION, __doc__, tags=["bronze", "kafka", "streaming"])
