"""A backup is one moment of a home, whole or not there; what comes back is what was backed up, or the damage is named."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from deltalake import DeltaTable

from include.backup import create, manifest, restore
from include.stack import postgres
from include.stack.processes import find_all
from spark_jobs.lake import leases
from spark_jobs.lake.tables import BRONZE_TRANSACTIONS, DAILY_TOTALS, EVERY
from spark_jobs.runtime.errors import LeaseHeld, LedgerError, SettingsError
from spark_jobs.runtime.settings import ROOT, Settings, read_settings
from tests.support.databases import execute, running_postgres
from tests.support.publishing import one_more
from tests.support.warehouse import settings_of

Copy = Callable[[], Settings]
NONE: dict[str, str] = {}


def silent(_: str) -> None:
    """Nobody listens."""


def rows(settings: Settings) -> dict[str, list[dict[str, Any]]]:
    present = [table for table in EVERY if table.exists(settings)]
    return {table.name: sorted(table.open(settings).to_pyarrow_table().to_pylist(), key=repr) for table in present}


@pytest.fixture(scope="module")
def made(good_release: Settings, tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, Path]:
    """A home with databases and secrets, and its backup."""
    folder = tmp_path_factory.mktemp("backup")
    shutil.copytree(good_release.home, folder / "home")
    settings = settings_of(folder / "home")
    with running_postgres(settings.home) as url:
        execute(url, "INSERT INTO accounts (account_id, district_id, updated_at) VALUES ('A00000001', 7, now())")
        airflow = settings.home / "stack/airflow"
        airflow.mkdir()
        for name in ("fernet.key", "admin.password", "airflow-scheduler.log"):
            (airflow / name).write_text(name)
        create.create(settings, folder / "copy", 10, silent, NONE)
    return settings, folder / "copy"


def test_everything_comes_back_in_another_home(made: tuple[Settings, Path], tmp_path: Path) -> None:
    source, backup = made
    other = settings_of(tmp_path / "other")
    restore.restore(other, backup, silent, NONE)
    assert rows(other) == rows(source)
    assert find_all(other.home) == []
    assert {file.name for file in (other.home / "stack/airflow").iterdir()} == {"fernet.key", "admin.password"}
    with running_postgres(other.home) as url:
        connection = psycopg2.connect(url)
        with connection.cursor() as cursor:
            cursor.execute("SELECT account_id, district_id FROM accounts")
            assert cursor.fetchall() == [("A00000001", 7)]
        connection.close()
    assert [path for path in other.home.rglob("*") if path.stat().st_mode & 0o077 and "postgres" not in path.parts] == []


def test_a_backup_stays_as_it_was_whatever_happens_to_the_home(copy_home: Copy, tmp_path: Path) -> None:
    settings = copy_home()
    before = rows(settings)
    made = create.create(settings, tmp_path / "copy", 10, silent, NONE)
    one_more(settings, 3)
    delta = DeltaTable(str(BRONZE_TRANSACTIONS.path(settings)))
    delta.optimize.compact()
    delta.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert manifest.measure(tmp_path / "copy").items() >= made.files.items()
    other = settings_of(tmp_path / "other")
    restore.restore(other, tmp_path / "copy", silent, NONE)
    assert rows(other) == before != rows(settings)


def test_a_damaged_file_is_named_and_a_second_try_begins_again(made: tuple[Settings, Path], tmp_path: Path) -> None:
    source, backup = made
    damaged, other = tmp_path / "damaged", settings_of(tmp_path / "other")
    shutil.copytree(backup, damaged)
    file = next((damaged / "warehouse/gold/daily_totals").glob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(LedgerError, match=f"{file.name}: found .* the file was changed or damaged"):
        restore.restore(other, damaged, silent, NONE)
    assert not DAILY_TOTALS.exists(other)
    file.unlink()
    with pytest.raises(LedgerError, match=f"lacks .*{file.name}"):
        restore.restore(other, damaged, silent, NONE)
    restore.restore(other, backup, silent, NONE)
    assert rows(other) == rows(source)
    with pytest.raises(SettingsError, match="expected an empty home, so that nothing is lost"):
        restore.restore(other, backup, silent, NONE)


def test_folders_that_are_no_backup_are_refused(made: tuple[Settings, Path], tmp_path: Path) -> None:
    _, backup = made
    other = settings_of(tmp_path / "other")
    with pytest.raises(LedgerError, match=r"found no manifest\.json, expected a complete backup"):
        restore.restore(other, tmp_path, silent, NONE)
    evil = tmp_path / "evil"
    evil.mkdir()
    text = (backup / manifest.FILE).read_text()
    (evil / manifest.FILE).write_text(text.replace('"files": {', '"files": {"../../outside": [1, "x"],', 1))
    with pytest.raises(LedgerError, match="expected paths below the backup only"):
        restore.restore(other, evil, silent, NONE)
    (evil / manifest.FILE).write_text(text.replace('"schema_version": ', '"schema_version": 9', 1))
    with pytest.raises(LedgerError, match="use the version of the project that made it"):
        restore.restore(other, evil, silent, NONE)
    assert not other.warehouse.exists()


def test_other_settings_are_told(made: tuple[Settings, Path], tmp_path: Path) -> None:
    _, backup = made
    said: list[str] = []
    other = read_settings({"LEDGER_HOME": str(tmp_path / "other"), "LEDGER_LARGE_CREDIT": "70000"})
    restore.restore(other, backup, said.append, NONE)
    assert "LEDGER_LARGE_CREDIT was 50000 and is 70000 here" in said[-1]


def test_a_job_that_writes_is_waited_for(copy_home: Copy, tmp_path: Path) -> None:
    settings = copy_home()
    code = "import sys; from spark_jobs.lake import leases; from spark_jobs.runtime.settings import read_settings\n"
    code += "with leases.hold_names(read_settings(), ['gold.daily_totals'], 'gold'): print('held', flush=True); sys.stdin.read()"
    environment = {**os.environ, "LEDGER_HOME": str(settings.home)}
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout
        assert writer.stdin
        assert writer.stdout.readline() == "held\n"
        with pytest.raises(LeaseHeld, match=r"gold\.daily_totals is being written by gold \(process"):
            create.create(settings, tmp_path / "copy", 0.5, silent, NONE)
        assert [path.name for path in tmp_path.iterdir()] == ["home"]
        assert find_all(settings.home) == []
        writer.stdin.close()
    create.create(settings, tmp_path / "copy", 10, silent, NONE)


def test_a_backup_that_is_killed_holds_nothing_up(copy_home: Copy, tmp_path: Path) -> None:
    settings = copy_home()
    code = "import os, signal; from include.backup import manifest, __main__ as command\n"
    code += "manifest.measure = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
    code += f"command.main(['create', {str(tmp_path / 'copy')!r}])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "LEDGER_HOME": str(settings.home)}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "copy").exists()
    with leases.hold(settings, EVERY, "a job", wait_seconds=0):
        pass
    made = create.create(settings, tmp_path / "copy", 10, silent, NONE)
    assert made.files
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "home"]


def test_where_a_backup_cannot_go(copy_home: Copy, tmp_path: Path) -> None:
    settings = copy_home()
    with pytest.raises(SettingsError, match="expected a folder that is not there yet"):
        create.create(settings, tmp_path, 1, silent, NONE)
    with pytest.raises(SettingsError, match="which is to be copied: name a folder elsewhere"):
        create.create(settings, settings.warehouse / "copy", 1, silent, NONE)
    with pytest.raises(SettingsError, match="so there is nothing to back up: check LEDGER_HOME"):
        create.create(settings_of(tmp_path / "none"), tmp_path / "copy", 1, silent, NONE)
    missing = next(BRONZE_TRANSACTIONS.path(settings).rglob("*.parquet"))
    missing.unlink()
    with pytest.raises(LedgerError, match=r"bronze\.transactions lacks .*: run the audit"):
        create.create(settings, tmp_path / "copy", 1, silent, NONE)
    assert not (tmp_path / "copy").exists()


def test_no_password_is_in_an_argument(made: tuple[Settings, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, backup = made
    seen: list[list[str]] = []
    run = subprocess.run

    def watched(command: list[str], **more: Any) -> subprocess.CompletedProcess[Any]:
        seen.append(command)
        return run(command, **more)

    monkeypatch.setattr(subprocess, "run", watched)
    other = settings_of(tmp_path / "other")
    restore.restore(other, backup, silent, NONE)
    password = postgres.password_file(other.home).read_text()
    assert any("pg_restore" in word for command in seen for word in command)
    assert not any(password in word for command in seen for word in command)
