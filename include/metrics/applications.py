"""Series of the applications: out of their heartbeats, and of what is wanted of them."""

import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from include.metrics.series import Sample
from spark_jobs.bronze.pace import FALLING_BEHIND, KEEPING_UP, OVERLOADED
from spark_jobs.runtime.settings import Settings
from spark_jobs.service import desired_state, heartbeat
from spark_jobs.service.heartbeat import ENDED, RUNNING, STARTING, STOPPING, Heartbeat
from spark_jobs.service.services import SERVICES, Service

FAILED, DEAD, HUNG = "failed", "dead", "hung"
STATES = (STARTING, RUNNING, STOPPING, ENDED, FAILED, DEAD, HUNG)
PACES = (KEEPING_UP, FALLING_BEHIND, OVERLOADED)
# A query's facts that are a series each, and where they lie among the costs.
_MEASURES = {
    "lag_records": "lag_records",
    "lag_seconds": "lag_seconds",
    "arrival_rate": "arrival_rate",
    "processing_rate": "busy_rate",
    "limit": "batch_limit_records",
    "dropped_rows": "dropped_rows_total",
    "progressed_at": "progress_timestamp_seconds",
}
_COSTS = {
    "batches": "batches_total",
    "rows": "rows_total",
    "input_rate": "input_rate",
    "processing_rate": "processing_rate",
    "batch_seconds": "batch_seconds",
    "state_rows": "state_rows",
    "state_bytes": "state_bytes",
}


def read(settings: Settings) -> Iterator[Sample]:
    """Samples of every application that ever ran, but for those whose work others do now."""
    now = time.time()
    for service in SERVICES.values():
        wanted = desired_state.read_wanted(settings, service)
        yield "ledger_service_wanted", (service.command,), float(wanted.state != desired_state.STOPPED)
        beats = _newest_first(heartbeat.read(settings, service))
        for beat in _current(beats):
            yield from _application(service, beat, now)
        of_query = {name: (beat, part) for beat in reversed(beats) for name, part in beat.parts.items()}
        for name, (beat, part) in of_query.items():
            yield from _query((service.command, name), part, beat.is_alive())


def _newest_first(beats: list[Heartbeat]) -> list[Heartbeat]:
    return sorted(beats, key=lambda beat: (beat.is_alive(), float(beat.facts["beat_at"])), reverse=True)


def _current(beats: list[Heartbeat]) -> Iterator[Heartbeat]:
    """Without those that have ended, all of whose topics or queries others took over."""
    done: set[str] = set()
    for beat in beats:
        if beat.is_alive() or not beat.parts.keys() <= done:
            yield beat
        done |= beat.parts.keys()


def _application(service: Service, beat: Heartbeat, now: float) -> Iterator[Sample]:
    labels = (service.command, str(beat.facts["application"]))
    found = state_of(beat, now)
    for state in STATES:
        yield "ledger_application_state", (*labels, state), float(state == found)
    yield "ledger_application_heartbeat_timestamp_seconds", labels, float(beat.facts["beat_at"])
    yield "ledger_application_start_timestamp_seconds", labels, float(beat.facts["started_at"])


def state_of(beat: Heartbeat, now: float) -> str:
    """One of STATES."""
    if beat.state == ENDED:
        return ENDED if beat.facts["exit_code"] == 0 else FAILED
    if not beat.is_alive():
        return DEAD
    return HUNG if beat.what_is_wrong(now) else beat.state


def _query(labels: tuple[str, str], part: Mapping[str, Any], is_alive: bool) -> Iterator[Sample]:
    yield "ledger_query_up", labels, float(is_alive and part["state"] == RUNNING)
    yield "ledger_query_failures", labels, float(part.get("failures", 0))
    costs = part.get("costs", {})
    for facts, names in ((part, _MEASURES), (costs, _COSTS)):
        for fact, name in names.items():
            if facts.get(fact) is not None:
                yield f"ledger_query_{name}", labels, float(facts[fact])
    for phase, seconds in costs.get("seconds", {}).items():
        yield "ledger_query_phase_seconds_total", (*labels, phase), float(seconds)
    for partition, offset in part.get("offsets", {}).items():
        yield "ledger_query_offset", (*labels, str(partition)), float(offset)
    if "pace" in part:
        for pace in PACES:
            yield "ledger_query_pace", (*labels, pace), float(pace == part["pace"])
    if part.get("watermark"):
        yield "ledger_query_watermark_timestamp_seconds", labels, datetime.fromisoformat(part["watermark"]).timestamp()
