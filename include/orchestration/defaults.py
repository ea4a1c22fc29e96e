"""What every task of every DAG starts from."""

from datetime import UTC, datetime, timedelta
from typing import Any

from include.orchestration import refusals

PIPELINE_DAG, BACKFILL_DAG = "medallion", "backfill_days"  # those whose tasks are gates
RELEASE_TASK = "release"  # the last one of a run of PIPELINE_DAG
REDRIVE_DAG = "redrive_rows"
BY_HAND = "backfill_by_hand"  # begins the ids of runs of BACKFILL_DAG that a person triggered
START = datetime(2024, 1, 1, tzinfo=UTC)
NO_BACKFILL: Any = ("scheduled", "asset_triggered", "manual", "operator_triggered")  # the kinds of runs of a DAG to which days mean nothing

# Two more tries, after 30 to 60 and 60 to 120 seconds. Exit codes that no second try can change are never retried (see jobs.py).
DEFAULT_ARGS: dict[str, Any] = {
    "owner": "ledger",
    "retries": 2,
    "retry_delay": timedelta(seconds=30),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=5),
    "on_execute_callback": refusals.expect,
}

_ONE_AT_A_TIME: dict[str, Any] = {"catchup": False, "max_active_runs": 1, "default_args": DEFAULT_ARGS}
ONE_AT_A_TIME = _ONE_AT_A_TIME | {"start_date": START}
# DAGs that people trigger to steer others have no schedule. They are never paused: an operator must not have to find a switch before
# they can stop something, or decide.
ON_REQUEST = ONE_AT_A_TIME | {"is_paused_upon_creation": False}
# Maintenance and checks, which run from the start. With a start date, the run before the moment they are first seen would begin at once.
ON_SCHEDULE = _ONE_AT_A_TIME | {"is_paused_upon_creation": False, "allowed_run_types": NO_BACKFILL}


def about(doc: str | None) -> dict[str, Any]:
    """What the pages of Airflow show of a DAG: its file's docstring, and in lists the first line of it."""
    return {"doc_md": doc, "description": (doc or "").partition("\n")[0].rstrip(".")}


def dag_of_run(run_id: str) -> str:
    """The DAG of a run that a gate's verdict names: Airflow's other DAGs have no gates, and `medallion` takes no backfill."""
    return BACKFILL_DAG if run_id.startswith(("backfill__", BY_HAND)) else PIPELINE_DAG
