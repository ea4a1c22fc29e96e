"""The heartbeat of an application: who it is, how far it has come and what waits, in one small document, once a second.

Its supervisor reads it, and the commands that log its status. Times are seconds since the epoch, by the clock of the host that reads it.
"""

import json
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from spark_jobs.runtime import documents
from spark_jobs.runtime.errors import first_line
from spark_jobs.runtime.identity import find_process, identify
from spark_jobs.runtime.settings import Settings
from spark_jobs.service.services import Service

STALE_SECONDS = 25  # a driver beats once a second; one that did not for so long is hung
STARTING_SECONDS = 180  # for the JVM to come up
STUCK_SECONDS = 300  # records wait, and no batch has ended
_GOING_SECONDS = 20  # between an application's last heartbeat and the end of its JVM
STARTING, RUNNING, STOPPING, ENDED = "starting", "running", "stopping", "ended"

_SIZE = 64 * 1024
_NAME = ".heartbeat"


@dataclass(frozen=True)
class Heartbeat:
    """What an application said last. `facts` is the whole file; see `include/docs/ingestion.md` for its fields."""

    facts: Mapping[str, Any]

    @property
    def state(self) -> str:
        """starting, running, stopping or ended."""
        return str(self.facts["state"])

    @property
    def parts(self) -> Mapping[str, Mapping[str, Any]]:
        """The status of each of its topics or queries."""
        return dict(self.facts["topics"])

    def age(self, now: float) -> float:
        """How long ago it was said, in seconds."""
        return now - float(self.facts["beat_at"])

    def is_alive(self) -> bool:
        """Whether the process still is there, also when it hangs. One on another host is, as long as it beats."""
        if self.facts["host"] != socket.gethostname():
            return self.state != ENDED and self.age(time.time()) < STALE_SECONDS
        return self.state != ENDED and find_process(self.facts["process"]) is not None

    def processes(self) -> list[psutil.Process]:
        """What still runs of it on this host, the JVM first."""
        if self.facts["host"] != socket.gethostname():
            return []
        found = (find_process(self.facts[name]) for name in ("jvm", "process") if self.facts.get(name))
        return [process for process in found if process]

    def what_is_wrong(self, now: float) -> str | None:
        """Why it should be replaced, as text; None when it is healthy."""
        silent = self.age(now)
        if self.state == STARTING:
            took = now - float(self.facts["started_at"])
            return f"has been starting for {took:.0f} s, expected at most {STARTING_SECONDS} s" if took > STARTING_SECONDS else None
        if silent > STALE_SECONDS:
            return f"hangs: no heartbeat for {silent:.0f} s, expected one a second"
        for name, part in self.parts.items():
            if part["state"] == RUNNING and part.get("lag_records") and now - float(part["progressed_at"]) > STUCK_SECONDS:
                waited = now - float(part["progressed_at"])
                return f"is stuck: {part['lag_records']} records of {name} wait, and no batch has ended for {waited:.0f} s"
        return None

    def who(self) -> str:
        """Who it is, for messages."""
        process = self.facts["process"]
        return f"{self.facts['application']} (process {process['pid']} on {self.facts['host']}, epoch {self.facts['epoch']})"


def read(settings: Settings, service: Service) -> list[Heartbeat]:
    """The last heartbeat of every application of a service that ever ran on these checkpoints."""
    files = documents.find(settings, service.folder(settings), f"*{_NAME}")
    return [beat for file in files if (beat := _read(settings, file))]


def read_one(settings: Settings, service: Service, name: str) -> Heartbeat | None:
    """The last heartbeat of an application; None when it never ran."""
    return _read(settings, service.folder(settings) / f"{name}{_NAME}")


def end_leftovers(settings: Settings, service: Service, parts: Iterable[str]) -> list[str]:
    """Kill what is left of earlier applications of these topics or queries; returns who they were.

    Call it with the leases held: the Python process that held them before is gone, but its JVM may have been stopped in the middle
    of a commit, and must not wake up and write. One that has said that it ended, and is about to be gone, is given the time.
    """
    wanted, ended = set(parts), []
    for beat in read(settings, service):
        left = [process for process in beat.processes() if process.pid != os.getpid()]
        if beat.state == ENDED:
            _, left = psutil.wait_procs(left, timeout=_GOING_SECONDS)
        if left and wanted & set(beat.parts):
            kill(left)
            ended.append(beat.who())
    return ended


def kill(processes: Iterable[psutil.Process], patience: float = 10) -> None:
    """End processes by force, stopped ones too, and wait until they are gone."""
    ending = list(processes)
    for process in ending:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(ending, timeout=patience)


class HeartbeatFile:
    """Writes the heartbeat of this process; a file in place and at a fixed size: a full disk does not silence it."""

    def __init__(self, settings: Settings, service: Service, name: str, parts: Iterable[str], run_id: str, epoch: int) -> None:
        self._settings, self._path = settings, service.folder(settings) / f"{name}{_NAME}"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._facts: dict[str, Any] = {
            "application": name,
            "host": socket.gethostname(),
            "process": identify(os.getpid()),
            "jvm": None,
            "run_id": run_id,
            "epoch": epoch,
            "started_at": time.time(),
            "state": STARTING,
            "exit_code": None,
            "error": None,
            "topics": {part: {"state": STARTING, "progressed_at": time.time()} for part in parts},
        }
        self.beat()

    def beat(self, **news: Any) -> None:
        """Write the heartbeat, with what is new."""
        self._facts |= news
        text = json.dumps({**self._facts, "beat_at": time.time()})
        if self._settings.has_several_hosts:
            with suppress(documents.NoAnswer):  # who reads it will see that it is old
                documents.write(self._settings, self._path, text)
            return
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(file, text.encode()[:_SIZE].ljust(_SIZE), 0)
        finally:
            os.close(file)


@contextmanager
def beating(settings: Settings, service: Service, name: str, parts: Iterable[str], run_id: str, epoch: int) -> Iterator[HeartbeatFile]:
    """The heartbeat of this process; its last one says how it ended."""
    heart = HeartbeatFile(settings, service, name, parts, run_id, epoch)
    try:
        yield heart
        heart.beat(state=ENDED, exit_code=0)
    except BaseException as error:
        heart.beat(state=ENDED, exit_code=getattr(error, "exit_code", 1), error=first_line(error)[:2000])
        raise


def _read(settings: Settings, file: Path) -> Heartbeat | None:
    """A heartbeat that is just being written is read again. Times by another clock become times by ours."""
    for _ in range(5):
        try:
            found = documents.read(settings, file)
            facts = json.loads(found.text)
            shift = 0.0 if found.age is None else time.time() - found.age - facts["beat_at"]
            return Heartbeat(_shifted(facts, shift) if shift else facts)
        except FileNotFoundError:
            return None
        except ValueError:
            time.sleep(0.02)
    return None


def _shifted(facts: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """The same facts with their times (`..._at`) so many seconds later."""
    moved = {name: value + seconds if name.endswith("_at") and isinstance(value, float) else value for name, value in facts.items()}
    return moved | {"topics": {name: _shifted(part, seconds) for name, part in facts["topics"].items()}} if "topics" in facts else moved
