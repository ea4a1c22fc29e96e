"""A closed gate, the question about it, and answers."""

from datetime import datetime
from typing import Any

from airflow.dag_processing.dagbag import DagBag

from spark_jobs import control
from spark_jobs.lake.tables import QUALITY_RESULTS
from spark_jobs.runtime.settings import Settings
from tests.support.task_instance import TaskInstance
from tests.support.verdicts import NOW, RUN

ASKED = "silver.transactions version 3, batches 1 to 2: unique_ids"
DECISION = f"decision__{RUN}__20261120T120000.000000"
USER = {"id": "7", "name": "ada"}


def judge(settings: Settings, success: bool = False, run_id: str = RUN, at: datetime = NOW, table: str = "silver.transactions") -> None:
    row = {"run_id": run_id, "layer": "silver", "table": table, "version": 3, "suite": table, "success": success, "evaluated": 4}
    row |= {
        "failed": int(not success),
        "failed_expectations": [] if success else ["unique_ids", "few_rows (warning)"],
        "report": "file:///quality/data_docs/8.html",
        "_found": None if success else ["{{ 7 * 7 }} | `x`", "3"],
        "_expected": None if success else ["at most 0", "at least 4"],
    }
    control.append(settings, QUALITY_RESULTS, [row | {"_first_batch": 1, "_last_batch": 2, "_judged_at": at}])


def asked() -> TaskInstance:
    """The task, with what its question was about."""
    return TaskInstance({("ask", "asked"): [ASKED]})


def ask(dag_bag: DagBag) -> Any:
    return dag_bag.dags["quality_decision"].get_task("ask")


def event(why: Any = "the bank confirmed it", choice: str = "wait", user: Any = USER) -> dict[str, Any]:
    return {"chosen_options": [choice], "params_input": {"reason": why}, "responded_at": NOW, "responded_by_user": user}
