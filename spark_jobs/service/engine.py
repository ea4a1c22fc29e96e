"""The engine: one warm Spark application, whose JVM jobs borrow one after the other (spark_jobs/runtime/engine.py is their side).

A job stays a process of its own: leases, log, exit code, signals and kill points are its own. The engine opens a gateway for it in its
JVM, with a session of its own. It lives on only where the job said that it had done and left nothing running. In any other case it ends
with its JVM at once, as the JVM of a job that has its own does, and its supervisor starts another one.
"""

import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, cast

import psutil
from pyspark.sql import SparkSession

from spark_jobs.lake import leases
from spark_jobs.runtime import engine, fork_server, session
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.job_process import job_environment
from spark_jobs.runtime.settings import Settings
from spark_jobs.service import heartbeat
from spark_jobs.service.heartbeat import RUNNING, STOPPING, HeartbeatFile
from spark_jobs.service.services import ENGINE

log = logging.getLogger("ledger")

MOST_BYTES = 3 * 2**30  # of the JVM's process: 1 GB of heap, plus what Spark and the compilers need
MOST_HEAP = 0.6  # of the heap, what still is in use once garbage is collected
_POLL_SECONDS = 0.5
_QUIET_SECONDS = 5.0  # Spark's own list of jobs lags a little
_FORKS_AGAIN_SECONDS = 60.0
_PART = "jvm"


@dataclass(frozen=True)
class _Loan:
    """A job that uses the JVM: by which connection, which gateway, since when."""

    job: str
    pid: int
    connection: socket.socket
    gateway: Any
    since: float


@contextmanager
def owning(settings: Settings, run_id: str) -> Iterator[HeartbeatFile]:
    """The engine's lease, at once or not at all, and its heartbeat; what was left of an engine before is ended."""
    with leases.hold_names(settings, [ENGINE.command], owner=ENGINE.command, wait_seconds=0) as epoch:
        for who in heartbeat.end_leftovers(settings, ENGINE, (_PART,)):
            log.warning("what was left of %s is ended", who)
        with heartbeat.beating(settings, ENGINE, ENGINE.command, (_PART,), run_id, epoch) as heart:
            yield heart


@contextmanager
def listening(settings: Settings) -> Iterator[socket.socket]:
    """The socket on which jobs ask, for the user of this process alone. The caller holds the engine's lease."""
    with engine.opened(settings) as folder, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        address = engine.address(folder)
        if os.path.lexists(address):  # of an engine that was killed
            os.unlink(address)
        listener.bind(address)
        os.chmod(address, 0o600)
        yield listener
        os.unlink(address)


class ForkServer:
    """The fork server of an engine (spark_jobs/runtime/fork_server.py), which ends with it; but first the jobs that it has forked end."""

    def __init__(self, settings: Settings) -> None:
        self._command = (sys.executable, fork_server.__file__, str(settings.run_folder / engine.FOLDER))
        self._process: subprocess.Popen[bytes] | None = None
        self._next_start = 0.0

    def keep(self) -> None:
        """Start it, where it does not run, once a minute at most: without it jobs are slower and no other."""
        if (self._process and self._process.poll() is None) or time.monotonic() < self._next_start:
            return
        if self._process:
            log.warning("the fork server ended with exit code %d: another one starts", self._process.returncode)
        self._next_start = time.monotonic() + _FORKS_AGAIN_SECONDS
        env = {**os.environ, **job_environment()}
        self._process = subprocess.Popen(self._command, env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)

    def __enter__(self) -> "ForkServer":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process and self._process.stdin:
            self._process.stdin.close()


class Engine:
    """Lends the JVM of a session. What it remembers of a job ends with the job."""

    def __init__(self, spark: SparkSession, settings: Settings, listener: socket.socket, heart: HeartbeatFile, forks: ForkServer) -> None:
        self._forks = forks
        self._spark, self._listener, self._heart = spark, listener, heart
        self._jvm = cast(Any, spark._jvm)
        self._sessions = self._jvm.org.apache.spark.sql.classic.SparkSession
        self._process = psutil.Process(session.jvm_of(spark))
        self._offers = engine.needs(settings.spark_master, session.submit_conf(settings))
        self._loan: _Loan | None = None
        self._taken, self._is_full = 0, False

    def serve(self, most_jobs: int, must_end: Callable[[], bool]) -> None:
        """Lend until a signal or `must_end` asks for the end, after the current job; or after `most_jobs`, or when the JVM is full.

        Raises LedgerError, after it has ended the JVM, when a job ended without a final message or left work running, or the JVM ended.
        """
        stopping: list[int] = []

        def stop(number: int, frame: FrameType | None) -> None:
            stopping.append(number)

        for number in (signal.SIGTERM, signal.SIGINT):  # Spark's own handler would cancel the job under way
            signal.signal(number, stop)
        self._listener.listen()
        log.info("the engine (process %d, JVM %d) takes jobs", os.getpid(), self._process.pid)
        while True:
            ends = bool(stopping) or must_end()
            if self._loan is None and (ends or self._taken >= most_jobs or self._is_full):
                log.info("the engine ends after %d jobs%s", self._taken, ", as it was asked to" if ends else ": another one is due")
                return
            self._beat(STOPPING if ends else RUNNING)
            self._forks.keep()
            self._look(ends)

    def _beat(self, state: str) -> None:
        doing = f"running {self._loan.job} (process {self._loan.pid})" if self._loan else "idle"
        self._heart.beat(state=state, topics={_PART: {"state": RUNNING, "pace": doing, "progressed_at": time.time()}})

    def _look(self, ends: bool) -> None:
        """Wait a moment for a job that asks, or for the one under way to end."""
        sources = [self._listener, *([self._loan.connection] if self._loan else [])]
        found = select.select(sources, [], [], _POLL_SECONDS)[0]
        if not self._process.is_running() or self._process.status() == psutil.STATUS_ZOMBIE:
            raise LedgerError(f"the JVM of the engine ended{f' while it ran {self._loan.job}' if self._loan else ''}: another one is due")
        for ready in found:
            if ready is self._listener:
                self._answer(self._listener.accept()[0], ends)
            else:
                self._take_back()

    def _answer(self, connection: socket.socket, ends: bool) -> None:
        """Lend the JVM to who asks, or say why not."""
        try:
            connection.settimeout(engine.ANSWER_SECONDS)
            with connection.makefile() as lines:
                asked = engine.receive(lines)
            job, pid, needed = str(asked["job"]), int(asked["pid"]), dict(asked["needs"])
            if refused := self._why_not(needed, ends):
                engine.send(connection, {"refused": refused})
                connection.close()
                return
            gateway = self._open()
            self._loan, self._taken = _Loan(job, pid, connection, gateway, time.time()), self._taken + 1
            log.info("%s (process %d) begins", job, pid)
            engine.send(connection, {"port": gateway.getListeningPort(), "secret": gateway.secret(), "pid": os.getpid()})
        except (OSError, ValueError, KeyError, TypeError) as error:  # it ended, or is no job: a loan is taken back by its own end
            log.warning("whoever asked for the JVM did not come to it: %s: %s", type(error).__name__, error)

    def _why_not(self, needed: dict[str, str], ends: bool) -> str:
        if self._loan:
            return f"it runs {self._loan.job}"
        if ends:
            return "it is ending"
        differing = sorted(name for name in self._offers.keys() | needed.keys() if self._offers.get(name) != needed.get(name))
        return f"it was started with other settings: {', '.join(differing)}" if differing else ""

    def _open(self) -> Any:
        """A gateway for one job, whose session is the default one of the JVM for as long: no setting of another job reaches it."""
        self._sessions.setDefaultSession(self._spark._jsparkSession.newSession())
        gateway = self._jvm.org.apache.spark.api.python.Py4JServer(self._spark.sparkContext._jsc.sc().conf())
        gateway.start()
        return gateway

    def _take_back(self) -> None:
        """The job under way has done, or ended without a word. Leaves the JVM as it was before, or ends it."""
        assert self._loan is not None
        loan, self._loan = self._loan, None
        with loan.connection, loan.connection.makefile() as lines:
            try:
                has_done = engine.receive(lines).get(engine.DONE) is True
            except (OSError, ValueError):
                has_done = False
        if not has_done:
            self._process.kill()
            raise LedgerError(
                f"{loan.job} (process {loan.pid}) ended without a final message: the engine ends too, so that none of its work continues"
            )
        if not self._is_quiet():
            self._process.kill()
            raise LedgerError(f"{loan.job} (process {loan.pid}) left work running in Spark: the engine ends, so that none of it continues")
        self._clean(loan)

    def _is_quiet(self) -> bool:
        """Whether no stream of any session runs in Spark, and no job."""
        context, deadline = self._spark.sparkContext, time.monotonic() + _QUIET_SECONDS
        if context._jsc.sc().isStopped() or not self._spark._jsparkSession.sharedState().activeStreamingQueries().isEmpty():
            return False
        while context.statusTracker().getActiveJobsIds():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)
        return True

    def _clean(self, loan: _Loan) -> None:
        """Drop all that a job held, and see whether the JVM has become so large that another one is due."""
        loan.gateway.shutdown()
        self._sessions.setDefaultSession(self._spark._jsparkSession)
        self._spark.catalog.clearCache()
        for kept in self._spark.sparkContext._jsc.getPersistentRDDs().values():
            kept.unpersist()
        self._jvm.System.gc()
        runtime = self._jvm.java.lang.Runtime.getRuntime()
        used, most = runtime.totalMemory() - runtime.freeMemory(), runtime.maxMemory()
        size = self._process.memory_info().rss
        self._is_full = used > MOST_HEAP * most or size > MOST_BYTES
        log.info("%s has done after %.1f s; heap %d MB, process %d MB", loan.job, time.time() - loan.since, used / 2**20, size / 2**20)
