"""Kafka to bronze, all the time.

**What it does.** Keeps a Spark application running that copies every record of the topics `transactions`, `customers` and
`accounts` to bronze, bytes untouched, each record once. The task stays *deferred*: that is its normal state. It waits in the
triggerer, holds no worker, and its log says what changes: started, found again, keeping up, falling behind, a topic that fails.

The application belongs to no process of Airflow's. Stopping, killing or upgrading Airflow, marking the run as failed, clearing it or
pausing this DAG neither stops nor doubles it; the task of the next run, or the same one after Airflow is back, finds it again.

**Stop it, start it again, ask how it does**: trigger `bronze_control`.

**When it dies**, it is started again within seconds; when it hangs, it is killed first. **When one topic fails** (it is gone, or its
offsets are lost), the others go on, and the topic is tried again with growing pauses, 2 seconds to a minute.

**Start elsewhere**: trigger a run with `starting_offsets`, then mark the run that is there as failed, because the new one waits behind
it. The application ends behind its batch and starts there. The option counts once: later starts go on where the checkpoint stands,
because `latest` given twice would skip what came in between.

**When the task fails**, no other start could help: its line says what was found. After three failed runs in a row the DAG pauses
itself. Nothing is lost meanwhile while Kafka keeps the records.

- exit code 2: an argument or setting cannot be used. Mend it, switch the DAG on.
- otherwise 48 starts in a row failed, over about four hours; each is in the task's log. The application's own output is in the file that
  the log names.

Exit code 5 is no failure: another process writes bronze (a replay, an import, an application that was started by hand), and the
next start waits for it. What each fault looks like: `include/docs/runbook.md`.
"""

from airflow.sdk import Param, dag

from include.orchestration.ingestion import applications
from include.orchestration.services import ENDLESS, INGESTION, keep_running

TIME_WITH_ZONE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})"
# The look-ahead is the end of the text; `$` would let a line end follow.
STARTING_OFFSETS = rf"^(earliest|latest|committed|{TIME_WITH_ZONE})(?![\s\S])"
# Once: a second try goes on where the checkpoint stands.
STARTING_OFFSETS_OPTION = "{{ '--starting-offsets=' ~ params.starting_offsets if params.starting_offsets and ti.try_number == 1 else '' }}"


@dag(
    dag_id="bronze_ingestion",
    schedule="@continuous",
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
    **ENDLESS,
)
def bronze_ingestion() -> None:
    """A task for each application, held open for as long as its streams run."""
    for task_id, topics in applications().items():
        keep_running(INGESTION, task_id, topics, option=STARTING_OFFSETS_OPTION)


bronze_ingestion()
