"""A job as a process that need not import anything: it is forked from one that has imported what jobs use (imported_jobs.py).

Importing takes a job 1 to 2 s, and a gate 8. What follows is the job as ever: arguments, environment, exit code, output.
"""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from tempfile import TemporaryDirectory

from spark_jobs.runtime.settings import ROOT

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.support.imported_jobs"])


def run(words: Sequence[str], environment: Mapping[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run `python -m spark_jobs.run` with these words to its end; raises TimeoutExpired, with what it said, when that takes longer."""
    _start_server()
    with TemporaryDirectory() as folder:
        said = [Path(folder) / name for name in ("output", "errors")]
        process = _FORKS.Process(target=_be, args=(words, environment, said))
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
            output, errors = (file.read_bytes() for file in said)
            raise subprocess.TimeoutExpired(list(words), seconds, output, errors)
        return subprocess.CompletedProcess(words, process.exitcode, *(file.read_text() for file in said))


def _start_server() -> None:
    """Start what is forked from, once; without the marks of a home, or it would be stopped with that home's other processes."""
    own = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("LEDGER_")}
    try:
        forkserver.ensure_running()
    finally:
        os.environ |= own


def _be(words: Sequence[str], environment: Mapping[str, str], said: Sequence[Path]) -> None:
    """Be the job, with no input, and these files for its output."""
    for number, file in enumerate((Path(os.devnull), *said)):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), number)
    os.environ.clear()
    os.environ |= environment
    os.chdir(ROOT)
    from spark_jobs import run

    sys.exit(run.main(words))
