"""A pipeline of its own for a test: the jobs as real processes, and the tables as they are found afterwards."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from include.stack.processes import find_all, mark, stop, wait_for_end
from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.engine import FOLDER
from spark_jobs.runtime.settings import ROOT, Settings, read_settings
from tests.support import forked_jobs

Row = dict[str, Any]
JOB_SECONDS = 480  # a busy machine may be slow; a job that waits for ever is found nevertheless
MASTER = "LEDGER_SPARK_MASTER"  # by which the tests run on a cluster: include/docs/cluster.md
NO_STACK = "127.0.0.1:9"  # the discard port: nothing listens there

ALL_STEPS = ("silver", "gate bronze", "gate silver", "gold", "gate gold", "release")


def await_that(condition: Callable[[], object], seconds: float = 300) -> None:
    """Return as soon as the condition holds; it is asked ten times a second and fails the test when the time is over."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s"
        pause.wait(0.1)


@dataclass(frozen=True)
class Ledger:
    """One home with its warehouse and checkpoints, the broker that it reads, and the folder of the engine whose JVM its jobs borrow."""

    home: Path
    bootstrap: str = NO_STACK
    engine: Path | None = None

    def environment(self, **more: str) -> dict[str, str]:
        """What a job of this home is started with: of the settings that this test run has itself, nothing but the Spark master."""
        outside = {name: value for name, value in os.environ.items() if not name.startswith("LEDGER_") or name == MASTER}
        own = {"LEDGER_HOME": str(self.home), "LEDGER_KAFKA_BOOTSTRAP": self.bootstrap}
        return {**outside, **own, **more}

    @property
    def settings(self) -> Settings:
        return read_settings(self.environment())

    def try_run(self, command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a job to its end and to that of every process it started."""
        with self._marked() as marked:
            try:
                return forked_jobs.run(command.split(), self.environment(**marked, **more), JOB_SECONDS)
            except subprocess.TimeoutExpired as late:
                pytest.fail(f"{command} did not end within {JOB_SECONDS} s; it said:\n{(late.stderr or b'').decode()}")

    def run(self, *commands: str) -> None:
        """Run jobs that must end well."""
        for command in commands:
            done = self.try_run(command)
            assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stderr}"

    def kill_at(self, point: str, command: str) -> None:
        """Run a job, in a JVM of its own, that must be killed at a point."""
        done = self.try_run(f"--engine none {command}", LEDGER_KILL_POINT=point)
        assert done.returncode == -signal.SIGKILL, f"{command} was not killed {point}: exit code {done.returncode}\n{done.stderr}"

    @contextmanager
    def running(self, command: str, output: Path | None = None, **more: str) -> Iterator[subprocess.Popen[str]]:
        """A job while it runs, by its command line; what is left of it at the end is stopped. What it says goes to a file, or to pipes."""
        words = [sys.executable, "-m", "spark_jobs.run", *command.split()]
        with self._marked() as marked:
            environment = self.environment(**marked, **more)
            with open(output or os.devnull, "w") as file:
                out = file if output else subprocess.PIPE
                process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=out, stderr=out, text=True)
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()
                    process.communicate()

    @contextmanager
    def _marked(self) -> Iterator[dict[str, str]]:
        """Variables by which all that a job starts is known, its JVM for one, and stopped if it is left behind. The engine is offered."""
        self.offer_engine()
        part = f"job {uuid.uuid4()}"
        try:
            yield mark(self.home, part)
        finally:
            # A JVM notices by itself that its driver is gone.
            stop(wait_for_end(find_all(self.home, [part]), 20), patience=5)

    def offer_engine(self) -> None:
        """Let the jobs of this home find the engine, which is that of another home."""
        link = self.settings.run_folder / FOLDER
        if self.engine and not link.is_symlink():
            link.parent.mkdir(0o700, parents=True, exist_ok=True)
            link.symlink_to(self.engine)

    def copy(self, home: Path) -> "Ledger":
        """The same tables and checkpoints, for another test."""
        shutil.copytree(self.home, home, symlinks=True)
        return replace(self, home=home)

    def rows(self, table: Table) -> list[Row]:
        """All rows of a table as it is now, without what is for people only."""
        delta = DeltaTable(str(table.path(self.settings)))
        columns = [name for name in table.columns if name not in ("_ingested_at", "_ingested_on")]
        query = "select {} from t".format(", ".join(f'"{name}"' for name in columns))
        found: list[Row] = pa.table(QueryBuilder().register("t", delta).execute(query).read_all()).to_pylist()
        return found

    def exists(self, table: Table) -> bool:
        return DeltaTable.is_deltatable(str(table.path(self.settings)))

    def versions(self) -> dict[str, int]:
        """The version of every table, control tables included."""
        every = (*tables.BRONZE, *tables.SILVER, *tables.GOLD, *tables.CONTROL)
        return {table.name: DeltaTable(str(table.path(self.settings))).version() for table in every}
