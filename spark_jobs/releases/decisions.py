"""The job behind `run decide`: what an operator decides about a closed gate, recorded with name and reason, and carried out.

- `release anyway`: the closed verdicts count as passed from now on, for the versions and batches that they judged.
- `roll back`: silver and gold return to the newest release; the batches after it will be taken again (see rollback.py).
- `wait`: the gates stay closed.
"""

import logging
from datetime import UTC, datetime

from spark_jobs import control
from spark_jobs.control.verdicts import CHOICES, ROLL_BACK, UNUSED, Decision, append_decisions_under_lease, closed_verdicts, next_time
from spark_jobs.lake import leases
from spark_jobs.lake.tables import DECISIONS, LAYERS
from spark_jobs.releases import rollback
from spark_jobs.releases.releases import latest_release
from spark_jobs.runtime import one_line
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)


def decide(settings: Settings, choice: str, who: str, why: str, now: datetime | None = None) -> None:
    """Record a decision about every gate that is closed, and carry it out. With no gate closed only `roll back` does anything.

    A roll-back is recorded while no job writes what it changes: none finds another generation than the one that it began with.
    Raises SettingsError for a choice that is none, and for a name or a reason that is not one line of text.
    """
    _check(choice, who, why)
    changed = rollback.LEASED if choice == ROLL_BACK else ()
    with leases.hold(settings, changed, owner="roll back"), leases.hold(settings, [DECISIONS], owner="decide"):
        closed = closed_verdicts(settings, *LAYERS)
        if not closed and choice != ROLL_BACK:
            log.info("no gate is closed: nothing to decide")
            return
        about: list[tuple[str, str | None]] = [*sorted({(verdict.layer, verdict.run_id) for verdict in closed})]
        gates = about or [("silver and gold", None)]
        release = latest_release(settings)
        number = control.generation(settings) + (choice == ROLL_BACK)
        recorded_at, released = next_time(settings, now or datetime.now(UTC)), release.release_id if release else 0
        given = [Decision(recorded_at, choice, layer, who, why, run_id, released, number) for layer, run_id in gates]
        append_decisions_under_lease(settings, given)
    kill_point("after a decision")
    log.info("decided by %s: %s, for %s: %s", who, choice, ", ".join(layer for layer, _ in gates), why)
    rollback.finish(settings)


def keep_unused(settings: Settings, choice: str, who: str, why: str, run_id: str) -> None:
    """Record an answer that cannot be carried out, with the reason; it changes nothing. `run_id` is the run that asked."""
    with leases.hold(settings, [DECISIONS], owner="decide"):
        now, number = next_time(settings, datetime.now(UTC)), control.generation(settings)
        append_decisions_under_lease(settings, [Decision(now, f"{choice} ({UNUSED})", UNUSED, who, why, run_id, 0, number)])


def _check(choice: str, who: str, why: str) -> None:
    if choice not in CHOICES:
        raise SettingsError(f"decision: found {choice!r}, expected one of {', '.join(CHOICES)}")
    for name, text in (("--who", who), ("--why", why)):
        if wrong := one_line.problem(text):
            raise SettingsError(f"{name}: {wrong}: who decides, and why")
