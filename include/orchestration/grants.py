"""Which run of a backfill rebuilds which days: one leads for its neighbours, so that they share one Spark application.

Airflow makes all runs of a backfill at once, a run a day, and starts a few of them. Whichever decides first leads for the days
around its own whose runs wait too, and writes that down: a grant for each run, as it is in that life of it (Airflow counts how often
a run was cleared). A run with a grant that counts leaves its day to the leader. Decisions are made one at a time, under a lease.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

MOST_DAYS = 366
FORGOTTEN_AFTER = timedelta(hours=2)  # of a leader's end; a run that was deleted and made again has the same name and count
DAY = timedelta(days=1)
PENDING, ENDED = ("queued", "running"), ("success", "failed")

Grants = Mapping[tuple[str, int], Mapping[str, Any]]  # by run and its clear number, the newest row of control.backfill_grants


@dataclass(frozen=True)
class Run:
    """A run of a backfill, for one day. `wanted` is what else its form asks for: runs of one group want the same."""

    run_id: str
    clear_number: int
    day: date
    state: str
    ended_at: datetime | None = None
    wanted: tuple[Any, ...] = ()


LookUp = Callable[[date], Run | None]  # the backfill's run of a day as it is now


def newest_grants(rows: Iterable[Mapping[str, Any]]) -> Grants:
    """The newest grant of each run in each of its lives."""
    return {(row["run_id"], row["clear_number"]): row for row in sorted(rows, key=lambda row: row["granted_at"])}


def leader_of(run: Run, grants: Grants, look_up: LookUp, now: datetime) -> Run | None:
    """The run, perhaps itself, that rebuilds this run's day; None when it has no grant that counts.

    A grant does not count when its leader is gone, was cleared since, waits to start (perhaps for this run to end), or ended long ago.
    """
    grant = grants.get((run.run_id, run.clear_number))
    leader = look_up(grant["leader_day"]) if grant else None
    if grant is None or leader is None or (leader.run_id, leader.clear_number) != (grant["leader"], grant["leader_clear_number"]):
        return None
    is_forgotten = leader.state in ENDED and leader.ended_at is not None and now - leader.ended_at > FORGOTTEN_AFTER
    return None if is_forgotten or leader.state == "queued" else leader


def plan_group(run: Run, grants: Grants, look_up: LookUp, now: datetime) -> list[Run]:
    """The runs of neighbouring days that `run` leads for, itself among them, in the order of days; at most MOST_DAYS."""
    group = [run]
    for step in (-DAY, DAY):
        day = run.day + step
        while len(group) < MOST_DAYS and (other := look_up(day)) and _is_free(other, run, grants, look_up, now):
            group.append(other)
            day += step
    return sorted(group, key=lambda each: each.day)


def grant_rows(leader: Run, group: Iterable[Run], now: datetime) -> list[dict[str, Any]]:
    """The grants by which a run leads for a group."""
    leading = {"leader": leader.run_id, "leader_clear_number": leader.clear_number, "leader_day": leader.day, "granted_at": now}
    return [{"run_id": run.run_id, "clear_number": run.clear_number, "day": run.day, **leading} for run in group]


def _is_free(other: Run, run: Run, grants: Grants, look_up: LookUp, now: datetime) -> bool:
    if other.state not in PENDING or other.wanted != run.wanted:
        return False
    leader = leader_of(other, grants, look_up, now)
    return leader is None or leader.run_id == run.run_id
