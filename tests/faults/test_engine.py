"""A real engine under its supervisor: jobs one after the other in one JVM, and what each way of dying leaves behind."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import pytest

from include.stack.processes import alive
from spark_jobs.runtime import engine, fork_server, forks
from spark_jobs.runtime.job_process import COMMAND, job_environment
from spark_jobs.runtime.settings import ROOT, Settings, read_settings
from spark_jobs.service import heartbeat
from spark_jobs.service.heartbeat import Heartbeat
from spark_jobs.service.services import ENGINE
from spark_jobs.service.supervisor import Supervisor
from tests.support.ledger import await_that

pytestmark = pytest.mark.faults

# A job that says in which JVM it is, then does what its last argument says.
JOB = """
import logging, sys
from spark_jobs.runtime import engine, session, settings
from spark_jobs.runtime.errors import LedgerError
logging.getLogger("py4j").setLevel(logging.CRITICAL)
try:
    with engine.lent(sys.argv[1] == "lent"):
        spark = session.start_session(settings.read_settings(), "test")
        print(session.jvm_of(spark), flush=True)
        exec(sys.argv[2])
except LedgerError as error:
    print(error)
    sys.exit(error.exit_code)
"""
LONG = "spark._jvm.java.lang.Thread.sleep(600_000)"


@dataclass(frozen=True)
class Running:
    """A home in which an engine is kept running."""

    settings: Settings
    told: list[str]

    def beat(self) -> Heartbeat | None:
        beat = heartbeat.read_one(self.settings, ENGINE, ENGINE.command)
        return beat if beat and beat.is_alive() and beat.state == heartbeat.RUNNING else None

    def processes(self) -> tuple[psutil.Process, psutil.Process]:
        """The JVM and the Python of the engine, once it takes jobs. Of one that ends, the Python outlives the JVM by a moment."""
        await_that(lambda: (beat := self.beat()) and len(beat.processes()) == 2)
        beat = self.beat()
        assert beat
        jvm, python = beat.processes()
        return jvm, python

    def start(self, what: str, how: str = "lent") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", JOB, how, what],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, what: str) -> tuple[int, int, str]:
        """Exit code, JVM and what else the job said."""
        job = self.start(what)
        said = job.communicate(timeout=120)[0].splitlines()
        return job.returncode, int(said[0]), "\n".join(said[1:])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("an engine's home whose name is so long that no address of a socket could hold it" + "x" * 60)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**job_environment(), "LEDGER_HOME": str(home)}.items():
            patch.setenv(name, value)
        made, ending = Running(read_settings(), []), threading.Event()
        supervisor = Supervisor(made.settings, ENGINE, (), "test")

        def supervise() -> None:
            while not ending.wait(0.2):
                made.told.extend(supervisor.step())

        thread = threading.Thread(target=supervise)
        thread.start()
        yield made
        ending.set()
        thread.join()
        for beat in heartbeat.read(made.settings, ENGINE):
            heartbeat.kill(beat.processes())


def test_jobs_share_the_jvm_and_nothing_else(running: Running) -> None:
    jvm, _ = running.processes()
    first = "spark.conf.set('spark.sql.shuffle.partitions', 77); spark.range(3).cache().createOrReplaceTempView('mine')"
    assert running.run(f"{first}; print(spark.sql('SELECT sum(id) AS s FROM mine').first().s)") == (0, jvm.pid, "3")
    second = (
        "print(spark.conf.get('spark.sql.shuffle.partitions'), spark.catalog.tableExists('mine'), spark._jsc.getPersistentRDDs().size())"
    )
    assert running.run(second) == (0, jvm.pid, "4 False 0")


def test_jobs_are_forked_beside_an_engine(running: Running) -> None:
    _, python = running.processes()
    folder = running.settings.checkpoints / engine.FOLDER
    await_that(lambda: (folder / fork_server.SOCKET).exists())
    command = [*COMMAND, "engine_control", "status"]
    with open(os.devnull, "rb") as nothing, open(running.settings.home / "status", "wb") as said:
        job = forks.start(folder, command, cwd=ROOT, env=os.environ, umask=0o077, stdin=nothing.fileno(), stdout=1, stderr=said.fileno())
    assert isinstance(job, forks.Forked)
    assert psutil.Process(job.pid).ppid() == fork_server_of(python).pid
    assert job.wait() == 0
    assert f"engine (process {python.pid} on " in (running.settings.home / "status").read_text()


@pytest.mark.soak  # a real run of gold
def test_a_job_that_fails_leaves_the_engine_as_it_was(running: Running) -> None:
    jvm, _ = running.processes()
    assert running.run("raise LedgerError('found 3, expected 4')") == (1, jvm.pid, "found 3, expected 4")
    code, where, said = running.run("spark.sql('SELECT 1 / 0').collect()")
    assert (code, where) == (1, jvm.pid)
    assert "DIVIDE_BY_ZERO" in said
    done = subprocess.run([*COMMAND, "gold"], cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert f"runs in the engine (process {running.processes()[1].pid})" in done.stderr
    assert running.processes()[0] == jvm


def test_who_asks_while_a_job_runs_gets_none_and_neither_does_who_needs_another_jvm(running: Running) -> None:
    jvm, _ = running.processes()
    wanted = engine.needs(running.settings.spark_master, {})
    assert "it was started with other settings: spark." in ask(running.settings, wanted)["refused"]
    job = running.start("sys.stdin.readline()")
    assert job.stdout is not None
    assert int(job.stdout.readline()) == jvm.pid
    assert ask(running.settings, wanted) == {"refused": "it runs test"}
    job.send_signal(signal.SIGTERM)  # idle in the JVM, and yet it said no word
    job.communicate(timeout=60)
    await_that(lambda: not alive(jvm))


def test_what_a_killed_job_was_doing_ends_with_it(running: Running) -> None:
    jvm, python = running.processes()
    job = running.start(LONG)
    assert job.stdout is not None
    assert int(job.stdout.readline()) == jvm.pid
    job.kill()
    job.communicate(timeout=60)
    assert job.returncode != 0
    await_that(lambda: not alive(python))
    assert not alive(jvm)
    await_that(lambda: any(f"(process {job.pid}) ended without a final message" in line for line in running.told))


@pytest.mark.parametrize("part", [0, 1], ids=["jvm", "python"])
def test_an_engine_that_is_killed_fails_its_job_with_a_line_and_is_replaced(running: Running, part: int) -> None:
    victims = running.processes()
    server = fork_server_of(victims[1])
    job = running.start(LONG)
    assert job.stdout is not None
    assert int(job.stdout.readline()) == victims[0].pid
    victims[part].kill()
    said = job.communicate(timeout=60)[0].splitlines()
    line = f"the engine (process {victims[1].pid}) ended while this job ran in it: run it again; it continues from what the tables hold"
    assert (job.returncode, line in said) == (1, True), said[-20:]  # Py4J may log its own error after it, at the end of the process
    await_that(lambda: not alive(server))
    await_that(lambda: (beat := running.beat()) and victims[1] not in beat.processes())
    assert running.run("") == (0, running.processes()[0].pid, "")


def test_a_job_whose_own_jvm_ends_says_so_however_it_met_that(running: Running) -> None:
    """Work on a table wraps what it meets, which is a refused connection and says nothing to who reads it."""
    job = running.start(
        f"""
try:
    {LONG}
except Exception as error:
    raise LedgerError(f"gold.daily_totals stopped: {{error}}") from error
""",
        how="own",
    )
    assert job.stdout is not None
    psutil.Process(int(next(line for line in job.stdout if line.strip().isdigit()))).kill()  # after what the JVM says of itself
    said = job.communicate(timeout=60)[0].splitlines()
    line = "the JVM ended while this job ran in it: run it again; it continues from what the tables hold"
    assert (job.returncode, line in said) == (1, True), said[-20:]


def fork_server_of(python: psutil.Process) -> psutil.Process:
    """The fork server of an engine, by its Python."""
    (server,) = (child for child in python.children() if alive(child) and fork_server.__file__ in child.cmdline())
    return server


def ask(settings: Settings, needs: dict[str, str]) -> dict[str, str]:
    """What the engine answers to who asks for its JVM."""
    with engine.opened(settings) as folder, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        assert os.stat(engine.address(folder)).st_mode & 0o077 == 0
        connection.connect(engine.address(folder))
        connection.settimeout(60)
        engine.send(connection, {"job": "other", "pid": os.getpid(), "needs": needs})
        with connection.makefile() as lines:
            return dict(json.loads(lines.readline()))
