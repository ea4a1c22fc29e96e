"""Bring a backup into an empty home; every file is compared with the hash that the backup has of it."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from include.backup import databases, manifest
from include.backup.create import parts, refuse_objects
from include.backup.manifest import Manifest
from include.stack.endpoints import only_one, stack_folder
from include.stack.processes import find_all
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.job_process import COMMAND, job_environment
from spark_jobs.runtime.settings import ROOT, Settings

Report = Callable[[str], None]

_DRAFT = ".restore"  # while it is there, what lies in the home is of a restore that is not complete


def restore(settings: Settings, source: Path, report: Report, environ: Mapping[str, str] = os.environ) -> Manifest:
    """Fill a home that has no warehouse, checkpoints or databases from a backup. One that died halfway is begun again.

    Raises SettingsError for a home that is not empty, and LedgerError for a folder that is no backup, for a file that is missing or not
    the one that was backed up, and for a database that cannot be filled.
    """
    made, draft = manifest.read(source), settings.home / _DRAFT
    _check(settings, draft)
    stack_folder(settings.home)
    with only_one(settings.home, report):
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        for name, expected in made.files.items():
            manifest.copy_checked(source / name, draft / name, expected)
        report(f"{len(made.files):,} files, {made.size / 1e6:,.1f} MB, all as they were backed up")
        for name, folder in parts(settings).items():
            shutil.rmtree(folder, ignore_errors=True)
            if (draft / name).exists():
                folder.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(draft / name, folder)
        shutil.rmtree(settings.home / "stack/postgres", ignore_errors=True)
    _fill_databases(settings, draft, environ)
    shutil.rmtree(draft)
    for name, text in manifest.meaning(settings).items():
        if text != made.settings.get(name, text):
            report(f"{name} was {made.settings[name]} and is {text} here: set it to the same, or gold will differ from its history")
    return made


def audit(settings: Settings, environ: Mapping[str, str] = os.environ) -> int:
    """Recompute silver and gold of a home from its bronze and compare; returns the exit code of the job, 0 where all is right."""
    own = {"LEDGER_HOME": str(settings.home), "LEDGER_WAREHOUSE": str(settings.warehouse), "LEDGER_CHECKPOINTS": str(settings.checkpoints)}
    return subprocess.run([*COMMAND, "audit"], cwd=ROOT, env={**environ, **job_environment(), **own}).returncode


def _check(settings: Settings, draft: Path) -> None:
    """Refuse a home in which something would be lost."""
    refuse_objects(settings)
    if running := find_all(settings.home):
        raise SettingsError(f"found {len(running)} processes of {settings.home}, expected none: run make down, or set another LEDGER_HOME")
    if draft.exists():
        return
    present = [folder for folder in (*parts(settings).values(), settings.home / "stack/postgres") if folder.exists()]
    if present:
        raise SettingsError(f"found {present[0]}, expected an empty home, so that nothing is lost: set LEDGER_HOME to a new folder")


def _fill_databases(settings: Settings, draft: Path, environ: Mapping[str, str]) -> None:
    dumps = {file.stem: file for file in (draft / "databases").glob("*.dump")}
    with databases.running(settings.home, environ) as urls:
        if set(urls) != set(dumps):
            raise LedgerError(
                f"the backup has the databases {sorted(dumps)}, found {sorted(urls)} here: set LEDGER_POSTGRES_URL to an empty "
                "database if the backup is of an outside Postgres, and unset it if not"
            )
        for name, url in urls.items():
            databases.load(url, dumps[name])
