"""Where the live queries keep their states and savepoints: the files, read without Spark."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_jobs.lake.tables import LIVE_ACCOUNT_LOOKUPS, LIVE_LOOKUP_ERRORS, LIVE_RESULTS, LIVE_TRANSACTIONS, REFUSED_LIVE, Table
from spark_jobs.runtime.settings import Settings
from spark_jobs.service import checkpoints
from spark_jobs.service.checkpoints import Generation

STATELESS, LAST_STATE, SAVEPOINT_FIRST = MODES = ("stateless", "last-state", "savepoint")  # of an upgrade
SAVEPOINT = "savepoint.json"
BESIDE = "bronze_"  # so begin the names of sources that are not of live rows
_SOURCE = re.compile(r'^(?:(\w+):)?.*"reservoirVersion":(\d+)', re.MULTILINE)


@dataclass(frozen=True)
class Savepoint:
    """What a savepoint holds: table versions, the last bronze batch that was taken, and of each query its last batch and fingerprint."""

    name: str
    created_at: str
    versions: Mapping[str, int]
    bronze_batch: int
    batches: Mapping[str, int]
    fingerprints: Mapping[str, dict[str, Any]]


def root(settings: Settings) -> Path:
    """The folder of the checkpoints of all live queries."""
    return settings.checkpoints / "live"


def is_on(settings: Settings, table: Table) -> bool:
    """Whether the application runs the query of a live table. One that is switched off counts as one that never ran."""
    return settings.live_lookups or table not in (LIVE_ACCOUNT_LOOKUPS, LIVE_LOOKUP_ERRORS)


def savepoint_folder(settings: Settings, name: str = "") -> Path:
    """Where savepoints lie, or one of them."""
    return settings.checkpoints / "savepoints" / name


def read_savepoints(settings: Settings) -> list[Savepoint]:
    """Every savepoint, the oldest first."""
    files = savepoint_folder(settings).glob(f"[!.]*/{SAVEPOINT}")
    return sorted((Savepoint(**json.loads(file.read_text())) for file in files), key=lambda each: each.created_at)


def position(generation: Generation) -> int | None:
    """From which version of the live table that it follows a query continues, by its last batch that has ended; None for none."""
    return min(_versions(generation, generation.ended), default=None)


def planned(generation: Generation, *, beside: bool = False) -> int:
    """Up to, and without, which version of the live table that it follows a query has planned batches, or of what it reads beside it.

    0 where it has planned none, or does not say.
    """
    return max(_versions(generation, generation.planned, beside=beside), default=0)


def unread_from(settings: Settings, table: Table) -> int | None:
    """From which version of a live table on some live query has yet to take its commits; None where none that is on ever ran.

    A query in SQL whose file is refused will take them once the file is repaired.
    """
    followers = [result for result, followed in LIVE_RESULTS.items() if followed == table and is_on(settings, result)]
    names = [follower.name.removeprefix("gold.live_") for follower in followers]
    folders = [root(settings) / name for name in (*names, *(REFUSED_LIVE if table == LIVE_TRANSACTIONS else ()))]
    found = [position(Generation(folder, str(facts["number"]))) for folder in folders if (facts := checkpoints.read_facts(folder))]
    return min((version for version in found if version is not None), default=None)


def _versions(generation: Generation, batch: int, *, beside: bool = False) -> list[int]:
    """The version of each source of live rows, or of each other one, up to which a batch reaches."""
    found = _SOURCE.findall("\n".join(generation.plan(batch))) if batch >= 0 else []
    return [int(version) for name, version in found if name.startswith(BESIDE) == beside]
