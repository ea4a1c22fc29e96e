"""How far a long job has come: a line in its log every ten seconds, and a small file meanwhile that Airflow and the pages read.

A job says by `phase` what it does. Phases may lie within one another; without `shown` around them, nothing is written.
"""

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from threading import Event, Thread

from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

EVERY_SECONDS = 10.0
_FOLDER = "progress"  # below LEDGER_CHECKPOINTS
_STALE_SECONDS = 3 * EVERY_SECONDS  # the file of a job that was killed stays, until the first job a day later
_DAY = 86400.0


@dataclass
class Phase:
    """A part of a job: what it does now, and how much of it is done. A total of 0 is not known."""

    now: str
    total: int = 0
    unit: str = ""
    done: int = 0
    began: float = field(default_factory=time.monotonic)

    def reach(self, done: int, now: str) -> None:
        """So much of the total is done, and `now` comes next."""
        self.done, self.now = done, now

    def __str__(self) -> str:
        seconds = time.monotonic() - self.began
        count = f", {self.done:,} of {self.total:,} {self.unit}" if self.total else ""
        left = f", about {_clock(seconds * (self.total - self.done) / self.done)} left" if 0 < self.done < self.total else ""
        return f"{self.now}{count} in {_clock(seconds)}{left}"


@dataclass(frozen=True)
class Progress:
    """What a job said last, and when: seconds since the epoch."""

    job: str
    run_id: str
    says: str
    said_at: float
    link: str = ""  # to Spark's pages


_phases: list[Phase] = []  # of this process, the outermost first
_links: list[str] = []  # the newest last


@contextmanager
def phase(now: str, total: int = 0, unit: str = "") -> Iterator[Phase]:
    """A phase of this job's, for as long as the context lasts; the rest of its time is computed from its beginning."""
    begun = Phase(now, total, unit)
    _phases.append(begun)
    try:
        yield begun
    finally:
        _phases.remove(begun)


def link(address: str) -> None:
    """Where Spark shows what this process does, from now on."""
    _links.append(address)


@contextmanager
def shown(settings: Settings, job: str, run_id: str) -> Iterator[None]:
    """Say every ten seconds how far this job has come, while it is in a phase. The file goes with the job."""
    file = settings.run_folder / _FOLDER / f"{job}-{os.getpid()}.json"
    ended = Event()

    def say() -> None:
        while not ended.wait(EVERY_SECONDS):
            if says := "; ".join(map(str, list(_phases))):
                log.info("%s: %s", job, says)
                with suppress(OSError):  # a full disk stops the job where it matters
                    write_whole(file, json.dumps(asdict(Progress(job, run_id, says, time.time(), _links[-1] if _links else ""))))

    with suppress(OSError):
        for left in [each for each in file.parent.glob("*.json") if each.stat().st_mtime < time.time() - _DAY]:
            left.unlink(missing_ok=True)
    saying = Thread(target=say, name="progress", daemon=True)
    saying.start()
    try:
        yield
    finally:
        ended.set()
        saying.join()
        with suppress(OSError):
            file.unlink()


def of_jobs(settings: Settings) -> list[Progress]:
    """What the jobs that run now said last, by name; those that were killed are not among them."""
    found = []
    for file in sorted((settings.run_folder / _FOLDER).glob("*.json")):
        with suppress(OSError, ValueError, TypeError):  # it ended meanwhile, or is no file of ours
            found.append(Progress(**json.loads(file.read_text())))
    return [progress for progress in found if time.time() - progress.said_at < _STALE_SECONDS]


def _clock(seconds: float) -> timedelta:
    return timedelta(seconds=round(seconds))
