"""A fork server for tests, and jobs that are forked from it."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.runtime import fork_server, forks
from spark_jobs.runtime.job_process import job_environment
from spark_jobs.runtime.settings import ROOT
from tests.support.ledger import await_that


@dataclass(frozen=True)
class Place:
    """A fork server, and a folder from which its jobs import modules."""

    folder: Path
    modules: Path
    process: subprocess.Popen[bytes]

    def write(self, name: str, body: str) -> str:
        (self.modules / f"{name}.py").write_text(body)
        return name

    def environment(self, **more: str) -> dict[str, str]:
        return {"PYTHONPATH": f"{ROOT}{os.pathsep}{self.modules}", "PYTHONSAFEPATH": "1", **more}


@dataclass
class Job:
    """A process that was started, and what it writes."""

    process: forks.Forked | subprocess.Popen[bytes]
    output: int

    def line(self) -> str:
        """The next line, as soon as it is written."""
        said = b""
        while not said.endswith(b"\n"):
            assert select.select([self.output], [], [], 60)[0], said
            part = os.read(self.output, 1)
            assert part, said
            said += part
        return said.decode().rstrip()

    def end(self) -> tuple[int, str]:
        """Exit code and all that it writes to its end."""
        with open(self.output) as rest:
            said = rest.read()
        return self.process.wait(60), said


def serve(folder: Path, modules: Path, *libraries: str) -> Place:
    """Start a fork server, and wait until it takes jobs. It has the jobs' libraries, or these."""
    folder.mkdir(parents=True)
    modules.mkdir(exist_ok=True)
    command = [sys.executable, fork_server.__file__, str(folder), *libraries]
    place = Place(folder, modules, subprocess.Popen(command, env={**os.environ, **job_environment()}, stdin=subprocess.PIPE))
    await_that(lambda: (folder / fork_server.SOCKET).exists() or place.process.poll() is not None)
    assert place.process.poll() is None
    return place


def stop(place: Place) -> None:
    assert place.process.stdin
    place.process.stdin.close()
    place.process.wait(30)


def begin(
    place: Place, cwd: Path, body: str, *words: str, env: Mapping[str, str] | None = None, stdin: int | None = None, umask: int = 0o077
) -> Job:
    """Start `python -m` a module with this text."""
    module = place.write(f"job_{time.monotonic_ns()}", body)
    reading, writing = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    environment = place.environment() if env is None else env
    command = [sys.executable, "-m", module, *words]
    process = forks.start(
        place.folder, command, cwd=cwd, env=environment, umask=umask, stdin=stdin or nothing, stdout=writing, stderr=writing
    )
    os.close(writing)
    os.close(nothing)
    return Job(process, reading)
