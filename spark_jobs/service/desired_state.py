"""The desired state of a service: running, stopped or restarted. One small document, which applications and supervisors obey.

An application compares it with what it was when it started: any later request ends it gracefully, after the current
batch. So an application that is started by hand runs, although the service is stopped.
"""

import json
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from spark_jobs.runtime import documents
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings
from spark_jobs.service import heartbeat
from spark_jobs.service.heartbeat import Heartbeat
from spark_jobs.service.services import Service

log = logging.getLogger(__name__)

RUN, STOPPED = "run", "stopped"
_STOPPED_BEFORE = "stand still"  # how an older version of the project wrote it
ACTIONS = ("status", "stop", "restart")
_FILE = "wanted.json"
# The measures of a topic or query, as far as it has them: bronze has no watermark, and not every query a rate.
_MEASURES = {
    "batch": "batch {}",
    "lag_records": "{} records wait",
    "lag_seconds": "the oldest for {:.0f} s",
    "arrival_rate": "{:.0f} a second come",
    "processing_rate": "{:.0f} a second go",
    "limit": "at most {} a batch",
    "watermark": "watermark {}",
}


@dataclass(frozen=True)
class Wanted:
    """The last request; each has another `number`."""

    state: str = RUN
    number: str = ""
    who: str = ""
    why: str = ""
    asked_at: str = ""

    def origin(self) -> str:
        """Who requested it, when and why."""
        return f"{self.who} at {self.asked_at}{f': {self.why}' if self.why else ''}"


def read_wanted(settings: Settings, service: Service) -> Wanted:
    """The desired state: that it runs where nothing was ever requested."""
    file = service.folder(settings) / _FILE
    try:
        wanted = Wanted(**json.loads(documents.read(settings, file).text))
        return replace(wanted, state=STOPPED) if wanted.state == _STOPPED_BEFORE else wanted
    except FileNotFoundError:
        return Wanted()
    except (ValueError, TypeError) as error:
        raise LedgerError(f"{file} cannot be read ({error}): remove it, then request the state again") from None


def must_end(settings: Settings, service: Service, obeyed: str) -> bool:
    """Whether a request came after the one of this number, so a running application is to end; no as long as nobody can say."""
    try:
        return read_wanted(settings, service).number != obeyed
    except documents.NoAnswer:
        return False


def ask(settings: Settings, service: Service, state: str, who: str, why: str) -> Wanted:
    """Record what is wanted; running applications see it within a second."""
    wanted = Wanted(state, uuid.uuid4().hex, who, why, datetime.now(UTC).isoformat(timespec="seconds"))
    documents.write(settings, service.folder(settings) / _FILE, json.dumps(asdict(wanted)))
    return wanted


def run(settings: Settings, service: Service, action: str, who: str, why: str, wait_seconds: float) -> None:
    """Stop or restart a service gracefully, or log its status: a line for each application, and for each of its topics or queries.

    Returns once every application has ended (stop), or one has started since (restart).
    Raises LedgerError when that takes longer than `wait_seconds`.
    """
    if action == "status":
        _log_status(settings, service)
        return
    before = {beat.facts["process"]["pid"] for beat in heartbeat.read(settings, service) if beat.is_alive()}
    ask(settings, service, STOPPED if action == "stop" else RUN, who, why)
    deadline = time.monotonic() + wait_seconds
    while left := [beat for beat in heartbeat.read(settings, service) if beat.is_alive() and beat.facts["process"]["pid"] in before]:
        if time.monotonic() >= deadline:
            raise LedgerError(
                f"{left[0].who()} was asked to end and still runs after {wait_seconds:.0f} s: it ends after the current batch; "
                "wait, or end it: a batch that is cut short is repeated"
            )
        time.sleep(0.2)
    if action == "stop":
        log.info("%s is stopped (%d applications ended) until a restart is requested", service.name, len(before))
        return
    while not any(beat.is_alive() and beat.facts["process"]["pid"] not in before for beat in heartbeat.read(settings, service)):
        if time.monotonic() >= deadline:
            raise LedgerError(
                f"{service.name} may run, and nothing has started it within {wait_seconds:.0f} s: is the DAG {service.dag} on?"
            )
        time.sleep(0.2)
    log.info("%s starts again", service.name)
    _log_status(settings, service)


def _log_status(settings: Settings, service: Service) -> None:
    wanted, now = read_wanted(settings, service), time.time()
    if wanted.number:
        log.info("desired state: %s, requested by %s", wanted.state, wanted.origin())
    beats = heartbeat.read(settings, service)
    if not beats:
        log.info("no application of %s has run on %s", service.name, settings.run_folder)
    for beat in beats:
        for line in lines_of(beat, now):
            log.info("%s", line)


def lines_of(beat: Heartbeat, now: float) -> list[str]:
    """An application in words: a line for itself, and one for each of its topics or queries."""
    if not beat.is_alive():
        error = beat.facts["error"] or ("on request" if beat.state == heartbeat.ENDED else "without a final heartbeat")
        return [f"{beat.who()}: ended {beat.age(now):.0f} s ago or later: {error}"]
    wrong = beat.what_is_wrong(now)
    itself = f"{beat.who()}: {wrong or beat.state}, last heartbeat {beat.age(now):.0f} s ago"
    return [itself, *(f"{name}: {_status_of(part, now)}" for name, part in beat.parts.items())]


def _status_of(part: Mapping[str, Any], now: float) -> str:
    if part.get("error"):
        return f"fails ({part['failures']} times, next try in {max(0, part['next_try_at'] - now):.0f} s): {part['error']}"
    measures = ", ".join(text.format(part[measure]) for measure, text in _MEASURES.items() if part.get(measure) is not None)
    return f"{part.get('pace') or part['state']}{f'; {measures}' if measures else ''}"
