"""A client for the few calls of Airflow's REST API (v2) that the demo and the tests make."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from spark_jobs.runtime.errors import LedgerError

FINAL_STATES = ("success", "failed")


class AirflowApi:
    """Calls as one user. A token is fetched when the first call needs one, and again when it is refused."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self._user, self._password = user, password
        self._client = httpx.Client(base_url=url, timeout=30, trust_env=False)

    def health(self) -> dict[str, Any]:
        """What `/api/v2/monitor/health` says; needs no login."""
        return dict(self._client.get("/api/v2/monitor/health").raise_for_status().json())

    def log_in(self) -> None:
        """Fetch a token; raises LedgerError when the password is refused."""
        answer = self._client.post("/auth/token", json={"username": self._user, "password": self._password})
        if answer.status_code != httpx.codes.CREATED:
            raise LedgerError(f"Airflow at {self._client.base_url} refused the password of {self._user} ({answer.status_code})")
        self._client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"

    def has_dag(self, dag_id: str) -> bool:
        """Whether the dag-processor has found this DAG."""
        return self._call("GET", f"/dags/{dag_id}", fine=httpx.codes.NOT_FOUND) is not None

    def import_errors(self) -> list[str]:
        """One line for each DAG file that could not be read."""
        errors = (self._call("GET", "/importErrors") or {})["import_errors"]
        return [f"{error['filename']}: {error['stack_trace'].strip().splitlines()[-1]}" for error in errors]

    def unpause(self, dag_id: str) -> None:
        """Let the scheduler run this DAG. Its file is parsed at once: what watches for its assets starts then."""
        dag = self._call("PATCH", f"/dags/{dag_id}", {"is_paused": False}) or {}
        self._call("PUT", f"/parseDagFile/{dag['file_token']}", fine=httpx.codes.CONFLICT)  # conflict: was asked for already

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run with params; returns its id."""
        run = self._call("POST", f"/dags/{dag_id}/dagRuns", {"logical_date": None, "conf": dict(conf or {})})
        return str((run or {})["dag_run_id"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        """queued, running, success or failed."""
        return str((self._call("GET", f"/dags/{dag_id}/dagRuns/{run_id}") or {})["state"])

    def runs(self, dag_id: str, *states: str) -> list[str]:
        """The ids of a DAG's runs in these states, newest first."""
        query = "&".join(["order_by=-run_after", "limit=50", *(f"state={state}" for state in states)])
        return [str(run["dag_run_id"]) for run in (self._call("GET", f"/dags/{dag_id}/dagRuns?{query}") or {})["dag_runs"]]

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """State by task id of one run."""
        tasks = (self._call("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances?limit=100") or {})["task_instances"]
        return {str(task["task_id"]): task["state"] for task in tasks}

    def wait_for_run(self, dag_id: str, run_id: str, patience: float, report: Callable[[str], None] = lambda _: None) -> str:
        """Poll until a run has ended and return its state; tells each task's changes. Raises LedgerError after `patience` seconds."""
        deadline, known = time.monotonic() + patience, dict[str, str | None]()
        while True:
            state, tasks = self.run_state(dag_id, run_id), self.task_states(dag_id, run_id)
            for task, task_state in tasks.items():
                if task_state and known.get(task) != task_state:
                    report(f"{dag_id}.{task}: {task_state}")
            known = tasks
            if state in FINAL_STATES:
                return state
            if time.monotonic() > deadline:
                raise LedgerError(f"run {run_id} of {dag_id} is still {state} after {patience:.0f} s: {tasks}")
            time.sleep(1)

    def _call(self, method: str, path: str, body: object = None, fine: int | None = None) -> dict[str, Any] | None:
        if "Authorization" not in self._client.headers:
            self.log_in()
        answer = self._client.request(method, f"/api/v2{path}", json=body)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            self.log_in()
            answer = self._client.request(method, f"/api/v2{path}", json=body)
        if answer.status_code == fine:
            return None
        if answer.is_error:
            raise LedgerError(f"Airflow answered {answer.status_code} to {method} {path}: {' '.join(answer.text.split())[:300]}")
        return dict(answer.json() or {})
