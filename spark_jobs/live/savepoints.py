"""Savepoints: a consistent copy of the state of every live query and the version of every live table, kept until an operator removes them.

A savepoint lies at `$LEDGER_CHECKPOINTS/savepoints/<name>`: `savepoint.json`, and beside it a copy of each query's checkpoint. It can be
made while nothing runs and no query is behind gold.live_transactions, as a graceful stop leaves it.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_jobs.lake.tables import LIVE, LIVE_REFUSED, LIVE_RESULTS, LIVE_TRANSACTIONS, Table
from spark_jobs.lake.txn import applied
from spark_jobs.lake.versions import has_changes_from
from spark_jobs.live import checkpoints, places, resets
from spark_jobs.live.checkpoints import Checkpoint
from spark_jobs.live.fingerprint import Fingerprint
from spark_jobs.live.places import SAVEPOINT, Savepoint, savepoint_folder
from spark_jobs.live.queries import INTAKE, QUERIES
from spark_jobs.live.resets import NewState, NewTable, Reset
from spark_jobs.runtime import storage
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def find(settings: Settings, name: str) -> Savepoint:
    """A savepoint by its name; raises SettingsError when there is none."""
    present = {each.name: each for each in places.read_savepoints(settings)}
    if name not in present:
        raise SettingsError(f"found no savepoint {name!r}, expected one of: {', '.join(present) or 'none was created'}")
    return present[name]


def line(settings: Settings, savepoint: Savepoint) -> str:
    """A savepoint in one human-readable line."""
    size = sum(storage.files_below(savepoint_folder(settings, savepoint.name)).values())
    kept = [table for table in LIVE if table.name in savepoint.versions]
    lacks = [table.name for table in kept if _why_unreadable(table.path(settings), savepoint.versions[table.name])]
    can = f"cannot be restored: versions are gone of {', '.join(lacks)}" if lacks else "can be restored"
    return f"{savepoint.name}: of {savepoint.created_at}, up to batch {savepoint.bronze_batch} of bronze, {size / 1e6:.1f} MB, {can}"


def check_name(settings: Settings, name: str) -> Path:
    """Where a new savepoint will be; raises SettingsError for a name that none can have, or one has already."""
    if not NAME.fullmatch(name):
        raise SettingsError(f"found the name {name!r}, expected letters, digits, '.', '_' and '-', at most 64")
    target = savepoint_folder(settings, name)
    if storage.is_published(target, SAVEPOINT):
        raise SettingsError(f"found a savepoint {name} already, expected another name")
    return target


def create(settings: Settings, name: str, now: datetime) -> Savepoint:
    """Make a savepoint. The caller holds the leases of the live tables, and nothing runs.

    Raises SettingsError when there is a savepoint of that name, LedgerError when a query is behind or has lost its state, or none has run.
    """
    target = check_name(settings, name)
    generations = _kept(settings)
    if not generations:
        raise LedgerError("found no live query that has ever run, expected one: run live first")
    _confirm_one_moment(settings, generations)
    savepoint = Savepoint(
        name,
        now.isoformat(timespec="seconds"),
        {table.name: table.open(settings).version() for table in LIVE},
        checkpoints.intake_batch(settings),
        {each.query.name: each.ended for each in generations},
        {each.query.name: each.fingerprint for each in generations},
    )
    draft = target.with_name(f".{name}")
    storage.remove(draft)  # of a process that died
    for each in generations:
        storage.copy(each.folder, draft / each.query.name)
        if each.planned > each.ended:  # without rows: planned again by the next start
            for file in (str(each.planned), f".{each.planned}.crc"):
                (draft / each.query.name / "offsets" / file).unlink(missing_ok=True)
    write_whole(draft / SAVEPOINT, json.dumps(asdict(savepoint), indent=1))
    storage.publish(draft, target, SAVEPOINT)
    log.info("savepoint %s: %d tables up to batch %d of bronze, in %s", name, len(savepoint.versions), savepoint.bronze_batch, target)
    return savepoint


def restore(settings: Settings, savepoint: Savepoint, present: Mapping[str, Fingerprint]) -> None:
    """Bring live tables and states back to a savepoint, under new generations. The caller holds the leases, and nothing runs.

    What came later is taken again from bronze. A query that it does not have (`present`: all queries) begins empty.
    Raises LedgerError, before anything is written, when a version cannot be opened any more.
    """
    for table in LIVE:
        version = savepoint.versions.get(table.name)
        if version is not None and (why := _why_unreadable(table.path(settings), version)):
            raise LedgerError(f"version {version} of {table.name}: {why}: savepoint {savepoint.name} cannot be restored")
    taken = {checkpoints.next_intake_application(settings): savepoint.bronze_batch}
    tables = {table.name: NewTable(savepoint.versions[table.name], taken) for table in (LIVE_TRANSACTIONS, LIVE_REFUSED)}
    states = {}
    for query in QUERIES:
        name, number = query.name, checkpoints.next_number(settings, query)
        if name in savepoint.batches:
            written = {checkpoints.application(query, number): savepoint.batches[name]}
            tables[query.table.name] = NewTable(savepoint.versions[query.table.name], written)
            states[name] = NewState(number, savepoint.fingerprints[name], str(savepoint_folder(settings, savepoint.name) / name))
        else:
            tables[query.table.name], states[name] = NewTable(None), NewState(number, present[name])
    resets.carry_out(settings, Reset(f"restored savepoint {savepoint.name}", tables, states))


def _kept(settings: Settings) -> list[Checkpoint]:
    """The checkpoints that a savepoint holds: all but those of queries that are switched off and behind, and what follows one of these."""
    found: dict[Table, Checkpoint] = {}
    for query in QUERIES:
        if generation := checkpoints.read(settings, query):
            is_behind = not places.is_on(settings, query.table) and _why_unfinished(settings, generation)
            if is_behind or (query.follows in LIVE_RESULTS and query.follows not in found):
                log.warning("live %s is switched off, and behind: it is not in the savepoint, whose restoring rebuilds it", query.name)
            else:
                found[query.table] = generation
    return [*found.values()]


def _confirm_one_moment(settings: Settings, generations: Iterable[Checkpoint]) -> None:
    """Raises LedgerError where a query, or the intake, has yet to take a batch, or to end one that it has written already."""
    unfinished = [f"live {INTAKE} has not ended the batch that it was in"] if _is_halfway(settings) else []
    unfinished += [why for each in generations if (why := _why_unfinished(settings, each))]
    if unfinished:
        raise LedgerError(
            f"{'; '.join(unfinished)}, as after a crash: expected all queries at the same version: start run live again and stop it, "
            "or run live --available-now"
        )


def _why_unfinished(settings: Settings, each: Checkpoint) -> str | None:
    reached, ended, followed = places.position(each), each.ended, each.query.follows
    written = applied(settings, each.query.table, each.application)
    if reached is None or has_changes_from(followed.path(settings), reached):
        head = followed.open(settings).version()
        return f"live {each.query.name} has not taken {followed.name} up to its version {head}"
    if written is not None and written > ended:
        return f"live {each.query.name} has written batch {written}, and not ended it"
    return None


def _is_halfway(settings: Settings) -> bool:
    refused = applied(settings, LIVE_REFUSED, checkpoints.intake_application(settings)) or 0
    return refused > checkpoints.intake_batch(settings)


def _why_unreadable(path: Path, version: int) -> str | None:
    try:
        missing = [file for file in DeltaTable(str(path), version=version).file_uris() if not storage.place(file).exists()]
    except (DeltaError, OSError) as error:
        return f"it cannot be opened any more ({error})"
    return f"{len(missing)} of its files are gone ({missing[0]})" if missing else None
