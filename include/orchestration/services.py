"""How Airflow keeps an application alive: a task that finds or starts it, and then waits in the triggerer.

The task holds no worker while it waits, and no process of Airflow's is above the application. Where the master is Kubernetes or YARN,
the cluster runs the driver and the provider's own operator finds it again; everywhere else the supervisor of spark_jobs/service does.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, BaseOperator, Context, Param, dag
from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from include.orchestration.alerts import alerts
from include.orchestration.defaults import ON_REQUEST, ONE_AT_A_TIME, about
from include.orchestration.jobs import job, spark_job
from include.orchestration.timetable import OnRequest
from spark_jobs.runtime.settings import read_settings
from spark_jobs.service.desired_state import ACTIONS
from spark_jobs.service.services import ENGINE, INGESTION, LIVE, SERVICES, Service
from spark_jobs.service.supervisor import GaveUpError, Supervisor

__all__ = ["ENDLESS", "ENGINE", "INGESTION", "LIVE", "KeepRunning", "SupervisionTrigger", "control_dag", "keep_running"]

# What the DAGs have in common that keep something running, beside the schedule: no more runs after three that failed in a row.
ENDLESS = ONE_AT_A_TIME | {"max_consecutive_failed_dag_runs": 3}
_ASK_SECONDS = 1.0
_ERROR_SECONDS = 10.0


def keep_running(service: Service, task_id: str, parts: Collection[str] = (), option: str = "") -> BaseOperator:
    """The task that keeps one application of a service running, with some of its parts or all; a failure sends an alert.

    `option` is a template. If it renders to something, a running application first finishes its batch and exits, and the next one is
    started with it.
    """
    about: dict[str, Any] = {
        "retries": 3,  # for a worker that dies before the task waits
        "retry_delay": timedelta(seconds=10),
        "on_failure_callback": alerts(
            f"{service.name} has stopped",
            "repair what the line names; the next run starts by itself, but after three failed runs switch the DAG on again.",
        ),
        "doc_md": "Runs for as long as the streams do; *deferred* is its normal state.",
    }
    if read_settings().spark_master.startswith(("k8s", "yarn")):
        return spark_job(*service.words(parts), option, task_id=task_id, durable=True, deploy_mode="cluster", **about)
    return KeepRunning(task_id=task_id, command=service.command, parts=parts, option=option, **about)


def ingestions() -> dict[str, tuple[str, ...]]:
    """The topics of each application that ingests, by the id of its task: one for all, or by LEDGER_BRONZE_APPLICATIONS one for each."""
    if read_settings().bronze_applications == "one":
        return {"ingest": INGESTION.parts}
    return {f"ingest_{topic}": (topic,) for topic in INGESTION.parts}


def control_dag(service: Service, doc_md: str | None, tags: Sequence[str]) -> DAG:
    """The DAG with which operators stop a service, restart it or see its status."""

    @dag(
        dag_id=service.control_dag,
        schedule=OnRequest(),
        **about(doc_md),
        tags=tags,
        **ON_REQUEST,
        params={
            "action": Param(
                "status", type="string", enum=list(ACTIONS), title="What to do", description="A stop finishes the current batch first."
            ),
            "why": Param(
                None,
                type=["null", "string"],
                maxLength=1000,
                title="Why",
                description=f"For the record; shown while {service.name} is stopped.",
            ),
        },
    )
    def steer() -> None:
        job(
            service.control,
            "{{ params.action }}",
            "--who={{ dag_run.triggering_user_name or 'an operator' }}",
            "--why={{ params.why or '' }}",
            task_id="control",
            retries=0,
            doc_md="Carries out the action. Its log shows the status of the application.",
        )

    return steer()


class KeepRunning(BaseOperator):
    """Finds an application or starts it, then waits for as long as it can be kept running. `command` is that of its service."""

    template_fields: Sequence[str] = ("option",)

    def __init__(self, *, command: str, parts: Collection[str] = (), option: str = "", **operator_args: Any) -> None:
        super().__init__(**operator_args)
        self.command = command
        self.parts = tuple(parts)
        self.option = option

    def execute(self, context: Context) -> None:
        """Take the application over, or start it; with an option, a running one first finishes its batch and exits."""
        supervisor = Supervisor(read_settings(), SERVICES[self.command], self.parts, context["run_id"])
        if self.option:
            supervisor.stop()
            supervisor.start(self.option)
            self.log.info("started with %s; its output goes to %s", self.option, supervisor.log_file)
        trigger = SupervisionTrigger(self.command, list(self.parts), context["run_id"], bool(self.option))
        self.defer(trigger=trigger, method_name="resume")

    def resume(self, context: Context, event: dict[str, Any]) -> None:
        """The trigger gave up: fail for good, with what it found."""
        raise AirflowFailException(event["error"])


class SupervisionTrigger(BaseTrigger):
    """Checks an application once a second and restarts it. A triggerer that takes over finds the same application."""

    def __init__(self, command: str, parts: list[str], run_id: str, is_started: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.command, self.parts, self.run_id, self.is_started = command, parts, run_id, is_started

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What another triggerer needs to continue."""
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        return name, {"command": self.command, "parts": self.parts, "run_id": self.run_id, "is_started": self.is_started}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Supervise until no restart can help; changes go to the task's log."""
        supervisor = Supervisor(read_settings(), SERVICES[self.command], self.parts, self.run_id)
        if self.is_started:
            supervisor.expect()
        while True:
            try:
                for line in await asyncio.to_thread(supervisor.step):
                    self.log.info("%s", line)
            except GaveUpError as error:
                yield TriggerEvent({"error": str(error)})  # type: ignore[no-untyped-call]
                return
            except Exception:  # a full disk, an unreadable file: log it and try again
                self.log.exception("the application cannot be supervised")
                await asyncio.sleep(_ERROR_SECONDS)
            await asyncio.sleep(_ASK_SECONDS)
