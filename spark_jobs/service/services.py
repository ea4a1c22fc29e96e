"""The applications that run for months under supervision, and all that differs between them."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.lake.tables import BRONZE
from spark_jobs.runtime.engine import FOLDER
from spark_jobs.runtime.settings import Settings


@dataclass(frozen=True)
class Service:
    """What is kept running: the job `command` of `spark_jobs.run`. The job `control` stops it, restarts it or says how it does.

    `name` is for messages. The DAG `dag` keeps it running; `control_dag` does in Airflow what `control` does. `path`, below
    the run folder, is for heartbeats, requests and output. Its `parts`, if it names some, may be divided among several applications.
    """

    name: str
    command: str
    control: str
    dag: str
    control_dag: str
    path: Path
    parts: tuple[str, ...] = ()

    def folder(self, settings: Settings) -> Path:
        """Where applications write their heartbeats, and operators what they want of them."""
        return settings.run_folder / self.path

    def application(self, parts: Collection[str]) -> str:
        """The name of the application that does these parts (none: all of them), which is that of the job when it does all."""
        return self.command if not parts or set(parts) == set(self.parts) else f"{self.command}-{'-'.join(sorted(parts))}"

    def words(self, parts: Collection[str]) -> list[str]:
        """The command line that starts that application."""
        return [self.command, *(["--only", ",".join(parts)] if parts else [])]


INGESTION = Service(
    name="ingestion",
    command="bronze",
    control="ingestion",
    dag="bronze_ingestion",
    control_dag="bronze_control",
    path=Path("bronze") / ".ingestion",
    parts=tuple(table.topic for table in BRONZE),
)
LIVE = Service(
    name="live processing",
    command="live",
    control="live_control",
    dag="live_queries",
    control_dag="live_control",
    path=Path("live") / ".application",
)
ENGINE = Service(
    name="the engine",
    command="engine",
    control="engine_control",
    dag="spark_engine",
    control_dag="engine_control",
    path=FOLDER,
)
SERVICES = {service.command: service for service in (INGESTION, LIVE, ENGINE)}
