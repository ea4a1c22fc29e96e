"""Control of the engine: stop it, restart it or show its status. Trigger it with an `action`.

It steers the application that the DAG `spark_engine` keeps running. Without the engine every job starts a JVM of its own: slower, with
the same result. Without Airflow: `python -m spark_jobs.run engine_control status|stop|restart`.

**When it fails**: the job in the engine did not end within five minutes (a backfill may be running: wait, or trigger it again), or nothing
started the engine again: switch the DAG `spark_engine` on.

- **status**: the log of the task `control` says whether the engine runs, since when, and which job runs in it. Changes nothing.
- **stop**: the engine finishes the job in it and ends. It stays down until *restart*, also while the DAG `spark_engine` is on.
- **restart**: the same, but the DAG `spark_engine`, if it is on, starts another one at once. Changed settings of Spark take effect so;
  changed code of jobs needs no restart.
"""

from include.orchestration.services import ENGINE, control_dag

engine_control = control_dag(ENGINE, __doc__, tags=["spark"])
