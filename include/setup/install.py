"""Set up everything a checkout needs: a virtual environment and the locked jars.

Runs on a bare Python 3.11+ with the standard library only; `make` calls it before every other target.
A second run compares sums with what is installed and needs no network. With `--production`, as in the image, what only
developers need (include/dev) is left out.
"""

import compileall
import fcntl
import hashlib
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
JARS = ROOT / ".jars"
LOCKS = {
    "spark": ROOT / "include/spark/jars.lock",
    "kafka": ROOT / "include/stack/kafka-jars.lock",
    "s3": ROOT / "include/spark/s3-jars.lock",
}
MEGABYTES = {"packages": 2000, "spark": 24, "kafka": 45, "s3": 13}  # at most, of what is downloaded
MEGABITS_A_SECOND = 100
REQUIREMENTS = "requirements.txt"
FOR_DEVELOPERS = "include/dev/requirements.txt"
UV_LOCK = "include/dev/uv-requirements.txt"
LEAST_PYTHON = (3, 11)
LEAST_JAVA = 17


class SetupError(Exception):
    """Set-up cannot continue; the text says what was found, what was expected and what to do."""


def main(arguments: Sequence[str] = ()) -> int:
    """Bring the checkout up to its lock files; 0 when it is, 1 with one line when it cannot be."""
    locks = [REQUIREMENTS] if "--production" in arguments else [REQUIREMENTS, FOR_DEVELOPERS]
    try:
        check_python()
        check_java()
        with open(ROOT / ".setup.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            announce_downloads(locks)
            install_python_packages(locks)
            compile_pyspark()
            for group, lock_file in LOCKS.items():
                fetch_jars(lock_file, JARS / group)
            archive_classes()
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


def check_python() -> None:
    """Refuse an interpreter older than the lock file was made for."""
    if sys.version_info < LEAST_PYTHON:
        found = ".".join(map(str, sys.version_info[:3]))
        raise SetupError(f"found Python {found}, expected 3.11 or newer: install it, or run make PYTHON=/path/to/python3.11")


def check_java() -> None:
    """Refuse a missing or too old Java, in one line that says what to install."""
    advice = "install a JDK 17 or newer (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
    java = java_command()
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        raise SetupError(f"no Java found ({java} does not run): {advice}") from None
    version = re.search(r'version "(?:1\.)?(\d+)', answer)
    if version is None or int(version[1]) < LEAST_JAVA:
        raise SetupError(f"found Java {version[1] if version else answer.strip()!r}, expected {LEAST_JAVA} or newer: {advice}")


def announce_downloads(locks: Sequence[str]) -> None:
    """Say what is missing, how large it is and how long that takes; nothing where nothing is missing."""
    groups = [] if packages_are_current(locks) else ["packages"]
    groups += [group for group, lock in LOCKS.items() if not all((JARS / group / name).exists() for name in read_lock(lock))]
    if not groups:
        return
    parts = [f"{'Python packages' if group == 'packages' else f'jars for {group}'} ({MEGABYTES[group]:,} MB)" for group in groups]
    minutes = round(sum(MEGABYTES[group] for group in groups) * 8 / MEGABITS_A_SECOND / 60)
    lasts = f"{minutes} minutes" if minutes > 1 else "a minute"
    print(
        f"setup: to download, once and at most: {', '.join(parts)}; about {lasts} at {MEGABITS_A_SECOND} Mbit/s. "
        "Later commands need no network.",
        flush=True,
    )


def packages_are_current(locks: Sequence[str]) -> bool:
    """Whether `.venv` is what the lock files together ask for."""
    stamp = VENV / ".requirements.sha256"
    return stamp.exists() and stamp.read_text() == packages_sum(locks) and (VENV / "bin/python").exists()


def packages_sum(locks: Sequence[str]) -> str:
    """The SHA-256 of the lock files together."""
    return hashlib.sha256(b"".join((ROOT / lock).read_bytes() for lock in locks)).hexdigest()


def install_python_packages(locks: Sequence[str]) -> None:
    """Make `.venv` equal to the lock files together, by hash; nothing happens when it already is."""
    files = [ROOT / lock for lock in locks]
    stamp = VENV / ".requirements.sha256"
    if packages_are_current(locks):
        return
    stamp.unlink(missing_ok=True)  # a sync that fails halfway must not look done
    uv = find_uv()
    if not (VENV / "bin/python").exists():
        run([*uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(VENV)])
    count = sum(len(re.findall(r"^[\w.-]+(?:\[.*\])?==", file.read_text(), re.MULTILINE)) for file in files)
    print(
        f"setup: installing {count} Python packages into .venv (2 GB on disk; some minutes, mostly for the download)",
        flush=True,
    )
    sync = [*uv, "pip", "sync", "--require-hashes", "--python", str(VENV / "bin/python"), *map(str, files)]
    run(sync, shows_progress=sys.stderr.isatty())
    stamp.write_text(packages_sum(locks))


def compile_pyspark() -> None:
    """Add compiled modules to the archives that Spark's Python workers import PySpark from; nothing happens where they are in.

    Python keeps no bytecode for an archive, so each worker would compile a hundred modules again: 0.6 of the 0.9 s of processor time of its
    start. Spark waits for a worker for 10 s at most.
    """
    for archive in VENV.glob("lib/python*/site-packages/pyspark/python/lib/*.zip"):
        with zipfile.ZipFile(archive) as packed:
            if any(name.endswith(".pyc") for name in packed.namelist()):
                continue
        with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
            shutil.unpack_archive(archive, modules := f"{scratch}/modules")
            unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH  # times in an archive have no zone
            compileall.compile_dir(modules, ddir=str(archive), quiet=2, legacy=True, invalidation_mode=unchecked)
            made = shutil.make_archive(f"{scratch}/made", "zip", modules)
            shutil.copymode(archive, made)
            os.replace(made, archive)  # the file itself may be one with that of the package cache


def find_uv() -> list[str]:
    """The uv command; when the machine has none, the locked one, installed by pip beside the checkout's own files."""
    if found := shutil.which("uv"):
        return [found]
    lock = ROOT / UV_LOCK
    private = ROOT / ".uv" / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    if not (private / "bin/uv").exists():
        print("setup: no uv on this machine: installing it with pip into .uv", flush=True)
        checked = ["--require-hashes", "--only-binary", ":all:", "--requirement", str(lock)]
        run([sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(private), *checked])
    return [str(private / "bin/uv")]


def fetch_jars(lock_file: Path, folder: Path) -> None:
    """Fill a folder with exactly the jars of a lock file, each checked against its SHA-256.

    Missing jars come through the Ivy that PySpark ships (LEDGER_IVY_SETTINGS names a settings file for a
    company mirror). Jars that the lock does not name are removed, so a version never lies beside its successor.
    """
    locked = read_lock(lock_file)
    folder.mkdir(parents=True, exist_ok=True)
    for stray in folder.glob("*.jar"):
        if stray.name not in locked:
            stray.unlink()
    missing = {name: entry for name, entry in locked.items() if sha256(folder / name) != entry[1]}
    if not missing:
        return
    size = f" ({MEGABYTES[folder.name]} MB at most)" if folder.name in MEGABYTES else ""
    print(f"setup: fetching {len(missing)} jars for {folder.name}{size}", flush=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        resolve(Path(scratch), [coordinate for coordinate, _ in missing.values()])
        for name, (coordinate, expected) in missing.items():
            found = sha256(Path(scratch) / name)
            if found != expected:
                raise SetupError(f"{coordinate}: found SHA-256 {found}, expected {expected} ({lock_file.relative_to(ROOT)})")
            os.replace(Path(scratch) / name, folder / name)


def archive_classes() -> None:
    """Make the archive of loaded classes that halves the start of a job, once for each set of jars and Java.

    A convenience: where it cannot be made, jobs start without it and a line says so.
    """
    archive, stamp = JARS / "spark-classes.jsa", JARS / "spark-classes.stamp"
    java = subprocess.run([java_command(), "-version"], capture_output=True, text=True, check=True).stderr
    locks = [LOCKS["spark"], LOCKS["kafka"], ROOT / "requirements.txt"]
    made_of = [java.encode(), *(lock.read_bytes() for lock in locks), str(VENV).encode()]
    wanted = hashlib.sha256(b"".join(made_of)).hexdigest()
    failed = f"{wanted}: could not be made"
    found = stamp.read_text() if stamp.exists() else ""
    if found == failed or (found == wanted and archive.exists()):
        return
    print("setup: archiving Spark's classes for quicker starts (once, about a minute)", flush=True)
    archive.unlink(missing_ok=True)
    try:
        run([str(VENV / "bin/python"), "-m", "include.setup.class_archive", str(archive)])
    except SetupError as error:
        print(f"setup: no class archive, jobs will start more slowly: {error}", file=sys.stderr)
    stamp.write_text(wanted if archive.exists() else failed)


def java_command() -> str:
    """The java that JAVA_HOME names, or the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def read_lock(lock_file: Path) -> dict[str, tuple[str, str]]:
    """Jar file name -> (group:artifact:version, SHA-256), from lines `sha256  group:artifact:version`."""
    entries = {}
    for line in lock_file.read_text().splitlines():
        if line and not line.startswith("#"):
            digest, coordinate = line.split()
            _, artifact, version = coordinate.split(":")
            entries[f"{artifact}-{version}.jar"] = (coordinate, digest)
    return entries


def resolve(folder: Path, coordinates: list[str]) -> None:
    """Fetch the named jars, and nothing that they depend on, into a folder."""
    dependencies = "".join(
        f'<dependency org="{group}" name="{artifact}" rev="{version}" transitive="false"/>'
        for group, artifact, version in (coordinate.split(":") for coordinate in coordinates)
    )
    module = (
        f'<ivy-module version="2.0"><info organisation="ledger" module="jars"/><dependencies>{dependencies}</dependencies></ivy-module>'
    )
    (folder / "ivy.xml").write_text(module)
    run(ivy_command(folder, "jar", "bundle"))


def ivy_command(folder: Path, *types: str) -> list[str]:
    """The command that brings what `ivy.xml` of a folder asks for, of some types, into the folder."""
    spark_jars = next(VENV.glob("lib/python*/site-packages/pyspark/jars"))
    settings = os.environ.get("LEDGER_IVY_SETTINGS")
    return [
        java_command(),
        *("-cp", f"{spark_jars}/*", "org.apache.ivy.Main", "-warn", "-ivy", str(folder / "ivy.xml")),
        *(("-settings", settings) if settings else ()),
        *("-cache", str(folder / "cache"), "-types", *types),
        *("-retrieve", f"{folder}/[artifact]-[revision].[ext]"),
    ]


def sha256(file: Path) -> str | None:
    """The SHA-256 of a file, or None where there is none."""
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else None


def run(command: Sequence[str], *, shows_progress: bool = False) -> None:
    """Run a command; raises SetupError, after the command's output, when it fails."""
    output = None if shows_progress else subprocess.PIPE
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output and subprocess.STDOUT, text=True, cwd=ROOT)
    if done.returncode != 0:
        print(done.stdout or "", file=sys.stderr)
        raise SetupError(f"this failed, its output is above (is there a network?): {' '.join(command)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
