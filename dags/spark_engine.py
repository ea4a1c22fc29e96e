"""A warm Spark application that the other DAGs' jobs run in: no job starts a JVM of its own while it runs.

**What it does.** Keeps one JVM running, with Spark, and its code compiled by both compilers. A job (silver, gold, backfill, audit,
maintenance and others) stays a process of its task, with its own log, exit code and leases, and borrows that JVM for as long as it runs:
one job at a time. A job that finds it busy, or needs another kind of JVM, starts its own, as every job does while this DAG is off.

**It is off when it is made**: switch it on where runs of `medallion` follow each other all day, and 1.5 to 3 GB of memory are free. Nothing
depends on it. Switch it off and trigger `engine_control` with *stop* to do without it again.

The task `engine` stays *deferred*: that is its normal state. It waits in the triggerer, holds no worker, and its log says what changes:
started, idle, which job runs. The application belongs to no process of Airflow's; the task of the next run finds it again.

**It is replaced** after 100 jobs, when its memory has grown beyond bounds, when it dies or hangs, and whenever a job was killed in the
middle: the JVM ends with such a job at once, so that nothing of it goes on. The job in it, if there is one, fails with a line that says
so, and is tried again as any job.

**When the task fails**, no other start could help: its line says what was found. After three failed runs in a row the DAG pauses
itself. Jobs then run without it. More: `include/docs/engine.md`.
"""

from airflow.sdk import dag

from include.orchestration.services import ENDLESS, ENGINE, keep_running


@dag(dag_id="spark_engine", schedule="@continuous", doc_md=__doc__, tags=["spark"], **ENDLESS)
def spark_engine() -> None:
    """One task, held open for as long as the engine is wanted."""
    keep_running(ENGINE, "engine")


spark_engine()
