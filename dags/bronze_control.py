"""Stop ingestion, start it again, or ask how it does. Trigger it with an `action`.

- **status**: the log of the task `control` says for every application whether it runs, since when, and for every topic its last batch,
  what waits, how fast records come and go, and whether it keeps up. Changes nothing.
- **stop**: the batch under way is finished, then the application ends, and stays down until somebody asks for *restart*: also when
  the DAG `bronze_ingestion` runs, and when Airflow is started again. Kafka keeps the records meanwhile.
- **restart**: the same, but the DAG `bronze_ingestion` starts the application again at once (if that DAG is on). Also the way back
  after a stop, and how changed code or settings come into force.

**When it fails**: the application did not end within five minutes (a large batch is under way: wait, or trigger it again), or nothing
started it again: switch the DAG `bronze_ingestion` on.

Without Airflow: `python -m spark_jobs.run ingestion status|stop|restart`.
"""

from include.orchestration.services import INGESTION, control_dag

bronze_control = control_dag(INGESTION, __doc__, tags=["bronze", "kafka", "streaming"])
