"""A stand-in for the task instance in a context, which only a running Airflow has."""

from typing import Any, cast

from airflow.sdk import Context


class TaskInstance:
    """What tasks ask of the task instance in their context: XComs, by task (None: its own) and key, and the page of its log."""

    map_index = -1
    id = "01a1ff1f-3ff3-7d0c-809d-d17a3fb1b3ce"
    log_url = "http://127.0.0.1:8080/dags/medallion/runs/manual__1/tasks/silver_gate?try_number=1"

    def __init__(self, xcoms: dict[tuple[str | None, str], Any] | None = None) -> None:
        self.xcoms = dict(xcoms or {})
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def xcom_pull(self, task_ids: str | None = None, key: str = "return_value", **_: Any) -> Any:
        return self.xcoms.get((task_ids, key))

    def context(self, **more: Any) -> Context:
        """The context of a task that is this one."""
        return cast("Context", {"ti": self, "task_instance": self, **more})
