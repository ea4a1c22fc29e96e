"""SQL catalogues of releases: `<home>/catalogues/release-3.duckdb`, whose views are the tables of release 3, and `newest.duckdb`.

A catalogue holds no rows, and nothing depends on it. So one that cannot be written is reported and written by a later run. `made.json`
tells how each was made; one that would be made in another way today (the release was archived, the warehouse moved) is replaced.
"""

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from spark_jobs.lake import leases
from spark_jobs.lake.tables import BY_NAME
from spark_jobs.releases import archive, duckdb_file, retention, views
from spark_jobs.releases.releases import Release, find_release
from spark_jobs.runtime import storage
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.errors import LedgerError, first_line
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

_MOST = 5  # that one run writes: many are missing where releases are older than catalogues
_WAIT_SECONDS = 60.0
_MADE = "made.json"


def folder(settings: Settings) -> Path:
    """Where the catalogues are."""
    return settings.home / "catalogues"


def file_of(settings: Settings, release_id: int | None = None) -> Path:
    """The catalogue of a release, or of the newest one that has a catalogue, if it is there."""
    return folder(settings) / ("newest.duckdb" if release_id is None else f"release-{release_id}.duckdb")


def bring_up_to_date(settings: Settings) -> None:
    """Write the catalogues that are missing or out of date, and remove those of releases that readers are not offered any more.

    Never fails: whoever calls it has published, archived or expired a release already. What went wrong is in the log.
    """
    try:
        with leases.hold_names(settings, ["catalogues"], owner="catalogues of releases", wait_seconds=_WAIT_SECONDS):
            _bring_up_to_date(settings)
    except Exception as error:
        log.warning("the SQL catalogues could not be brought up to date (%s); nothing else is affected: %s", first_line(error), _AGAIN)
        log.info("where that failed:", exc_info=True)


_AGAIN = "run release or maintenance writes them again"


def _bring_up_to_date(settings: Settings) -> None:
    offered, archived = retention.offered(settings, datetime.now(UTC)), archive.archived(settings)
    for draft in folder(settings).glob(".*"):  # of a process that died
        draft.unlink()
    wanted, before, present = _way_of_making(settings), _read_made(settings), {file.name for file in folder(settings).glob("release-*")}
    made = {number: before[number] for number in offered if number in before}
    ways = {number: f"{wanted} of a copy" if number in archived else wanted for number in offered}
    stale = [number for number in reversed(offered) if made.get(number) != ways[number] or file_of(settings, number).name not in present]
    for number in stale[:_MOST]:
        try:
            script = views.in_duckdb(settings, find_release(settings, number))
            _write(file_of(settings, number), script, on_s3=storage.is_remote(settings.warehouse))
        except (LedgerError, OSError) as error:
            log.warning("release %d has no SQL catalogue (%s); the release is published nevertheless: %s", number, error, _AGAIN)
        else:
            made[number] = ways[number]
    if made != before:
        write_whole(folder(settings) / _MADE, json.dumps(made))
    _point_at_newest(settings, offered)
    _remove_others(settings, offered)


def _way_of_making(settings: Settings) -> str:
    """What stays the same from release to release: where the warehouse is, and how a catalogue is written today."""
    sample = Release(0, datetime.min.replace(tzinfo=UTC), dict.fromkeys(BY_NAME, 0), {}, dict.fromkeys(BY_NAME, 0))
    return hashlib.sha256(views.in_duckdb(settings, sample).encode()).hexdigest()[:16]


def _read_made(settings: Settings) -> dict[int, str]:
    try:
        return {int(number): str(way) for number, way in json.loads((folder(settings) / _MADE).read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _write(file: Path, script: str, *, on_s3: bool) -> None:
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft.unlink(missing_ok=True)
    duckdb_file.write(draft, script, on_s3=on_s3)
    kill_point("before a catalogue is swapped")
    os.replace(draft, file)
    kill_point("after a catalogue is swapped")
    log.info("SQL catalogue: %s", file)


def _point_at_newest(settings: Settings, offered: Sequence[int]) -> None:
    file = next((file for number in reversed(offered) if (file := file_of(settings, number)).exists()), None)
    if file and (newest := file_of(settings)).resolve() != file.resolve():
        draft = newest.with_name(f".{newest.name}.{os.getpid()}")
        draft.symlink_to(file.name)
        os.replace(draft, newest)


def _remove_others(settings: Settings, offered: Sequence[int]) -> None:
    kept = {file_of(settings, number).name for number in offered}
    for file in folder(settings).glob("release-*"):
        if file.name not in kept:
            file.unlink()
            log.info("removed %s", file.name)
