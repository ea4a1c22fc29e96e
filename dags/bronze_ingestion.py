"""Ingestion: Kafka to bronze, all the time.

It keeps a Spark application running that copies every record of `transactions`, `customers` and `accounts` to bronze, once, unchanged.
Its task is normally *deferred*: it waits in the triggerer and holds no worker. To stop or restart the ingestion, trigger `bronze_control`.
Stopping Airflow, marking the run as failed, clearing it or pausing this DAG does not stop the ingestion.

**When the task fails**, no restart could help; its line says what was found. After three failed runs in a row the DAG pauses itself.
Nothing is lost while Kafka keeps the records.

- exit code 2: an argument or setting is invalid. Correct it, then switch the DAG on.
- otherwise 48 starts in a row failed, over about four hours. The task's log has each of them, and names the file with the application's
  own output.

Exit code 5 is no failure: another process writes bronze (a replay, an import, an application started by hand), and the next start waits
for it. Every fault and its repair: `include/docs/runbook.md`.

**What recovers by itself**: an application that dies is restarted within seconds; one that hangs is killed first. If one topic fails
(it is missing, or its offsets are lost), the others continue, and the topic is retried with pauses of 2 seconds to a minute. The log
shows each change: started, found again, keeping up, falling behind, a topic that fails.

**To start elsewhere in Kafka**, trigger a run with `starting_offsets`, then mark the present run as failed, because the new one waits
for it. The application finishes its batch and starts there. The option applies once; later starts continue from the checkpoint.
"""

from airflow.sdk import Param, dag

from include.orchestration.defaults import about
from include.orchestration.services import ENDLESS, INGESTION, ingestions, keep_running

TIME_WITH_ZONE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})"
# The look-ahead is the end of the text; `$` would let a line end follow.
STARTING_OFFSETS = rf"^(earliest|latest|committed|{TIME_WITH_ZONE})(?![\s\S])"
# Once: a second try continues from the checkpoint.
STARTING_OFFSETS_OPTION = "{{ '--starting-offsets=' ~ params.starting_offsets if params.starting_offsets and ti.try_number == 1 else '' }}"


@dag(
    dag_id="bronze_ingestion",
    schedule="@continuous",
    **about(__doc__),
    tags=["bronze", "kafka", "streaming"],
    params={
        "starting_offsets": Param(
            None,
            type=["null", "string"],
            pattern=STARTING_OFFSETS,
            title="Where to start reading Kafka",
            description="Empty: continue from the checkpoint. Otherwise earliest, latest, committed, or a time with a zone such as"
            " 2024-05-01T00:00:00Z: a new checkpoint starts there, adds only what bronze lacks, and records what it skips.",
            examples=["earliest", "latest", "committed"],
        ),
    },
    **ENDLESS,
)
def bronze_ingestion() -> None:
    """A task for each application, held open for as long as its streams run."""
    for task_id, topics in ingestions().items():
        keep_running(INGESTION, task_id, topics, option=STARTING_OFFSETS_OPTION)


bronze_ingestion()
