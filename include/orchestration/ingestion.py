"""How Airflow keeps ingestion alive: a task that finds or starts the application, and then waits in the triggerer.

The task holds no worker while it waits, and no process of Airflow's is above the application. Where the master is Kubernetes or YARN,
the cluster runs the driver and the provider's own operator finds it again; everywhere else supervision.py does.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from include.orchestration.jobs import spark_job
from include.orchestration.supervision import GaveUpError, Supervisor
from spark_jobs.bronze.control import ACTIONS
from spark_jobs.settings import read_settings

__all__ = ["ACTIONS", "Ingestion", "IngestionTrigger", "applications", "ingestion"]

TOPICS = ("transactions", "customers", "accounts")
_LOOK_SECONDS = 1.0
_ERROR_SECONDS = 10.0


def applications() -> dict[str, tuple[str, ...]]:
    """The topics of each application, by the id of its task: one for all of them, or by LEDGER_BRONZE_APPLICATIONS one for each."""
    if read_settings().bronze_applications == "one":
        return {"ingest": TOPICS}
    return {f"ingest_{topic}": (topic,) for topic in TOPICS}


def ingestion(task_id: str, topics: Sequence[str], starting_offsets: str, **operator_args: Any) -> BaseOperator:
    """The task that keeps one application running; `starting_offsets` is a template, and nothing where it renders to nothing."""
    if read_settings().spark_master.startswith(("k8s", "yarn")):
        option = f"{{{{ '--starting-offsets=' ~ ({starting_offsets}) if ({starting_offsets}) else '' }}}}"
        return spark_job(
            "bronze", f"--only={','.join(topics)}", option, task_id=task_id, durable=True, deploy_mode="cluster", **operator_args
        )
    return Ingestion(task_id=task_id, topics=topics, starting_offsets=f"{{{{ ({starting_offsets}) or '' }}}}", **operator_args)


class Ingestion(BaseOperator):
    """Finds the application or starts it, then waits for as long as it can be kept running."""

    template_fields: Sequence[str] = ("starting_offsets",)

    def __init__(self, *, topics: Sequence[str], starting_offsets: str = "", **operator_args: Any) -> None:
        super().__init__(**operator_args)
        self.topics = tuple(topics)
        self.starting_offsets = starting_offsets

    def execute(self, context: Context) -> None:
        """Take the application over, or start it; with starting offsets, one that runs is first ended behind its batch."""
        supervisor = Supervisor(read_settings(), self.topics, context["run_id"])
        if self.starting_offsets:
            supervisor.stop()
            supervisor.start("--starting-offsets", self.starting_offsets)
            self.log.info("started with --starting-offsets %s; its output goes to %s", self.starting_offsets, supervisor.log_file)
        self.defer(trigger=IngestionTrigger(list(self.topics), context["run_id"], bool(self.starting_offsets)), method_name="resume")

    def resume(self, context: Context, event: dict[str, Any]) -> None:
        """The trigger gave up: fail for good, with what it found."""
        raise AirflowFailException(event["error"])


class IngestionTrigger(BaseTrigger):
    """Looks once a second how the application does, and starts it again. A triggerer that takes over finds the same application."""

    def __init__(self, topics: list[str], run_id: str, is_started: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.topics, self.run_id, self.is_started = topics, run_id, is_started

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What another triggerer needs to go on."""
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        return name, {"topics": self.topics, "run_id": self.run_id, "is_started": self.is_started}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Supervise until no other start can help; what is new goes to the task's log."""
        supervisor = Supervisor(read_settings(), self.topics, self.run_id)
        if self.is_started:
            supervisor.expect()
        while True:
            try:
                for line in await asyncio.to_thread(supervisor.step):
                    self.log.info("%s", line)
            except GaveUpError as error:
                yield TriggerEvent({"error": str(error)})  # type: ignore[no-untyped-call]
                return
            except Exception:  # a disk that is full, a file that cannot be read: look again, and say so
                self.log.exception("the application cannot be looked after")
                await asyncio.sleep(_ERROR_SECONDS)
            await asyncio.sleep(_LOOK_SECONDS)
