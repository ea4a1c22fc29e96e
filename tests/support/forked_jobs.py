"""A job whose libraries are imported already: tests fork it from a fork server of their own (spark_jobs/runtime/fork_server.py)."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from spark_jobs.runtime import fork_server, forks
from spark_jobs.runtime.job_process import job_environment
from spark_jobs.runtime.settings import ROOT

_UMASK = 0o022  # a job makes its files private itself


def run(words: Sequence[str], environment: Mapping[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run `python -m spark_jobs.run` with these words to its end; raises TimeoutExpired, with what it said, when that takes longer."""
    with TemporaryDirectory() as folder:
        said = [Path(folder) / name for name in ("output", "errors")]
        with open(os.devnull, "rb") as nothing, said[0].open("wb") as output, said[1].open("wb") as errors:
            streams = {"stdin": nothing.fileno(), "stdout": output.fileno(), "stderr": errors.fileno()}
            command = [sys.executable, "-m", "spark_jobs.run", *words]
            process = forks.start(_server(), command, cwd=ROOT, env=environment, umask=_UMASK, **streams)
        try:
            exit_code = process.wait(seconds)
        except (TimeoutError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()
            raise subprocess.TimeoutExpired(list(words), seconds, *(file.read_bytes() for file in said)) from None
        return subprocess.CompletedProcess(words, exit_code, *(file.read_text() for file in said))


@cache
def _server() -> Path:
    """The folder of a fork server, which ends with this process: it reads a pipe that is open for as long. Until it has begun, none forks.

    It has no marks of a home, or it would be stopped with that home's other processes.
    """
    folder = Path(mkdtemp(prefix="forks"))
    outside = {name: value for name, value in os.environ.items() if not name.startswith("LEDGER_")}
    command = [sys.executable, fork_server.__file__, str(folder)]
    _servers.append(subprocess.Popen(command, env={**outside, **job_environment()}, stdin=subprocess.PIPE))
    return folder


_servers: list["subprocess.Popen[bytes]"] = []
