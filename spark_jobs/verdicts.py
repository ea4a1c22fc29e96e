"""What stands of the gates' verdicts: of every table the newest one, and what a person decided about a closed one."""

from datetime import datetime, timedelta
from typing import Any

from spark_jobs import control
from spark_jobs.settings import Settings
from spark_jobs.tables import DECISIONS, QUALITY_RESULTS

RELEASE_ANYWAY, ROLL_BACK, WAIT = "release anyway", "roll back", "wait"
CHOICES = (RELEASE_ANYWAY, ROLL_BACK, WAIT)


def newest_verdicts(settings: Settings) -> dict[str, dict[str, Any]]:
    """The newest row of control.quality_results of each table, by its name.

    Two keys are added: `decision`, the newest row of control.decisions about this verdict (None without one), and `passed`: the
    gate said so, or a person decided to release anyway.
    """
    return {name: rows[-1] for name, rows in _by_table(settings).items()}


def last_passed(settings: Settings) -> dict[str, int]:
    """The last bronze batch of the newest verdict that passed, by table."""
    passed = {name: [row for row in rows if row["passed"]] for name, rows in _by_table(settings).items()}
    return {name: int(rows[-1]["_last_batch"]) for name, rows in passed.items() if rows}


def closed_verdicts(settings: Settings, *layers: str) -> list[dict[str, Any]]:
    """The newest verdicts of these layers' tables that did not pass, with the decision about each, if there is one."""
    return [row for row in newest_verdicts(settings).values() if row["layer"] in layers and not row["passed"]]


def next_moment(settings: Settings, now: datetime) -> datetime:
    """`now`, or the moment after the newest verdict and decision: they keep their order when a clock is set back."""
    moments: list[datetime] = [row["_judged_at"] for row in control.read(settings, QUALITY_RESULTS).to_pylist()]
    moments += [row["decided_at"] for row in control.read(settings, DECISIONS).to_pylist()]
    return max([now, *(moment + timedelta(microseconds=1) for moment in moments)])


def _by_table(settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """All verdicts of each table, in the order in which they were given."""
    decisions = sorted(control.read(settings, DECISIONS).to_pylist(), key=lambda row: row["decided_at"])
    tables: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(control.read(settings, QUALITY_RESULTS).to_pylist(), key=lambda row: row["_judged_at"]):
        about = [each for each in decisions if _is_about(each, row)]
        decision = about[-1] if about and not row["success"] else None
        passed = bool(row["success"]) or (decision is not None and decision["choice"] == RELEASE_ANYWAY)
        tables.setdefault(row["table"], []).append(row | {"decision": decision, "passed": passed})
    return tables


def _is_about(decision: dict[str, Any], verdict: dict[str, Any]) -> bool:
    is_same_gate = (decision["layer"], decision["run_id"]) == (verdict["layer"], verdict["run_id"])
    return is_same_gate and bool(decision["decided_at"] > verdict["_judged_at"])  # a gate that was run again is judged anew
