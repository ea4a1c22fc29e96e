"""The job behind `run decide`: what a person decides about a closed gate, recorded with name and reason, and done.

- `release anyway`: the closed verdicts count as passed from now on, for the versions and batches that they judged.
- `roll back`: silver and gold return to the newest release; the batches after it will be taken again (see rollback.py).
- `wait`: the gates stay closed.
"""

import logging
from datetime import UTC, datetime

from spark_jobs import control, leases, rollback
from spark_jobs.errors import SettingsError
from spark_jobs.faults import kill_point
from spark_jobs.releases import latest_release
from spark_jobs.settings import Settings
from spark_jobs.tables import DECISIONS, LAYERS
from spark_jobs.verdicts import CHOICES, ROLL_BACK, closed_verdicts, next_moment

log = logging.getLogger(__name__)

LONGEST_TEXT = 2000


def decide(settings: Settings, choice: str, who: str, why: str, now: datetime | None = None) -> None:
    """Record a decision about every gate that is closed, and carry it out. With no gate closed only `roll back` does anything.

    Raises SettingsError for a choice that is none, and for a name or a reason that is missing or too long.
    """
    who, why = " ".join(who.split()), " ".join(why.split())  # one line each: a message must not look like two
    _check(choice, who, why)
    with leases.hold(settings, [DECISIONS], owner="decide"):
        closed = closed_verdicts(settings, *LAYERS)
        if not closed and choice != ROLL_BACK:
            log.info("no gate is closed: nothing to decide")
            return
        gates = sorted({(row["layer"], row["run_id"]) for row in closed}) or [("silver and gold", None)]
        release = latest_release(settings)
        decision = {
            "decided_at": next_moment(settings, now or datetime.now(UTC)),
            "choice": choice,
            "who": who,
            "why": why,
            "release_id": release.release_id if release else 0,
            "generation": control.generation(settings) + (choice == ROLL_BACK),
        }
        control.append_held(settings, DECISIONS, [decision | {"layer": layer, "run_id": run_id} for layer, run_id in gates])
    kill_point("after a decision")
    log.info("decided by %s: %s, for %s: %s", who, choice, ", ".join(layer for layer, _ in gates), why)
    rollback.finish(settings)


def _check(choice: str, who: str, why: str) -> None:
    if choice not in CHOICES:
        raise SettingsError(f"decision: found {choice!r}, expected one of {', '.join(CHOICES)}")
    for name, text in (("--who", who), ("--why", why)):
        if not text or len(text) > LONGEST_TEXT:
            raise SettingsError(f"{name}: found {len(text)} characters, expected 1 to {LONGEST_TEXT}: who decides, and why")
