"""Live tables and their states set back together: the next job finishes a reset that was interrupted before it does anything else.

What is to be done is written down first, then done table by table and query by query, each step once however often it is begun.
"""

import json
import logging
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from spark_jobs.lake.tables import LIVE
from spark_jobs.lake.txn import Txn
from spark_jobs.lake.versions import set_back
from spark_jobs.live import checkpoints, offset_logs, places
from spark_jobs.live.fingerprint import Fingerprint
from spark_jobs.live.queries import BY_NAME
from spark_jobs.runtime import storage
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

_FILE = "reset.json"
_LAST = "metadata"  # which every checkpoint has


@dataclass(frozen=True)
class NewTable:
    """What becomes of a table: the rows of a version, or none; and which transaction identifiers it knows from then on."""

    version: int | None
    transactions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class NewState:
    """What becomes of a query: a generation, with a copy of this checkpoint, or an empty one."""

    number: int
    fingerprint: Fingerprint
    checkpoint: str | None = None


@dataclass(frozen=True)
class Reset:
    """What is to be done, by the names of tables and queries."""

    why: str
    tables: Mapping[str, NewTable]
    states: Mapping[str, NewState]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


def carry_out(settings: Settings, reset: Reset) -> None:
    """Do it. The caller holds the leases of the live tables, and nothing runs."""
    write_whole(_file(settings), json.dumps(asdict(reset)))
    finish(settings)


def finish(settings: Settings) -> None:
    """Do what was begun and not finished, if anything. The caller holds the leases of the live tables."""
    if not is_pending(settings):
        return
    facts = json.loads(_file(settings).read_text())
    tables = {name: NewTable(**each) for name, each in facts["tables"].items()}
    states = {name: NewState(**each) for name, each in facts["states"].items()}
    for table in LIVE:
        if table.name in tables:
            new = tables[table.name]
            set_back(settings, table, new.version, "reset", Txn(f"reset {facts['id']}", 1), new.transactions, {"reset_to": new.version})
    for name, state in states.items():
        _begin(settings, name, state)
    kill_point("before the reset is done")
    _file(settings).unlink()
    log.info("%s: %s", facts["why"], ", ".join([*tables, *(f"state of {name}" for name in states)]))


def is_pending(settings: Settings) -> bool:
    """Whether a reset was begun and not finished."""
    return _file(settings).exists()


def _begin(settings: Settings, name: str, state: NewState) -> None:
    folder = places.root(settings) / name / str(state.number)
    if state.checkpoint and not storage.is_published(folder, _LAST):
        draft = folder.with_name(f".{folder.name}")
        storage.remove(draft)
        storage.copy(storage.place(state.checkpoint), draft)
        version = BY_NAME[name].follows.open(settings).version() + 1  # the rows of the table now are those it has taken
        offset_logs.continue_at(draft, version)
        if beside := BY_NAME[name].beside:  # of which it may have commits that are gone by now
            offset_logs.take_again(draft, beside.name.replace(".", "_"), beside.open(settings).version())
        offset_logs.point_to(draft, folder)
        storage.publish(draft, folder, _LAST)
    kill_point(f"before the state of {name}")
    checkpoints.begin(settings, BY_NAME[name], state.number, state.fingerprint)


def _file(settings: Settings) -> Path:
    return places.root(settings) / _FILE
