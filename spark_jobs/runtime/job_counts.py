"""How often each job began and how it ended, by exit code: a small file for each job, which the metrics read.

A job that was killed leaves no end: it is counted as `killed` once its process is gone. What cannot be counted is logged, and the job
continues; a file that cannot be read counts from zero again.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any

from spark_jobs.runtime.errors import GateClosed, first_line
from spark_jobs.runtime.identity import find_process, identify
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

KILLED = "killed"  # in place of an exit code
_FOLDER = "jobs"  # below LEDGER_CHECKPOINTS
_LOCK_SECONDS = 1.0  # another process holds the lock for a moment only
_NO_FAILURES = ("0", str(GateClosed.exit_code))  # a closed gate is an answer


@dataclass
class JobCounts:
    """What a job has done on these checkpoints: `ended` by exit code, `seconds` of all that ended, `last_ended_at` since the epoch."""

    job: str
    started: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    failures_in_a_row: int = 0
    last_ended_at: float = 0.0
    running: list[dict[str, Any]] = field(default_factory=list)

    def begin(self, process: dict[str, Any]) -> None:
        """A process of this job begins."""
        self.count_killed()
        self.started += 1
        self.running.append(process)

    def end(self, process: dict[str, Any], code: str, seconds: float) -> None:
        """A process of this job ends."""
        begun = len(self.running)
        self.running = [each for each in self.running if each["pid"] != process["pid"]]
        self.started += len(self.running) == begun  # it began before there was a home
        self.ended[code] = self.ended.get(code, 0) + 1
        self.seconds += seconds
        self.failures_in_a_row = 0 if code in _NO_FAILURES else self.failures_in_a_row + 1
        self.last_ended_at = time.time()

    def count_killed(self) -> None:
        """Count those that are gone without having said so."""
        for process in [each for each in self.running if find_process(each) is None]:
            self.end(process, KILLED, 0.0)


@dataclass
class Ending:
    """How the job at hand ends; failed, until it says otherwise."""

    exit_code: int = 1


@contextmanager
def counted(settings: Settings, job: str) -> Iterator[Ending]:
    """Count the beginning and the end of a job that is done within this context."""
    ending, began, process = Ending(), time.monotonic(), identify(os.getpid())
    _change(settings, job, lambda counts: counts.begin(process))
    try:
        yield ending
    finally:
        seconds = time.monotonic() - began
        _change(settings, job, lambda counts: counts.end(process, str(ending.exit_code), seconds))


def read_all(settings: Settings) -> list[JobCounts]:
    """The counts of every job that ever ran on these checkpoints, by name; those whose process is gone are counted as killed."""
    found = [_parse(file.read_text(), file.stem) for file in sorted((settings.run_folder / _FOLDER).glob("*.json"))]
    for counts in found:
        counts.count_killed()
    return found


def _change(settings: Settings, job: str, change: Callable[[JobCounts], None]) -> None:
    if not settings.home.exists():  # a job that is refused makes none
        return
    try:
        file = settings.run_folder / _FOLDER / f"{job}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        _change_file(file, job, change)
    except Exception as error:  # whatever is wrong with a count, the job is not
        log.warning("%s is not counted for the metrics: %s: %s", job, type(error).__name__, first_line(error))
        log.debug("", exc_info=True)


def _change_file(file: Path, job: str, change: Callable[[JobCounts], None]) -> None:
    with open(os.open(file, os.O_RDWR | os.O_CREAT, 0o600), "r+") as counted_in:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                flock(counted_in, LOCK_EX | LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.02)
        counts = _parse(counted_in.read(), job)
        change(counts)
        # One write over the old text, padded with blanks: whoever reads meanwhile finds the old text or the new one.
        counted_in.seek(0)
        counted_in.write(json.dumps(asdict(counts)).ljust(os.fstat(counted_in.fileno()).st_size))


def _parse(text: str, job: str) -> JobCounts:
    try:
        return JobCounts(**json.loads(text or "{}") | {"job": job})
    except (ValueError, TypeError) as error:
        log.warning("what was counted of %s cannot be read, and counts from zero again: %s", job, first_line(error))
        return JobCounts(job)
