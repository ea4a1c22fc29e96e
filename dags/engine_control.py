"""Stop the engine, start it again, or ask how it does. Trigger it with an `action`.

- **status**: the log of the task `control` says whether the engine runs, since when, and which job runs in it. Changes nothing.
- **stop**: the job in it is finished, then the engine ends, and stays down until somebody asks for *restart*: also when the DAG
  `spark_engine` runs, and when Airflow is started again. Jobs start JVMs of their own meanwhile, with the same result.
- **restart**: the same, but the DAG `spark_engine` starts another one at once (if that DAG is on). Also how changed settings of Spark
  come into force; changed code of jobs needs no restart.

**When it fails**: the job in the engine did not end within five minutes (a backfill is under way: wait, or trigger it again), or nothing
started it again: switch the DAG `spark_engine` on.

Without Airflow: `python -m spark_jobs.run engine_control status|stop|restart`.
"""

from include.orchestration.services import ENGINE, control_dag

engine_control = control_dag(ENGINE, __doc__, tags=["spark"])
