"""The processes of a stack: started detached with a log file, found again by a mark, stopped.

Every process gets an environment variable that names its home. Children inherit it, so what runs is known
without pid files: also after a kill -9 of the parent, and for drivers that Airflow's tasks started.
"""

import os
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from spark_jobs.runtime.errors import LedgerError
from spark_jobs.service import log_writer

HOME_MARK = "LEDGER_STACK"
PART_MARK = "LEDGER_STACK_PART"
POLL_SECONDS = 0.2
_LAST_LINES_SECONDS = 2.0


@dataclass(frozen=True)
class Running:
    """A part of the stack that was started: its name, its first process and what it writes."""

    part: str
    process: psutil.Process
    log: Path
    child: subprocess.Popen[bytes] | None = None  # when this very process started it
    writer: subprocess.Popen[bytes] | None = None  # then also who writes its log


def mark(home: Path, part: str) -> dict[str, str]:
    """The environment variables that a process of this home carries."""
    # SPT_NOENV: Airflow renames its processes, which would overwrite the environment that others can read.
    return {HOME_MARK: os.path.realpath(home), PART_MARK: part, "SPT_NOENV": "1"}


def start(home: Path, part: str, command: list[str], environment: Mapping[str, str], log: Path) -> Running:
    """Start a part in a session of its own, with its output in a log file of bounded size; the log before is kept as `.1`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists():
        log.replace(log.with_suffix(".log.1"))
    # Without a mark: it is stopped by nobody, and ends with the last process that writes into its pipe.
    with open(log, "ab") as file:
        command_of_writer, nothing = [*log_writer.command(), str(log)], subprocess.DEVNULL
        writer = subprocess.Popen(
            command_of_writer, env={}, cwd="/", stdin=subprocess.PIPE, stdout=file, stderr=nothing, start_new_session=True
        )
    assert writer.stdin is not None
    with writer.stdin as output:
        started = subprocess.Popen(
            command,
            env={**environment, **mark(home, part)},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    running = Running(part, psutil.Process(started.pid), log, started, writer)
    # The kernel shows an environment a moment after it has begun a program; until then nobody finds the part by its mark.
    deadline = time.monotonic() + 5
    while alive(running.process) and PART_MARK not in environment_of(running.process) and time.monotonic() < deadline:
        time.sleep(0.001)
    return running


def alive(process: psutil.Process) -> bool:
    """Whether a process still runs; one that ended and was not yet collected by its parent does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def environment_of(process: psutil.Process) -> dict[str, str]:
    """The environment a process was started with; empty when it is not ours to read."""
    try:
        return dict(process.environ())
    except (psutil.Error, OSError):
        return {}


def find_part(home: Path, part: str) -> psutil.Process | None:
    """The process that was started as this part (a leader of its session), if it runs."""
    for process in _marked(home, [part]):
        try:
            if os.getsid(process.pid) == process.pid:
                return process
        except OSError:
            continue
    return None


def find_all(home: Path, parts: Collection[str] | None = None) -> list[psutil.Process]:
    """Every process of this home (of some of its parts) and its descendants; never the caller or its ancestors."""
    excluded = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = {process.pid: process for process in _marked(home, parts)}
    for process in list(found.values()):
        try:
            found.update((child.pid, child) for child in process.children(recursive=True))
        except psutil.Error:
            continue
    return [process for pid, process in found.items() if pid not in excluded and alive(process)]


def stop(processes: Iterable[psutil.Process], patience: float) -> list[psutil.Process]:
    """Ask processes to end (TERM), wait, then KILL the rest. Returns those that had to be killed."""
    ending = list(processes)
    _signal(ending, psutil.Process.terminate)
    stubborn = wait_for_end(ending, patience)
    _signal(stubborn, psutil.Process.kill)
    wait_for_end(stubborn, 5)
    return stubborn


def wait_for_end(processes: Collection[psutil.Process], patience: float) -> list[psutil.Process]:
    """Wait until all have ended, at most so many seconds. Returns those that still run."""
    deadline = time.monotonic() + patience
    left = [process for process in processes if alive(process)]
    while left and time.monotonic() < deadline:
        psutil.wait_procs(left, timeout=POLL_SECONDS)
        left = [process for process in left if alive(process)]
    return left


def wait_until(ready: Callable[[], bool], needed: Sequence[Running], patience: float) -> None:
    """Poll until parts are ready. Raises LedgerError, with the end of a log, when one dies or it takes too long."""
    deadline = time.monotonic() + patience
    while not ready():
        for part in needed:
            if not alive(part.process):
                _wait_for_log(part)
                raise LedgerError(f"{part.part} ended before it was ready; {part.log} ends with: {last_lines(part.log)}")
        if time.monotonic() > deadline:
            log = needed[0].log
            raise LedgerError(f"{needed[0].part} was not ready after {patience:.0f} s; {log} ends with: {last_lines(log)}")
        time.sleep(POLL_SECONDS)


def _wait_for_log(part: Running) -> None:
    """Let the writer of an ended part's log come to its end; not for ever, because a child of the part may still run."""
    if part.writer:
        with suppress(subprocess.TimeoutExpired):
            part.writer.wait(_LAST_LINES_SECONDS)


def last_lines(log: Path, lines: int = 3) -> str:
    """The end of a log file on one line."""
    try:
        text = log_writer.tail(log, 4096)
    except OSError as error:
        return f"(no log: {error.strerror})"
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-lines:]) or "(nothing)"


def _marked(home: Path, parts: Collection[str] | None) -> list[psutil.Process]:
    wanted, found = os.path.realpath(home), []
    for process in psutil.process_iter():
        environment = environment_of(process)
        if environment.get(HOME_MARK) == wanted and (parts is None or environment.get(PART_MARK) in parts) and alive(process):
            found.append(process)
    return found


def _signal(processes: Iterable[psutil.Process], send: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        try:
            send(process)
        except psutil.Error:
            continue
