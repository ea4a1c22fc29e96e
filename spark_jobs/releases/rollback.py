"""Rolling back: silver and gold return to the newest release, all together; later batches will be processed again.

Bronze stays: it is what Kafka sent. A restored table keeps Delta's transaction identifiers with their higher numbers, and under these the
same batches would be skipped silently. So every roll-back starts a new generation of identifiers (`control.application`). The decision is
recorded first and then carried out table by table. After a crash the next job finishes it before it does anything else. A job that waited
for its leases checks again once it has them (`hold`).
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NoReturn

from spark_jobs import control
from spark_jobs.control import backfills, unfinished
from spark_jobs.control.unfinished import Finisher, Unfinished
from spark_jobs.control.verdicts import ROLL_BACK, all_verdicts, next_time
from spark_jobs.lake import leases
from spark_jobs.lake.tables import (
    BACKFILLS,
    BATCHES,
    BRONZE,
    BY_NAME,
    DECISIONS,
    FOLLOWERS,
    GOLD,
    QUALITY_RESULTS,
    REDRIVES,
    RELEASES,
    SILVER,
    SILVER_INDEXES,
    SILVER_OWNED,
    Table,
)
from spark_jobs.lake.txn import Txn
from spark_jobs.lake.versions import hold_same_rows, set_back
from spark_jobs.releases.releases import find_release
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

LEASED = (*SILVER_OWNED, *GOLD, RELEASES)


@contextmanager
def hold(settings: Settings, tables: Iterable[Table], owner: str, wait_seconds: float = leases.WAIT_SECONDS) -> Iterator[None]:
    """Hold the leases of some tables, with no roll-back left to be carried out: one that was decided meanwhile is done first.

    Raises LeaseHeld as `leases.hold` does.
    """
    chosen = tuple(tables)
    with unfinished.lock_when_finished(settings, lambda: leases.hold(settings, chosen, owner, wait_seconds), [UNFINISHED], _NOBODY):
        yield


def finish(settings: Settings) -> None:
    """Carry out the roll-back that was decided last, as far as it was not carried out yet. Waits for the jobs under way."""
    if control.is_rolled_back(settings):
        return
    with leases.hold(settings, LEASED, owner="roll back"):
        if control.is_rolled_back(settings):  # by another process, meanwhile
            return
        number = control.generation(settings)
        decisions = control.read(settings, DECISIONS).to_pylist()
        decision = next(row for row in decisions if row["generation"] == number and row["choice"] == ROLL_BACK)
        release = find_release(settings, decision["release_id"]) if decision["release_id"] else None
        released, last_batches = (release.versions, release.last_batches) if release else ({}, {})
        batches = {table.name: last_batches.get(table.name, 0) for table in BRONZE}
        for table in SILVER:
            _restore(settings, table, number, released, {control.application(settings, "silver"): batches[f"bronze.{table.topic}"]})
        for table in SILVER_INDEXES:
            _set_back(settings, table, None, number, {control.application(settings, "silver"): 0})  # the next run of silver builds it
        follows = {control.following(settings, table): _head(settings, table) for table in FOLLOWERS}
        for table in GOLD:
            _restore(settings, table, number, released, follows)
        _withdraw(settings, BATCHES, lambda row: is_of_release(settings, row, released, batches))
        _withdraw(settings, REDRIVES, lambda row: (row["_silver_version"] or 0) <= released.get(row["table"], -1))
        _withdraw(settings, BACKFILLS, lambda row: backfills.is_of_release(row, released))
        _restore_verdicts(settings, decision, released)
        kill_point("before the roll-back is done")
        control.append(settings, DECISIONS, [], once=Txn(control.ROLLED_BACK, number))
    log.info(
        "silver and gold are back at release %d: run silver, or trigger the DAG medallion, to take the later batches again",
        decision["release_id"],
    )


def _start_none() -> NoReturn:
    raise AssertionError("a roll-back needs no Spark")


UNFINISHED = Unfinished(lambda settings: not control.is_rolled_back(settings), lambda settings, _: finish(settings))
_NOBODY = Finisher("", _start_none)


def _head(settings: Settings, table: Table) -> int:
    return table.open(settings).version()


def _restore(settings: Settings, table: Table, number: int, released: dict[str, int], follows: dict[str, int]) -> None:
    """Bring a table to its released version, with how far it follows; empty where no release names it."""
    positions = follows if table.name in released or not released else {}
    _set_back(settings, table, released.get(table.name, 0), number, positions)


def _set_back(settings: Settings, table: Table, version: int | None, number: int, positions: dict[str, int]) -> None:
    if table.exists(settings):
        facts = {} if version is None else {"rolled_back_to": version}
        set_back(settings, table, version, "roll-back", Txn(control.ROLLED_BACK, number), positions, facts)


def is_of_release(settings: Settings, row: dict[str, Any], released: dict[str, int], batches: dict[str, int]) -> bool:
    """Whether a run is part of the release: its row of control.batches stays.

    Gold may have read a version of silver that maintenance made of the released one.
    """
    if row["job"] == "silver":
        return int(row["last_batch"]) <= batches[f"bronze.{row['table'].split('.')[1]}"]
    if row["job"] == "gold":
        read = json.loads(row["_read_versions"] or "{}")
        return all(
            name in released and (version <= released[name] or hold_same_rows(settings, BY_NAME[name], released[name], version))
            for name, version in read.items()
        )
    return True


def _withdraw(settings: Settings, table: Table, stays: Callable[[dict[str, Any]], bool]) -> None:
    """Withdraw the rows of a control table that do not stay; Delta's history still has them."""
    kill_point(f"before roll-back of {table.name}")
    with leases.hold(settings, [table], owner="roll back"):
        rows = control.read(settings, table)
        staying = [row for row in rows.to_pylist() if stays(row)]
        if len(staying) < rows.num_rows:
            control.replace_under_lease(settings, table, staying)


def _restore_verdicts(settings: Settings, decision: dict[str, Any], released: dict[str, int]) -> None:
    """The verdicts about the released versions hold again, for the versions that hold the same rows now."""
    given, recorded_at = all_verdicts(settings), next_time(settings, datetime.now(UTC))
    again = []
    for table in BY_NAME.values():
        own = [verdict for verdict in given if verdict.table == table.name]
        if not own:
            continue
        version = released.get(table.name)
        nothing = replace(own[-1], evaluated=0, findings=(), report=None, first_batch=0, last_batch=0)
        passed = next((verdict for verdict in reversed(own) if verdict.version == version), nothing)
        head = (version or 0) if table.layer == "bronze" else _head(settings, table)
        run_id = f"roll back {decision['generation']}"
        again.append(replace(passed, success=True, judged_at=recorded_at, version=head, run_id=run_id).row())
    control.append(settings, QUALITY_RESULTS, again, once=Txn("roll back", int(decision["generation"])))
