"""The job behind `run replay`: fetches again from Kafka what bronze should have between two broker times, and adds what it lacks.

Records after the stream's checkpoint are left to the stream; otherwise they would come twice. A record that silver has already
processed returns under its former batch number. All others form one new batch of the table. Needs no Spark.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from spark_jobs import control
from spark_jobs.bronze import additions, gaps, records
from spark_jobs.bronze.coverage import Coverage, runs
from spark_jobs.bronze.resume_state import resume_offsets
from spark_jobs.kafka.fetches import Fetches
from spark_jobs.kafka.offsets import offsets_at, read_topic
from spark_jobs.kafka.record_batches import MOST_BYTES
from spark_jobs.lake.tables import HOLES, Table
from spark_jobs.runtime import progress
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

_AT_ONCE = 100_000  # offsets
_LISTED = 10
_FILLED = "filled by a replay"


@dataclass(frozen=True)
class Span:
    """The offsets [first, end) of one partition; `oldest` is the first that Kafka holds."""

    partition: int
    first: int
    end: int
    oldest: int


@dataclass(frozen=True)
class Found:
    """The outcome for the offsets [first, end) of a partition: `present` in bronze, `added` now, or Kafka has no record there (`empty`).

    `gone`: older records of the range that bronze lacks and Kafka has removed. `left`: newer ones that ingestion will bring.
    `large`: the offsets of records that are too large for bronze.
    """

    partition: int
    first: int
    end: int
    added: int
    empty: tuple[range, ...]
    gone: int
    left: int
    large: tuple[int, ...]

    def __str__(self) -> str:
        """One human-readable line."""
        nothing = sum(map(len, self.empty))
        present = self.end - self.first - self.added - nothing - len(self.large)
        text = f"offsets {self.first} to {self.end - 1}: {present} present, {self.added} added" if self.end > self.first else "no offset"
        more = (
            (nothing, "without a record (compaction, markers or aborted transactions)"),
            (len(self.large), f"left out, of more than {MOST_BYTES} bytes (offset {', '.join(map(str, self.large[:_LISTED]))})"),
            (self.gone, "older ones gone from Kafka"),
            (self.left, f"from {self.end} on left to the ingestion"),
        )
        return ", ".join((text, *(f"{count} {what}" for count, what in more if count)))


def check_times(begin: datetime, end: datetime | None) -> None:
    """Refuse, with SettingsError, an empty range of times."""
    if end is not None and begin >= end:
        raise SettingsError(f"found --from {begin.isoformat()} and --to {end.isoformat()}, expected --from before --to")


def run(settings: Settings, tables: Iterable[Table], begin: datetime, end: datetime | None) -> None:
    """Add to these bronze tables what they lack of [begin, end), and say what was found. The caller holds their leases."""
    found = [each for table in tables for each in _replay(settings, table, begin, end)]
    added, gone, left = (sum(numbers) for numbers in zip(*((each.added, each.gone, each.left) for each in found), strict=True))
    if gone:
        log.warning("replay: %d offsets of the range are in neither bronze nor Kafka: its retention has removed them", gone)
    if left:
        log.info("replay: %d offsets lie where the ingestion has not been yet: it brings them when it is started", left)
    if added:
        log.info("replay: %d records added; next: start bronze_ingestion again, and let the DAG medallion run", added)
    else:
        log.info("replay: nothing is missing in bronze that Kafka has of this range; nothing was written")


def _replay(settings: Settings, table: Table, begin: datetime, end: datetime | None) -> list[Found]:
    topic = table.topic
    label, resumes = resume_offsets(settings, table, topic)
    coverage, holes = Coverage(settings, table, label), _open_holes(settings, table, label)
    found = []
    with additions.open_spool(settings, table) as spool:
        for span in _find_spans(settings, topic, begin, end):
            ours = replace(span, end=max(span.first, min(span.end, resumes.get(str(span.partition), 0))))
            gone, before = _count_gone(coverage, span, begin, end), spool.rows
            empty, too_large = _fetch(settings, topic, label, ours, coverage, holes, spool)
            added = spool.rows - before
            found.append(Found(span.partition, ours.first, ours.end, added, empty, gone, span.end - ours.end, too_large))
        batch = additions.append(settings, table, spool, "replay")
    for each in found:
        log.info("%s partition %d: %s", table.name, each.partition, each)
    if batch is not None:
        log.info("%s: %d records added as batch %d", table.name, spool.new_rows, batch)
    if known := spool.rows - spool.new_rows:
        log.info("%s: %d records added under the batches that they had: silver has processed them already", table.name, known)
    _log_holes(settings, table, label, holes, found)
    return found


def _find_spans(settings: Settings, topic: str, begin: datetime, end: datetime | None) -> list[Span]:
    """The records of each partition from the first one as late as `begin` to the one before the first as late as `end`."""
    present = read_topic(settings, topic)
    starts = offsets_at(settings, topic, present, begin)
    stops = offsets_at(settings, topic, present, end) if end else present.ends
    firsts = {number: max(starts[number], oldest) for number, oldest in present.begins.items()}
    return [Span(int(number), first, max(first, stops[number]), present.begins[number]) for number, first in firsts.items()]


def _fetch(
    settings: Settings, topic: str, label: str, span: Span, coverage: Coverage, holes: Iterable[dict[str, Any]], spool: additions.Spool
) -> tuple[tuple[range, ...], tuple[int, ...]]:
    """Put the records of a span that bronze lacks on the spool; returns the offsets that have none, and those of too large ones."""
    skipped = [gaps.range_of(hole) for hole in holes if hole["_partition"] == span.partition]
    empty: list[range] = []
    too_large: list[int] = []
    label_of_span = f"{topic} partition {span.partition}"
    with (
        Fetches(settings.broker(), topic) as fetches,
        progress.phase(label_of_span, len(range(span.first, span.end)), "offsets") as phase,
    ):
        for first in range(span.first, span.end, _AT_ONCE):
            phase.reach(first - span.first, label_of_span)
            missing = coverage.missing(span.partition, first, min(first + _AT_ONCE, span.end))
            if not len(missing):
                continue
            former = coverage.former_batches(span.partition, missing, skipped)
            wanted = set(missing.tolist())
            offsets = range(int(missing[0]), int(missing[-1]) + 1)
            for record in records.records(fetches, span.partition, offsets, are_all_there=False):
                if record.offset not in wanted:
                    continue
                wanted.remove(record.offset)
                if record.is_too_large:
                    too_large.append(record.offset)
                else:
                    spool.add({**additions.bronze_row(record, label, span.partition), "_batch": former.get(record.offset)})
            empty.extend(runs(sorted(wanted)))
    return tuple(empty), tuple(too_large)


def _count_gone(coverage: Coverage, span: Span, begin: datetime, end: datetime | None) -> int:
    """How many offsets of the time range bronze lacks that are older than anything that Kafka has; judged by bronze's own times."""
    if span.first > span.oldest or not span.oldest:
        return 0
    first, _ = coverage.edge(span.partition, begin)
    until = coverage.edge(span.partition, end)[1] if end is not None else None
    stop = span.oldest if until is None else min(until, span.oldest)
    return max(stop - first, 0) and stop - first - coverage.count(span.partition, first, stop)


def _open_holes(settings: Settings, table: Table, label: str) -> list[dict[str, Any]]:
    """The recorded holes of the topic's present incarnation that no replay has filled."""
    rows = gaps.recorded(settings, table, label)
    filled = {gaps.place(row) for row in rows if row["why"] == _FILLED}
    return [row for row in rows if gaps.place(row) not in filled]


def _log_holes(settings: Settings, table: Table, label: str, holes: Iterable[dict[str, Any]], found: Iterable[Found]) -> None:
    """Record which holes are filled now: bronze holds every offset of them that has a record."""
    coverage = Coverage(settings, table, label)
    filled = []
    for hole in holes:
        partition, first, end = hole["_partition"], hole["first_offset"], hole["last_offset"] + 1
        parts = [part for each in found if each.partition == partition for part in each.empty]
        empty = sum(len(range(max(part.start, first), min(part.stop, end))) for part in parts)
        lacking = end - first - coverage.count(partition, first, end) - empty
        what = f"the hole from offset {first} to {end - 1} of partition {partition}"
        log.info("%s: %s %s", table.name, what, f"still lacks {lacking}" if lacking else "is filled")
        if not lacking:
            filled.append({**hole, "why": _FILLED, "recorded_at": datetime.now(UTC)})
    if filled:
        control.append(settings, HOLES, filled)
