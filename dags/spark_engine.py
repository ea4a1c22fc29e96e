"""Engine: a warm Spark application in whose JVM the jobs of the other DAGs run.

While it runs, a job (silver, gold, backfill, audit, maintenance and others) borrows its JVM and starts none of its own: same result.
It is off from the start: switch it on where 1.5 to 3 GB of memory are free. Nothing else depends on it, so it may stay off for any time.
Its task is normally *deferred*: it waits in the triggerer and holds no worker. To stop or restart the engine, trigger `engine_control`.

**When the task fails**, no restart could help; its line says what was found. After three failed runs in a row the DAG pauses itself.
Jobs run without the engine meanwhile.

- exit code 2: a setting is invalid: correct it, then switch the DAG on.
- otherwise 48 starts in a row failed, over about four hours. The task's log has each of them, and names the file with the application's
  output.

**It takes one job at a time.** A job that finds it busy, or needs other settings of Spark, starts a JVM of its own. A job stays a process
of its task, with its own log, exit code and leases.

**It is replaced** after 100 jobs, when its memory has passed its bounds, when it dies or hangs, and whenever a job in it is killed: the JVM
ends with such a job at once, so that none of its writes continue. A job whose engine dies fails with a line that says so, and is retried.
More: `include/docs/engine.md`.
"""

from airflow.sdk import dag

from include.orchestration.defaults import about
from include.orchestration.services import ENDLESS, ENGINE, keep_running


@dag(dag_id="spark_engine", schedule="@continuous", **about(__doc__), tags=["spark"], **ENDLESS)
def spark_engine() -> None:
    """One task, held open for as long as the engine is wanted."""
    keep_running(ENGINE, "engine")


spark_engine()
