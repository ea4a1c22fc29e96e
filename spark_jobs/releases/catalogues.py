"""SQL catalogues of releases: `<home>/catalogues/release-3.duckdb`, whose views are the tables of release 3, and `newest.duckdb`.

A catalogue holds no rows, and nothing depends on it. So one that cannot be written is reported and written by a later run. Beside each
lies the SQL that made it; a catalogue whose SQL would be another one today (the release was archived, the warehouse moved) is replaced.
"""

import logging
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from spark_jobs.lake import leases
from spark_jobs.releases import duckdb_file, retention, views
from spark_jobs.releases.releases import Release
from spark_jobs.runtime import storage
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.errors import LedgerError, first_line
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

_MOST = 5  # that one run writes: many are missing where releases are older than catalogues
_WAIT_SECONDS = 60.0


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
    offered = retention.offered(settings, datetime.now(UTC))
    for draft in folder(settings).glob(".*"):  # of a process that died
        draft.unlink()
    scripts = {release.release_id: views.in_duckdb(settings, release) for release in reversed(offered)}
    wanted = [number for number, script in scripts.items() if not _is_current(file_of(settings, number), script)]
    for number in wanted[:_MOST]:
        try:
            _write(file_of(settings, number), scripts[number], on_s3=storage.is_remote(settings.warehouse))
        except (LedgerError, OSError) as error:
            log.warning("release %d has no SQL catalogue (%s); the release is published nevertheless: %s", number, error, _AGAIN)
    _point_at_newest(settings, offered)
    _remove_others(settings, offered)


def _is_current(file: Path, script: str) -> bool:
    try:
        return file.exists() and _script_of(file).read_text() == script
    except OSError:
        return False


def _write(file: Path, script: str, *, on_s3: bool) -> None:
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft.unlink(missing_ok=True)
    duckdb_file.write(draft, script, on_s3=on_s3)
    kill_point("before a catalogue is swapped")
    os.replace(draft, file)
    kill_point("after a catalogue is swapped")
    write_whole(_script_of(file), script)
    log.info("SQL catalogue: %s", file)


def _script_of(file: Path) -> Path:
    return file.with_suffix(".sql")


def _point_at_newest(settings: Settings, offered: Sequence[Release]) -> None:
    files = [file for release in offered if (file := file_of(settings, release.release_id)).exists()]
    if files and (newest := file_of(settings)).resolve() != files[-1].resolve():
        draft = newest.with_name(f".{newest.name}.{os.getpid()}")
        draft.symlink_to(files[-1].name)
        os.replace(draft, newest)


def _remove_others(settings: Settings, offered: Sequence[Release]) -> None:
    kept = {file_of(settings, release.release_id).stem for release in offered}
    for file in folder(settings).glob("release-*.*"):
        if file.stem not in kept:
            file.unlink()
            log.info("removed %s: readers are not offered that release any more", file.name)
