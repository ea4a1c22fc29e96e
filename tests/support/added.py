"""A copy of this checkout to which a test adds files, and commands of the pipeline run with the code of that copy."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from spark_jobs import run
from spark_jobs.runtime import session
from spark_jobs.runtime.settings import ROOT, Settings, read_settings
from tests.conftest import SMALL_FRAMES
from tests.support import lake
from tests.support.rows import Record

Step = Callable[[Settings, str], None]  # settings, and the name of the step


def copy_checkout(folder: Path) -> Path:
    """A copy of this checkout."""
    checkout = folder / "checkout"
    for name in ("spark_jobs", "expectations", "include", "tests"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    (checkout / ".jars").symlink_to(ROOT / ".jars")
    return checkout


def play(checkout: Path, module: str, part: str) -> subprocess.CompletedProcess[str]:
    """Run a part of a module (see `run_part`) in a process of its own, with the code of that checkout."""
    words = [sys.executable, "-m", module, str(checkout / "home"), part]
    return subprocess.run(words, cwd=checkout, capture_output=True, text=True, check=False)


def run_part(words: Sequence[str], parts: Mapping[str, Sequence[str]], steps: Mapping[str, Step]) -> int:
    """Run `HOME PART`: each line of a part is the name of a step or a command; the exit code is that of the first that fails."""
    home, part = words
    settings = read_settings({"LEDGER_HOME": home, "LEDGER_SPARK_MASTER": "local[2]"})
    spark = session.start_session(settings, "tests")
    for name, value in SMALL_FRAMES.items():
        spark.conf.set(name, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "read_settings", lambda: settings)
        patch.setattr(session, "start_session", lambda *_, **__: spark)
        for line in parts[part]:
            if line in steps:
                steps[line](settings, line)
            elif code := run.main(line.split()):
                sys.stderr.write(f"{line}: exit code {code}\n")
                return code
    return 0


def arrive(settings: Settings, found: Mapping[str, Sequence[Record]]) -> None:
    """Records enter bronze, of each topic as its next batch."""
    for topic, records in found.items():
        batch = 1 + max((row["_batch"] for row in lake.rows_of(settings, lake.BRONZE[topic])), default=0)
        lake.arrive(settings, topic, batch, list(records))
