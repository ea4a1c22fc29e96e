"""Stop the engine, restart it, or show its status.

Trigger it with an `action`: *status*, *stop* or *restart*. The log of the task `control` has the answer.
The engine is the application that the DAG `spark_engine` keeps running. Without it every job starts a JVM of its own: slower, same result.
Without Airflow: `python -m spark_jobs.run engine_control status|stop|restart`.

**When it fails**, either the job in the engine did not end within five minutes (a backfill may be running: wait, or trigger again), or
nothing restarted the engine: switch the DAG `spark_engine` on.

- **status** prints whether the engine runs, since when, and which job runs in it. It changes nothing.
- **stop**: the engine finishes the job in it and exits. It stays down until a *restart*, even while the DAG `spark_engine` is on.
- **restart**: the same, but the DAG `spark_engine`, if it is on, starts another one at once, with changed settings of Spark. Changed code
  of jobs needs no restart.
"""

from include.orchestration.services import ENGINE, control_dag

engine_control = control_dag(ENGINE, __doc__, tags=["spark"])
