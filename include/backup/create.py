"""Make a backup: while nobody writes, everything is linked or copied; what was taken is then read again and listed."""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path

from deltalake import DeltaTable

from include.backup import databases, manifest
from include.backup.manifest import Manifest
from spark_jobs.lake import leases, schema, tables
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings
from spark_jobs.service import desired_state, heartbeat
from spark_jobs.service.services import INGESTION, LIVE

Report = Callable[[str], None]

SECRETS = ("*.password", "*.key", "*.secret")
_WRITERS = (INGESTION, LIVE)  # hold their tables for as long as they run
_LEASE = "all tables"  # one backup at a time; it comes before the names of jobs, which are waited for while it is held
_JOBS = ("maintenance", "backfill")  # hold a lease of their own besides those of tables
# Of processes that run here and now. (Of `engine/` and `progress/` nothing else is in there.)
_PASSING = ("engine", "progress", "*.heartbeat", "*.log", "*.log.1", "*.exit", "jobs")
_NEVER_CHANGED = (".parquet", ".bin")  # files of Delta that are written once and then only removed


def parts(settings: Settings) -> dict[str, Path]:
    """The folders of a home that a backup holds, by their names in it."""
    return {
        "warehouse": settings.warehouse,
        "checkpoints": settings.checkpoints,
        "quality": settings.quality,
        "alerts": settings.home / "alerts",
        "secrets": settings.home / "stack" / "airflow",
    }


def create(settings: Settings, target: Path, wait_seconds: float, report: Report, environ: Mapping[str, str] = os.environ) -> Manifest:
    """Copy one moment of the warehouse, checkpoints, reports, databases and secrets to a new folder.

    Ingestion and live processing are asked to end their batch; their DAGs start them again. Jobs that run are waited for. On the file
    system of the home, large files that never change are linked, which takes no time and no space.
    Raises SettingsError for a folder that cannot take a backup, LeaseHeld when a job still writes after `wait_seconds`, and LedgerError
    when something cannot be copied or read again; then there is no backup, and everything else continues.
    """
    _check(settings, target)
    draft = target.with_name(f".{target.name}.draft")
    with leases.hold_names(settings, [_LEASE], owner="backup", wait_seconds=0):
        shutil.rmtree(draft, ignore_errors=True)  # of a process that died
        try:
            draft.mkdir(parents=True)
            with databases.running(settings.home, environ) as urls, _nobody_writes(settings, wait_seconds, report):
                begun, made_at = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
                for name, folder in parts(settings).items():
                    if folder.exists():
                        shutil.copytree(folder, draft / name, ignore=_left_out(name), copy_function=_take)
                (draft / "databases").mkdir()
                for name, url in urls.items():
                    databases.dump(url, draft / "databases" / f"{name}.dump")
                report(f"copied; nobody wrote for {time.monotonic() - begun:.1f} s")
            version, found = schema.refuse_newer(settings), _versions(draft / "warehouse")
            made = Manifest(made_at, version, manifest.meaning(settings), found, manifest.measure(draft))
            manifest.write(draft, made)
            draft.rename(target)
        except OSError as error:
            raise LedgerError(f"no backup was made: {error}: see that the folder can be written to and has room") from None
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return made


def refuse_objects(settings: Settings) -> None:
    """Raise SettingsError where the tables or the checkpoints are in object storage, which has its own ways to keep what was."""
    if settings.remote:
        raise SettingsError(
            f"found {settings.remote[0]}, which is in object storage, expected folders on a disk: keep a replica of the bucket, or "
            "versions of its objects, and a dump of Postgres (include/docs/object-storage.md)"
        )


def _check(settings: Settings, target: Path) -> None:
    refuse_objects(settings)
    if target.exists():
        raise SettingsError(f"found {target} already, expected a folder that is not there yet: name another one")
    for folder in (settings.warehouse, settings.checkpoints, settings.quality):
        if target.resolve().is_relative_to(folder.resolve()):
            raise SettingsError(f"{target} lies in {folder}, which is to be copied: name a folder elsewhere")
    if not settings.warehouse.exists():
        raise SettingsError(f"found no warehouse at {settings.warehouse}, so there is nothing to back up: check LEDGER_HOME")


@contextmanager
def _nobody_writes(settings: Settings, wait_seconds: float, report: Report) -> Iterator[None]:
    """Hold the leases of all tables. If this process dies, they are free, and the services come back by themselves."""
    for service in _WRITERS:
        if any(beat.is_alive() for beat in heartbeat.read(settings, service)):
            report(f"{service.name} ends its batch; the DAG {service.dag} starts it again after the copy (by hand, start it yourself)")
            desired_state.ask(settings, service, desired_state.RUN, "backup", "a backup is being made")
    names = [*_JOBS, *(table.name for table in tables.EVERY)]
    with leases.hold_names(settings, names, owner="backup", wait_seconds=wait_seconds):
        yield


def _left_out(part: str) -> Callable[[str, list[str]], set[str]]:
    """Which names of a folder are not copied: what is of running processes, drafts, and what is neither file nor folder."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        if part == "secrets":
            return {name for name in names if not any(fnmatch(name, kind) for kind in SECRETS)}
        passing = _PASSING if part == "checkpoints" else ()
        special = {name for name in names if not os.path.isdir(path := os.path.join(folder, name)) and not os.path.isfile(path)}
        return special | {name for name in names if any(fnmatch(name, kind) for kind in passing)}

    return left_out


def _take(source: str, target: str) -> str:
    """A second name for a large file that never changes, else a copy."""
    if source.endswith(_NEVER_CHANGED):
        try:
            os.link(source, target)
            return target
        except OSError:  # another file system, or one without links
            pass
    return str(shutil.copy2(source, target))


def _versions(warehouse: Path) -> dict[str, int]:
    """The version of every Delta table that was copied. Raises LedgerError when one lacks a file of its newest version."""
    versions = {}
    for log in sorted(warehouse.glob("*/*/_delta_log")):
        table = DeltaTable(str(log.parent))
        name = f"{log.parent.parent.name}.{log.parent.name}"
        if missing := [file for file in table.file_uris() if not Path(file).exists()]:
            raise LedgerError(f"no backup was made: {name} lacks {missing[0]} of its version {table.version()}: run the audit")
        versions[name] = table.version()
    return versions
