"""Offsets that bronze lacks and Kafka has no more, and the record of what bronze does without: control.holes."""

import logging
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from spark_jobs import control
from spark_jobs.bronze.coverage import Coverage, runs
from spark_jobs.kafka.offsets import Positions
from spark_jobs.lake import leases
from spark_jobs.lake.tables import HOLES, Table
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

Hole = dict[str, Any]  # _partition, first_offset, last_offset
_AT_ONCE = 1_000_000  # offsets
_PLACE = ("_topic", "_partition", "first_offset", "last_offset")
_LISTED = 10


def find_lost(settings: Settings, table: Table, label: str, resumes: Positions, begins: Positions) -> list[Hole]:
    """The offsets between where the stream resumes and what Kafka still has, is not in bronze, and is no recorded hole.

    Markers of transactions are offsets without a record; where Kafka has removed them nothing distinguishes them from lost records.
    """
    gone = {int(number): range(resumes.get(number, 0), begin) for number, begin in begins.items() if begin > resumes.get(number, 0)}
    if not gone:
        return []
    coverage, accepted = Coverage(settings, table, label), recorded(settings, table, label)
    found = []
    for number, offsets in gone.items():
        known = [range_of(hole) for hole in accepted if hole["_partition"] == number]
        for part in _without(_lacking(coverage, number, offsets), known):
            found.append({"_partition": number, "first_offset": part.start, "last_offset": part.stop - 1})
    return found


def describe(holes: Iterable[Hole]) -> str:
    """The offsets of some holes, human-readable."""
    texts = [f"{hole['first_offset']} to {hole['last_offset']} of partition {hole['_partition']}" for hole in holes]
    return ", ".join(texts[:_LISTED]) + (f" and {len(texts) - _LISTED} more ranges" if len(texts) > _LISTED else "")


def recorded(settings: Settings, table: Table, label: str) -> list[Hole]:
    """The recorded holes of one incarnation of a topic, those that were filled afterwards included, twice."""
    rows = control.read(settings, HOLES).to_pylist()
    return [row for row in rows if (row["table"], row["_topic"]) == (table.name, label)]


def covers(holes: Iterable[Hole], partition: int, offset: int) -> bool:
    """Whether an offset lies in one of some holes."""
    return any(hole["_partition"] == partition and offset in range_of(hole) for hole in holes)


def record(settings: Settings, table: Table, label: str, holes: list[Hole], why: str) -> None:
    """Record what bronze will not get, each hole once."""
    if not holes:
        return
    rows = [{"table": table.name, "_topic": label, **hole, "why": why, "recorded_at": datetime.now(UTC)} for hole in holes]
    with leases.hold(settings, [HOLES], owner=f"append to {HOLES.name}"):
        present = {place(row) for row in recorded(settings, table, label)}
        if new := [row for row in rows if place(row) not in present]:
            log.warning("%s: offsets %s are left out (%s)", table.name, describe(new), why)
            control.append_under_lease(settings, HOLES, new)


def _lacking(coverage: Coverage, partition: int, offsets: range) -> Iterator[range]:
    """The parts of these offsets that bronze lacks."""
    if coverage.count(partition, offsets.start, offsets.stop) == 0:
        yield offsets
        return
    for first in offsets[::_AT_ONCE]:
        yield from runs(coverage.missing(partition, first, min(first + _AT_ONCE, offsets.stop)).tolist())


def _without(parts: Iterable[range], known: Iterable[range]) -> Iterator[range]:
    """The parts less what is known, in order; neighbours are joined."""
    left = list(parts)
    for other in known:
        cut = ((range(part.start, min(part.stop, other.start)), range(max(part.start, other.stop), part.stop)) for part in left)
        left = [part for pair in cut for part in pair if part]
    last: range | None = None
    for part in left:
        if last is not None and last.stop == part.start:
            last = range(last.start, part.stop)
            continue
        if last is not None:
            yield last
        last = part
    if last is not None:
        yield last


def range_of(hole: Hole) -> range:
    """The offsets of a hole."""
    return range(hole["first_offset"], hole["last_offset"] + 1)


def place(hole: Hole) -> tuple[Any, ...]:
    """By what a hole is known."""
    return tuple(hole[name] for name in _PLACE)
