"""Processes forked from a real fork server: like new ones in all that a job can notice, and ended by what ends a job's process."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from spark_jobs.runtime import fork_server, forks
from spark_jobs.runtime.settings import ROOT
from tests.support.fork_place import Job, Place, begin, serve, stop
from tests.support.ledger import await_that

pytestmark = pytest.mark.xdist_group("forks")

LONG = "import time; print('begun'); time.sleep(600)"
Start = Callable[..., Job]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("home")
    made = serve(home / ("x" * 120), home / "modules")
    yield made
    stop(made)


@pytest.fixture
def start(place: Place, tmp_path: Path) -> Start:
    return lambda body, *words, **more: begin(place, tmp_path, body, *words, **more)


def test_a_job_has_what_a_new_process_would_have_and_no_more(start: Start, place: Place, tmp_path: Path) -> None:
    body = """
import json, os, signal, sys, threading, time
print(json.dumps({
    "words": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd(), "umask": os.umask(0), "name": __name__,
    "descriptors": sorted(os.listdir("/proc/self/fd")), "session": os.getsid(0) == os.getpid(),
    "threads": len(os.listdir("/proc/self/task")),
    "signals": [signal.getsignal(n) == h for n, h in
                ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler), (signal.SIGCHLD, signal.SIG_DFL))],
    "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "zone": time.tzname[0], "input": sys.stdin.read(),
    "ours": [name for name in sys.modules if name.partition(".")[0] in ("spark_jobs", "expectations", "include", "tests")],
    "is_warm": {"pyspark.sql", "deltalake", "great_expectations"} <= set(sys.modules),
}))
"""
    reading, writing = os.pipe()
    os.write(writing, "Zoë".encode())
    os.close(writing)
    environment = place.environment(TZ="Asia/Tokyo", ODD="a\nb \udce9")
    hostile = ["$(touch owned)", "a b", "'\""]
    job = start(body, *hostile, env=environment, stdin=reading, umask=0o027)
    assert isinstance(job.process, forks.Forked)
    code, said = job.end()
    assert code == 0, said
    found = json.loads(said)
    assert found.pop("descriptors") == ["0", "1", "2", "3"]  # the last is that of the look itself
    assert found == {
        "words": hostile,
        "environment": environment,
        "folder": str(tmp_path),
        "umask": 0o027,
        "name": "__main__",
        "session": True,
        "threads": 1,
        "signals": [True, True, True],
        "blocked": 0,
        "zone": "JST",
        "input": "Zoë",
        "ours": [],
        "is_warm": True,
    }
    assert os.getpgid(place.process.pid) != job.process.pid


@pytest.mark.parametrize(
    ("body", "code", "last"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('found 3, expected 4')", 1, "found 3, expected 4"),
        ("raise ValueError('unforeseen')", 1, "ValueError: unforeseen"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, ""),
        ("import os; os._exit(7)", 7, ""),
        ("import atexit; atexit.register(print, 'the end')", 0, "the end"),
        ("import threading, time; threading.Thread(target=lambda: (time.sleep(0.3), print('later'))).start()", 0, "later"),
        ("print('no end of the line', end='')", 0, "no end of the line"),
        ("import sys\nclass Kept:\n    __del__ = lambda _: print('taken apart')\nsys.kept = Kept()", 0, ""),
    ],
)
def test_how_a_job_ends_is_told_as_of_any_process(start: Start, body: str, code: int, last: str) -> None:
    found, said = start(body).end()
    assert (found, said.splitlines()[-1:]) == (code, [last] if last else [])


def test_lines_come_as_they_are_written(start: Start) -> None:
    reading, writing = os.pipe()
    job = start("import sys; print('first'); print('second', file=sys.stderr); print(input())", stdin=reading)
    assert (job.line(), job.line()) == ("first", "second")
    assert job.process.poll() is None
    os.write(writing, b"third\n")
    assert job.end() == (0, "third\n")
    assert job.process.poll() == 0


def test_a_job_loads_the_code_as_it_is_then(start: Start, place: Place) -> None:
    for version in ("one", "another"):
        place.write("changing", f"VERSION = '{version}'")
        assert start("import changing; print(changing.VERSION)").end() == (0, f"{version}\n")


def test_a_signal_reaches_a_job_also_at_once(start: Start) -> None:
    for _ in range(20):
        job = start(LONG)
        job.process.terminate()
        assert job.process.wait(60) == -signal.SIGTERM
    job = start("import signal, sys; signal.signal(signal.SIGINT, lambda *_: sys.exit(5)); print('begun'); signal.pause()")
    assert job.line() == "begun"
    job.process.send_signal(signal.SIGINT)
    assert job.end() == (5, "")
    job.process.terminate()  # nothing happens
    job = start(LONG)
    with pytest.raises(TimeoutError):
        job.process.wait(0.05)
    job.process.kill()
    job.process.wait(60)


def test_a_kill_takes_all_that_a_job_started(start: Start) -> None:
    body = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid); input()"
    job = start(body, stdin=os.pipe()[0])
    child = psutil.Process(int(job.line()))
    job.process.kill()
    assert job.process.wait(60) == -signal.SIGKILL
    await_that(lambda: not child.is_running())


CALLER = """
import os, sys, time
from pathlib import Path
from spark_jobs.runtime import forks
process = forks.start(Path(sys.argv[1]), [sys.executable, "-m", sys.argv[2]], cwd=Path.cwd(), env=os.environ, umask=63, stdin=0, stdout=1)
print(type(process).__name__, process.pid, flush=True)
process.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_whose_caller_is_killed_ends(place: Place, tmp_path: Path, number: int) -> None:
    module = place.write("long", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)")
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER, str(place.folder), module], env=place.environment(), stdout=subprocess.PIPE, text=True
    )
    assert caller.stdout
    kind, pid = caller.stdout.readline().split()
    assert kind == "Forked"
    job = psutil.Process(int(pid))
    os.kill(caller.pid, number)
    caller.wait(60)
    await_that(lambda: not job.is_running())


def test_no_job_holds_what_its_caller_or_another_job_has_locked(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "lease"
    lock = "import fcntl; f = open('lease', 'w'); fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB); print('locked')"
    with open(file, "w") as ours:
        fcntl.flock(ours, fcntl.LOCK_EX)
        long = start(LONG)
        assert long.line() == "begun"
        assert "BlockingIOError" in start(lock).end()[1]
    holder = start(f"{lock}; import time; time.sleep(600)")
    assert holder.line() == "locked"
    other = start(LONG)
    assert other.line() == "begun"
    holder.process.kill()
    holder.process.wait(60)
    assert start(lock).end() == (0, "locked\n")
    for job in (long, other):
        job.process.kill()
        job.process.wait(60)


def test_the_server_has_one_thread_and_keeps_nothing_of_its_jobs(place: Place, start: Start) -> None:
    server = psutil.Process(place.process.pid)
    await_that(lambda: not server.children())
    before = server.num_fds()
    for _ in range(5):
        assert start("print('done')").end() == (0, "done\n")
    await_that(lambda: (server.num_fds(), server.num_threads(), server.children()) == (before, 1, []), 30)
    assert not [file for file in server.open_files() if "lease" in file.path]


def test_a_python_whose_libraries_are_others_forks_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "libraries", lambda: [sys.executable, "/elsewhere", 0])
    job = start("import sys; print('great_expectations' in sys.modules)")
    assert isinstance(job.process, subprocess.Popen)
    assert job.end() == (0, "False\n")


def test_without_a_server_a_job_is_a_process_of_its_own(place: Place, tmp_path: Path) -> None:
    for folder in (tmp_path / "none", tmp_path):
        job = begin(Place(folder, place.modules, place.process), tmp_path, "import sys; sys.exit(4)")
        assert isinstance(job.process, subprocess.Popen)
        assert job.end() == (4, "")


def test_a_server_that_ends_lets_its_jobs_finish_and_one_that_is_killed_takes_them_along(tmp_path: Path) -> None:
    place = serve(tmp_path / "first", tmp_path / "modules", "json")
    reading, writing = os.pipe()
    job = begin(place, tmp_path, "input(); print('done')", stdin=reading)
    assert place.process.stdin
    place.process.stdin.close()
    await_that(lambda: isinstance(begin(place, tmp_path, "").process, subprocess.Popen))
    assert place.process.poll() is None
    os.write(writing, b"\n")
    assert job.end() == (0, "done\n")
    assert place.process.wait(60) == 0

    place = serve(tmp_path / "second", tmp_path / "modules", "json")
    job = begin(place, tmp_path, LONG)
    running = psutil.Process(job.process.pid)
    place.process.kill()
    assert job.process.wait(60) == -signal.SIGKILL
    await_that(lambda: not running.is_running())


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start()", "started 1 threads"),
        ("opened = open('/proc/self/status')", r"opened \['/proc/\d+/status'\]"),
    ],
)
def test_what_cannot_be_forked_safely_is_refused(tmp_path: Path, body: str, found: str) -> None:
    (tmp_path / "unsafe.py").write_text(body)
    code = "from spark_jobs.runtime import fork_server; fork_server.import_libraries(('json', 'unsafe'))"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert re.search(found, done.stderr)


def test_the_jobs_of_a_cycle_import_no_library_that_the_server_lacks() -> None:
    code = """
import sys
from spark_jobs.runtime import fork_server
fork_server.import_libraries()
before = set(sys.modules)
import spark_jobs.run, spark_jobs.silver.job, spark_jobs.gold.job
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(new - set(sys.stdlib_module_names)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout) == (0, "['expectations', 'spark_jobs']\n"), done.stderr
