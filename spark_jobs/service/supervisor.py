"""Supervision of an application: found again if it runs, started if it does not, replaced if it hangs. Knows no Airflow.

The application is a session of its own below no process of Airflow's, so whatever happens to Airflow does not happen to it. It is
judged by its heartbeat (spark_jobs/service/heartbeat.py); that there is never more than one is the lease's doing, not ours.
"""

import logging
import os
import shlex
import subprocess
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from spark_jobs.runtime.job_process import COMMAND, FINAL_EXIT_CODES, job_environment
from spark_jobs.runtime.log_lines import error_line
from spark_jobs.runtime.private import UMASK
from spark_jobs.runtime.settings import ROOT, Settings
from spark_jobs.service import desired_state, heartbeat, log_writer
from spark_jobs.service.heartbeat import ENDED, RUNNING, Heartbeat
from spark_jobs.service.services import Service

log = logging.getLogger(__name__)

FIRST_SECONDS = 60  # from its start to its first heartbeat
HEALTHY_SECONDS = 60  # one that has run for so long did come up, as did one that has written a batch
STOP_SECONDS = 180  # for a graceful end that was asked for
MOST_FAILURES = 48
_PAUSES = (0, 2, 5, 10, 20, 40, 80, 160, 300)  # seconds before the next start, after so many failures in a row
_TAIL_BYTES = 16 * 1024
# The shell stays to write down how the application ended; `--fork` puts it below process 1 at once, and who writes the log too, which
# must not be stopped before the application. Like the log of a part of the stack, it is of bounded size.
_LOGGED = f'</dev/null > >(exec setsid --fork env -i {shlex.join(log_writer.command())} "$1.log" >&3 2>/dev/null) 2>&1 3>&-'
_DETACHED = ("setsid", "--fork", "bash", "-c", f'exec 3>>"$1.log"; "${{@:2}}" {_LOGGED}; echo $? >"$1.exit"')


class GaveUpError(Exception):
    """No other start can help until an operator has changed something; the text says what was found."""


class Supervisor:
    """Watches one application: of some parts of a service, or (with none) of all. Call `step` about once a second.

    What it remembers may be lost: the next one finds out by itself.
    """

    def __init__(self, settings: Settings, service: Service, parts: Collection[str], run_id: str, command: Sequence[str] = COMMAND) -> None:
        self.name = service.application(parts)
        self._settings, self._service, self._parts, self._run_id, self._command = settings, service, parts, run_id, command
        self._is_ours = False  # started or seen alive by this supervisor, and its end not yet noted
        self._coming_since: float | None = None  # started by us, no heartbeat yet
        self._failures, self._next_start = 0, 0.0
        self._reported: dict[str, str] = {}

    @property
    def log_file(self) -> Path:
        """Where the application's output goes; that of the start before is kept as `.1`."""
        return self._base.with_name(f"{self.name}.log")

    @property
    def _base(self) -> Path:
        return self._service.folder(self._settings) / self.name

    def step(self) -> list[str]:
        """Check once and act; returns what has changed, in words. Raises GaveUpError when no other start can help."""
        now, wanted = time.time(), desired_state.read_wanted(self._settings, self._service)
        beat = heartbeat.read_one(self._settings, self._service, self.name)
        if beat and beat.is_alive():
            return self._watch(beat, now)
        if wanted.state == desired_state.STOPPED:
            to_do = f"trigger {self._service.control_dag} with restart to continue"
            return self._report("itself", f"is stopped: requested by {wanted.origin()}; {to_do}")
        if self._coming_since is not None and not self._has_ended(beat) and now - self._coming_since < FIRST_SECONDS:
            return []
        if self._is_ours:
            return [self._note_end(beat, now)]
        if now < self._next_start:
            return []
        if beat is not None:
            heartbeat.kill(beat.processes())  # its JVM, if that hangs
        self.start()
        return [f"started {self.name}; its output goes to {self.log_file}"]

    def start(self, *options: str) -> None:
        """Start the application, detached. If another one has the lease, it ends by itself with exit code 5."""
        self._base.parent.mkdir(parents=True, exist_ok=True)
        if self.log_file.exists():
            os.replace(self.log_file, self.log_file.with_suffix(".log.1"))
        self._exit_file.unlink(missing_ok=True)
        obeyed = desired_state.read_wanted(self._settings, self._service).number
        arguments = ["--run-id", self._run_id, *self._service.words(self._parts), f"--obeying={obeyed}", *options]
        command, nothing = [*_DETACHED, self._service.name, str(self._base), *self._command, *arguments], subprocess.DEVNULL
        part = {"LEDGER_STACK_PART": self._service.dag}  # by which the embedded stack knows it from the part that started it
        environment = {**os.environ, **job_environment(), **part}
        subprocess.run(
            command, cwd=ROOT, env=environment, check=True, timeout=10, umask=UMASK, stdin=nothing, stdout=nothing, stderr=nothing
        )
        self.expect()

    def expect(self) -> None:
        """Another supervisor has just called `start`."""
        self._coming_since, self._is_ours = time.time(), True

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Ask the application to finish its batch and exit, and wait; kill it when it does not. Only the caller starts it again."""
        beat = heartbeat.read_one(self._settings, self._service, self.name)
        if beat is None or not beat.is_alive():
            return
        if processes := beat.processes():
            processes[-1].terminate()
        else:  # it is on another host, where it sees the request
            desired_state.ask(self._settings, self._service, desired_state.RUN, self.name, "another one is to start")
        deadline = time.time() + seconds
        while beat.is_alive() and time.time() < deadline:
            time.sleep(0.2)
            beat = heartbeat.read_one(self._settings, self._service, self.name) or beat
        heartbeat.kill(beat.processes())

    @property
    def _exit_file(self) -> Path:
        return self._base.with_name(f"{self.name}.exit")

    def _watch(self, beat: Heartbeat, now: float) -> list[str]:
        if not self._is_ours:
            self._exit_file.unlink(missing_ok=True)  # of an earlier application: one that was started elsewhere writes none
        self._coming_since, self._is_ours = None, True
        has_written = any(part.get("batch") for part in beat.parts.values())
        if beat.state == RUNNING and (has_written or now - beat.facts["started_at"] > HEALTHY_SECONDS):
            self._failures = 0
        wrong = beat.what_is_wrong(now)
        if wrong and beat.processes():
            heartbeat.kill(beat.processes())
            return [f"{beat.who()} {wrong}: killed, to be replaced"]
        return [line for key, line in _news(beat) for line in self._report(key, line)]

    def _has_ended(self, beat: Heartbeat | None) -> bool:
        """Whether the application that we started has ended."""
        return self._exit_file.exists() or (beat is not None and beat.facts["started_at"] >= (self._coming_since or 0))

    def _note_end(self, beat: Heartbeat | None, now: float) -> str:
        code = self._exit_code(beat)
        ending = self._how_it_ended(beat, code)
        self._is_ours, self._coming_since = False, None
        if code == 0:
            self._next_start = now
            return f"{self.name} has ended: {ending}"
        pause = _PAUSES[min(self._failures, len(_PAUSES) - 1)]
        self._failures, self._next_start = self._failures + 1, now + pause
        if code in FINAL_EXIT_CODES or self._failures >= MOST_FAILURES:
            raise GaveUpError(f"{self.name}: {ending} ({self._failures} starts in a row failed)")
        return f"{self.name} has ended: {ending}; the next start is in {pause} s"

    def _exit_code(self, beat: Heartbeat | None) -> int | None:
        """As its shell wrote it, or as it said itself where its process takes longer to end; None when it was killed without a shell."""
        for _ in range(30):  # the shell may be about to
            try:
                return int(self._exit_file.read_text())
            except (OSError, ValueError):
                time.sleep(0.1)
        if beat is None or beat.facts["started_at"] < (self._coming_since or 0):
            return None
        code: int | None = beat.facts["exit_code"]
        return code

    def _how_it_ended(self, beat: Heartbeat | None, code: int | None) -> str:
        line = error_line(_tail(self.log_file))
        if beat is not None and beat.state == ENDED and beat.facts["exit_code"] == code:
            line = beat.facts["error"] or "on request"
        return f"exit code {code}: {line}" if code is not None else f"without an exit code; its last line: {line}"

    def _report(self, key: str, line: str) -> list[str]:
        """The line, if it is new."""
        if self._reported.get(key) == line:
            return []
        self._reported[key] = line
        return [line]


def _news(beat: Heartbeat) -> list[tuple[str, str]]:
    """What of a heartbeat is worth a line in a log when it changes: the state, and how each topic or query does."""
    facts = beat.facts
    lines = [("itself", f"{facts['application']} is {facts['state']} (process {facts['process']['pid']} on {facts['host']})")]
    for name, part in beat.parts.items():
        status = f"fails: {part['error']}" if part.get("error") else f"is {part.get('pace') or part['state']}"
        lines.append((name, f"{name} {status}"))
    return lines


def _tail(file: Path) -> str:
    try:
        return log_writer.tail(file, _TAIL_BYTES)
    except OSError:
        return ""
