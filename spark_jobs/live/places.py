"""Where the live queries keep their states and savepoints: the files, read without Spark."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_jobs.bronze import checkpoint_files
from spark_jobs.lake.tables import LIVE_RESULTS
from spark_jobs.runtime.settings import Settings

STATELESS, LAST_STATE, SAVEPOINT_FIRST = MODES = ("stateless", "last-state", "savepoint")  # of an upgrade
GENERATION = "generation.json"
SAVEPOINT = "savepoint.json"
_RESERVOIR = re.compile(r'"reservoirVersion":(\d+)')


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


def savepoint_folder(settings: Settings, name: str = "") -> Path:
    """Where savepoints lie, or one of them."""
    return settings.checkpoints / "savepoints" / name


def read_savepoints(settings: Settings) -> list[Savepoint]:
    """Every savepoint, the oldest first."""
    files = savepoint_folder(settings).glob(f"[!.]*/{SAVEPOINT}")
    return sorted((Savepoint(**json.loads(file.read_text())) for file in files), key=lambda each: each.created_at)


def position(folder: Path) -> int | None:
    """From which version of its sources a query goes on, by the last batch of its checkpoint that has ended; None where there is none."""
    ended = checkpoint_files.last(folder, "commits")
    if ended < 0:
        return None
    found = _RESERVOIR.findall((folder / "offsets" / str(ended)).read_text())
    return min(map(int, found), default=None)


def planned(folder: Path) -> int:
    """Up to, and without, which version of its sources a query has planned batches; 0 where it has planned none, or does not say."""
    last = checkpoint_files.last(folder, "offsets")
    found = _RESERVOIR.findall((folder / "offsets" / str(last)).read_text()) if last >= 0 else []
    return max(map(int, found), default=0)


def unread_from(settings: Settings) -> int | None:
    """From which version of gold.live_transactions on some live query has yet to take its commits; None where none ever ran."""
    files = (root(settings) / table.name.removeprefix("gold.live_") / GENERATION for table in LIVE_RESULTS)
    folders = [file.parent / str(json.loads(file.read_text())["number"]) for file in files if file.exists()]
    return min((found for folder in folders if (found := position(folder)) is not None), default=None)
