"""A run: where its records went, how long its tasks took, and how it compares with the run before."""

import logging
from dataclasses import dataclass
from datetime import datetime

from include.orchestration.decisions import live_verdicts
from include.orchestration.defaults import BACKFILL_DAG
from include.quality_page.reading import Row, Warehouse
from include.quality_page.status import read_status
from include.quality_page.words import share
from spark_jobs.lake.tables import BACKFILLS, BATCHES
from spark_jobs.lake.topics import TOPICS
from spark_jobs.runtime.errors import first_line

log = logging.getLogger(__name__)

PARTS = ("output", "duplicates", "quarantined", "superseded", "no_change")
_STEPS = "select * from t where run_id = $run_id and state = 'done' order by number limit 1000"
_OF_RUN = "select * from t where run_id = $run_id order by finished_at limit 1000"
_BEFORE = """select * from t where job = 'silver' and "table" = $name and last_batch < $first order by last_batch desc limit 1"""


@dataclass(frozen=True)
class Conservation:
    """The records of a topic that a run took, and where each of them went; `before` is the same of the run before."""

    topic: str
    taken: int
    parts: dict[str, int]
    before: "Conservation | None" = None

    @property
    def lost(self) -> int:
        """The records that are in no part; negative for those that are in two."""
        return self.taken - sum(self.parts.values())

    @property
    def bar(self) -> list[tuple[str, int, str, float]]:
        """(part, records, share, width in percent), the lost ones last."""
        every = {**self.parts, "lost": abs(self.lost)}
        whole = max(self.taken, sum(every.values()), 1)
        return [(name, count, share(count, self.taken), 100 * count / whole) for name, count in every.items() if count]

    @property
    def quarantined(self) -> str:
        """The share of quarantine."""
        return share(self.parts["quarantined"], self.taken)

    @property
    def change(self) -> str:
        """The records against those of the run before: `25 % more than in the run before`; empty without one."""
        if self.before is None or not self.before.taken:
            return ""
        ratio = self.taken / self.before.taken
        if ratio == 1:
            return "as many as in the run before"
        if ratio >= 2:
            return f"{ratio:.3g} times as many as in the run before"
        return f"{100 * abs(ratio - 1):.3g} % {'more' if ratio > 1 else 'fewer'} than in the run before"


@dataclass(frozen=True)
class Task:
    """A task of a DAG run, as Airflow has it; `rows` is what its job counted."""

    name: str
    state: str
    started: datetime | None
    seconds: float | None
    tries: int
    rows: int | None


def batches_of_run(warehouse: Warehouse, run_id: str) -> list[Row]:
    """What the jobs of one run did: rows of control.batches."""
    return warehouse.select(BATCHES, _OF_RUN, run_id=run_id)


def steps_of_run(warehouse: Warehouse, run_id: str) -> list[Row]:
    """The steps that one run of a backfill has done: rows of control.backfills."""
    return warehouse.select(BACKFILLS, _STEPS, run_id=run_id)


def conservation(warehouse: Warehouse, batches: list[Row]) -> list[Conservation]:
    """Where the records went, by topic, of a run's rows of control.batches."""
    order = [topic.silver.name for topic in TOPICS]
    rows = sorted((row for row in batches if row["table"] in order and row["job"] == "silver"), key=lambda row: order.index(row["table"]))
    return [_conserved(row, _before(warehouse, row)) for row in rows]


def tasks_of(dag_id: str, run_id: str, batches: list[Row], steps: list[Row]) -> list[Task]:
    """The tasks of a run, by beginning: times out of Airflow's database, rows as their jobs counted. None where that cannot be read."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError

    rebuilt = sum(int(step["rows"] or 0) for step in steps) if steps else None
    rows = {"silver": _sum(batches, "silver", "input"), "gold": _sum(batches, "gold", "output"), "rebuild": rebuilt}
    columns = (TaskInstance.task_id, TaskInstance.state, TaskInstance.start_date, TaskInstance.duration, TaskInstance.try_number)
    asked = select(*columns).where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id).limit(100)
    try:
        with create_session() as session:
            found = [
                Task(name, str(state or "waiting"), at, seconds, tries or 0, rows.get(name))
                for name, state, at, seconds, tries in session.execute(asked)
            ]
    except SQLAlchemyError as error:  # the page shows the rest
        log.warning("the tasks of %s cannot be read: %s", run_id, first_line(error))
        return []
    return sorted(found, key=lambda task: (task.started is None, task.started.timestamp() if task.started else 0, task.name))


def held_up(warehouse: Warehouse, dag_id: str, tasks: list[Task]) -> list[str]:
    """The layers whose gates are closed for live rows, where a backfill waits for a person to decide about those first."""
    if dag_id != BACKFILL_DAG or not any(task.state == "deferred" for task in tasks):
        return []
    return sorted({verdict.layer for verdict in live_verdicts(read_status(warehouse).open)})


def _before(warehouse: Warehouse, row: Row) -> Conservation | None:
    rows = warehouse.select(BATCHES, _BEFORE, name=row["table"], first=int(row["first_batch"] or 0))
    return _conserved(rows[0], None) if rows else None


def _conserved(row: Row, before: Conservation | None) -> Conservation:
    parts = {name: int(row[name] or 0) for name in PARTS}
    return Conservation(row["table"].removeprefix("silver."), int(row["input"] or 0), parts, before)


def _sum(batches: list[Row], job: str, column: str) -> int | None:
    counts = [int(row[column] or 0) for row in batches if row["job"] == job]
    return sum(counts) if counts else None
