"""What the pipeline writes is for its own user alone."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_jobs import run
from spark_jobs.lake.leases import hold_names
from spark_jobs.runtime import private
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import ROOT, read_settings

ENTRIES = ["spark_jobs.run", "include.stack", "include.producer", "include.reader", "include.demo"]


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """As on most machines; what a test changes is undone."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("left", ["warehouse", "stack", None])
def test_a_home_that_an_older_version_left_open_is_closed(tmp_path: Path, left: str | None) -> None:
    home = tmp_path / "home"
    home.mkdir()
    if left:
        (home / left).mkdir()
    assert mode(home) == 0o755
    private.close_home(home)
    assert mode(home) == 0o700


def test_a_home_that_is_not_there_is_made_closed(tmp_path: Path) -> None:
    private.close_home(tmp_path / "deep/home")
    assert not (tmp_path / "deep").exists()
    with hold_names(read_settings({"LEDGER_HOME": str(tmp_path / "deep/home")}), ["x"], "test"):
        made = [tmp_path / "deep", *(tmp_path / "deep").rglob("*")]
        assert len(made) == 5
        assert {mode(path) for path in made} == {0o700, 0o600}


@pytest.mark.parametrize(("permissions", "name"), [(0o755, "letters"), (0o1777, "warehouse")])
def test_a_folder_with_other_things_in_it_is_refused_and_stays_as_it_is(tmp_path: Path, permissions: int, name: str) -> None:
    home = tmp_path / "home"
    (home / name).mkdir(parents=True)
    home.chmod(permissions)
    with pytest.raises(SettingsError, match=rf"open to other users \(mode {permissions:o}\), expected one for this alone"):
        private.close_home(home)
    assert home.stat().st_mode & 0o7777 == permissions


def test_a_job_closes_its_home_and_the_leases_of_a_warehouse_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, leases = tmp_path / "home", tmp_path / "elsewhere/.leases"
    home.mkdir()
    leases.mkdir(parents=True)
    monkeypatch.setenv("LEDGER_HOME", str(home))
    monkeypatch.setenv("LEDGER_WAREHOUSE", str(tmp_path / "elsewhere"))
    assert run.main(["release"]) == 3  # nothing was judged
    assert (mode(home), mode(leases), mode(tmp_path / "elsewhere")) == (0o700, 0o700, 0o755)


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_point_keeps_its_files_private(entry: str) -> None:
    """Each calls it before anything else; what it does then does not matter here."""
    code = (
        "import os, sys; from importlib import import_module; os.umask(0o022)\n"
        f"main = import_module('{entry}' if '{entry}' == 'spark_jobs.run' else '{entry}.__main__')\n"
        "main.run = main.read_settings = main._parse = lambda *_: sys.exit(0)\n"
        "try: main.main(sys.argv[2:])\n"
        "except BaseException: pass\n"
        "mask = os.umask(0); print(f'{mask:o}')"
    )
    words = {"spark_jobs.run": ["release"], "include.stack": ["status"]}.get(entry, [])
    environ = {**os.environ, "LEDGER_HOME": "/dev/null/none"}
    done = subprocess.run([sys.executable, "-c", code, entry, *words], cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.stdout.split()[-1] == "77", done.stderr
