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

from airflow.sdk import Param, dag

from include.orchestration.defaults import DEFAULT_ARGS, START
from include.orchestration.ingestion import ACTIONS
from include.orchestration.jobs import job


@dag(
    dag_id="bronze_control",
    schedule=None,
    start_date=START,
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=False,  # it never runs by itself, and nobody must have to find a switch before they can stop
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["bronze", "kafka", "streaming"],
    params={
        "action": Param("status", type="string", enum=list(ACTIONS), title="What to do", description="A stop waits for the batch."),
        "why": Param(
            None,
            type=["null", "string"],
            maxLength=1000,
            title="Why",
            description="For the record; whoever looks at an ingestion that stands still reads it.",
        ),
    },
)
def bronze_control() -> None:
    """One task."""
    job(
        "ingestion",
        "{{ params.action }}",
        "--who={{ dag_run.triggering_user_name or 'an operator' }}",
        "--why={{ params.why or '' }}",
        task_id="control",
        retries=0,
        doc_md="Does it, and says in its log how ingestion does.",
    )


bronze_control()
