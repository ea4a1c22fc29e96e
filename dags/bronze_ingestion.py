"""Kafka to bronze, all the time.

**What it does.** Keeps one Spark application running that copies every record of the topics `transactions`, `customers` and
`accounts` to bronze, bytes untouched, each record once. The task `ingest` stays in state *running*: that is its normal state.

**Stop it**: pause the DAG first (otherwise the next run starts at once), then mark the run as failed. The application is
killed with the task. That is safe: a batch is in bronze as a whole or not at all. **Start it**: unpause the DAG.

**Start elsewhere**: trigger a run with `starting_offsets`; it waits while another one is running, so then mark that one as
failed. The option counts for the run's first try only: a restart after a crash goes on where the checkpoint stands, because
`latest` given twice would skip what came in between. If the first try fails before it reads anything, trigger again.

**When it fails**, the log ends with one line. A crash or a broker that is away is retried with growing pauses, 10 seconds to
5 minutes, 48 times: about four hours. Then the run fails and the schedule starts the next; after three failed runs in a row
the DAG pauses itself, so that a fault that no restart mends does not go round for ever. Nothing is lost meanwhile while Kafka
keeps the records.

- exit code 2: an argument or setting cannot be used; the run fails without another try. Mend it, unpause.
- exit code 5, lease held: another process writes bronze, often one that outlived a killed worker, or one started by hand.
  End it, or wait: the retries take over once it has ended.
- killed by SIGKILL: the JVM or Python was ended from outside, mostly for want of memory. It restarts by itself.
- exit code 1: anything else; see the line. Broker up? Disk full?

A run that fails for good is told to the webhook and the mail addresses of the settings, if there are any.

**If Airflow itself dies**, the application may outlive its task for a while. It holds the lease on bronze, so the new
try ends with exit code 5 until it is gone: never two writers.
"""

from datetime import timedelta

from airflow.sdk import Param, dag

from include.orchestration.alerts import alerts
from include.orchestration.defaults import DEFAULT_ARGS, START
from include.orchestration.jobs import spark_job

TIME_WITH_ZONE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})"
# The look-ahead is the end of the text; `$` would let a line end follow.
STARTING_OFFSETS = rf"^(earliest|latest|committed|{TIME_WITH_ZONE})(?![\s\S])"


@dag(
    dag_id="bronze_ingestion",
    schedule="@continuous",
    start_date=START,
    catchup=False,
    max_active_runs=1,
    max_consecutive_failed_dag_runs=3,
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["bronze", "kafka", "streaming"],
    params={
        "starting_offsets": Param(
            None,
            type=["null", "string"],
            pattern=STARTING_OFFSETS,
            title="Where to start reading Kafka",
            description="Empty: where the checkpoint stands. Otherwise earliest, latest, committed, or a time with a zone such as"
            " 2024-05-01T00:00:00Z: a new checkpoint starts there, adds only what bronze lacks, and records what it skips.",
            examples=["earliest", "latest", "committed"],
        ),
    },
)
def bronze_ingestion() -> None:
    """One task, held open for as long as the streams run."""
    spark_job(
        "bronze",
        "{{ '--starting-offsets=' ~ params.starting_offsets if params.starting_offsets and ti.try_number == 1 else '' }}",
        task_id="ingest",
        retries=48,
        retry_delay=timedelta(seconds=10),
        on_failure_callback=alerts(
            "ingestion has stopped",
            "mend what the line says; the next run starts by itself, but after three failed ones switch the DAG on again.",
        ),
        doc_md="Runs for as long as the streams do; *running* is its normal state.",
    )


bronze_ingestion()
