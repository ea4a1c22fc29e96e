"""The epoch of a lease: it rises from holder to holder, wherever one of them dies."""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from spark_jobs.lake import leases
from spark_jobs.runtime import progress
from spark_jobs.runtime.settings import Settings, read_settings

# Holders in processes of their own, each of which dies as by `kill -9` at one more line of the lease's code than the one before it.
_DYING = """
import os, sys
from spark_jobs.lake import file_leases, leases
from spark_jobs.runtime.settings import read_settings

def die_at(count, code):
    def trace(frame, event, _):
        nonlocal count
        if frame.f_code.co_filename != code:
            return None
        count -= event == "line"
        if count < 0:
            os._exit(9)
        return trace
    sys.settrace(trace)

settings, code = read_settings({"LEDGER_HOME": sys.argv[1]}), file_leases.__file__
for number in range(1000):
    child = os.fork()
    if child == 0:
        die_at(number, code)
        with leases.hold_names(settings, ["a"], owner="long name " * (number % 3)) as epoch:
            sys.settrace(None)
            os.write(1, b"%d\\n" % epoch)
        os._exit(0)
    is_killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    with leases.hold_names(settings, ["a"], owner="b") as epoch:
        os.write(1, b"%d\\n" % epoch)
    if not is_killed:
        break
print(number, file=sys.stderr)
"""
# A holder that can write no byte to any file, as on a full disk.
_WITHOUT_SPACE = """
import resource, sys
from spark_jobs.lake import leases
from spark_jobs.runtime.settings import read_settings

resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
with leases.hold_names(read_settings({"LEDGER_HOME": sys.argv[1]}), ["a"], owner="b"):
    pass
"""


def hold_once(settings: Settings) -> int:
    with leases.hold_names(settings, ["a"], owner="test") as epoch:
        return epoch


def run(script: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script, str(home)], capture_output=True, text=True, timeout=120, check=False)


def test_the_epoch_rises_wherever_a_holder_dies(tmp_path: Path) -> None:
    done = run(_DYING, tmp_path)
    assert done.returncode == 0, done.stderr
    epochs = [int(line) for line in done.stdout.split()]
    assert int(done.stderr) > 10  # so many holders died, each at another line
    assert epochs == sorted(set(epochs))


def test_the_epoch_stays_when_a_holder_cannot_write_it(tmp_path: Path) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    assert [hold_once(settings), hold_once(settings)] == [1, 2]
    done = run(_WITHOUT_SPACE, tmp_path)
    assert (done.returncode, "File too large" in done.stderr) == (1, True)
    assert hold_once(settings) == 3


def test_a_lease_names_its_holder_after_one_with_a_longer_name(tmp_path: Path) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    for owner in ("an owner with a long name", "b"):
        with leases.hold_names(settings, ["a"], owner=owner):
            assert json.loads((settings.warehouse / ".leases" / "a.lock").read_text())["owner"] == owner


def test_a_job_that_waits_says_for_whom(tmp_path: Path) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    with ThreadPoolExecutor(1) as pool:
        with leases.hold_names(settings, ["a"], owner="the first one"):
            waiting = pool.submit(hold_once, settings)
            deadline = time.monotonic() + 10
            while not progress._phases and time.monotonic() < deadline:
                time.sleep(0.01)
            assert str(progress._phases[0]).startswith("waiting for a, which is being written by the first one (process ")
        assert waiting.result() == 2
    assert not progress._phases
