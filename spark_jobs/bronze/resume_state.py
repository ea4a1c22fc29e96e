"""From where the ingestion of a topic resumes: how far it and Kafka are, what forbids resuming, and the checkpoint to start with."""

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from spark_jobs.bronze import additions, checkpoints, gaps, incarnations
from spark_jobs.bronze.checkpoints import Checkpoint
from spark_jobs.bronze.coverage import known_offsets
from spark_jobs.bronze.gaps import Hole
from spark_jobs.bronze.incarnations import Incarnation
from spark_jobs.kafka.offsets import Positions, Present, find_start, is_another, read_topic
from spark_jobs.kafka.topics import SOURCE_TOPICS, ensure_topics
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Refusal:
    """What must be accepted before ingestion resumes: lost offsets, or (`replacement`) a topic whose offsets mean other records."""

    found: str
    lost: list[Hole]
    replacement: Incarnation | None = None

    def error(self, topic: str) -> LedgerError:
        """The refusal, with the command that accepts."""
        command = f".venv/bin/python -m spark_jobs.run accept --topic {topic} --who NAME --why TEXT"
        return LedgerError(f"topic {topic}: {self.found}; to accept that and resume: {command}")


@dataclass(frozen=True)
class ResumeState:
    """A topic in Kafka (`present`), its incarnation as bronze knows it, and the offsets from which the stream resumes (`resumes`).

    `checkpoint` is the one to resume; without it a new generation is needed, because of `trouble` if there is some. `is_exact`:
    the stream has written all before `resumes`; else bronze may lack records before it that Kafka has.
    """

    present: Present
    incarnation: Incarnation
    written: int
    resumes: Positions
    is_exact: bool
    checkpoint: Checkpoint | None
    trouble: str | None
    refusal: Refusal | None


def folder_of(settings: Settings, topic: str) -> Path:
    """Where a topic's checkpoints are."""
    return settings.checkpoints / "bronze" / topic


def is_known(settings: Settings, topic: str) -> bool:
    """Whether bronze has met this topic: then we must not create it again."""
    try:
        return checkpoints.read(folder_of(settings, topic), topic) is not None or incarnations.newest(settings, topic) is not None
    except ValueError:
        return True


def make_topics(settings: Settings, topics: Collection[str]) -> None:
    """Create those of the topics that neither the broker has nor bronze has met; raises LedgerError when the broker does not answer."""
    wanted = [topic for topic in SOURCE_TOPICS if topic.name in topics and not is_known(settings, topic.name)]
    ensure_topics(settings.broker(), wanted)


def find_resume_state(settings: Settings, table: Table, topic: str) -> ResumeState:
    """The state of a topic, which this does not change; raises LedgerError when Kafka does not describe it."""
    present, written = read_topic(settings, topic), additions.count_written(settings, table)
    checkpoint, trouble = _read(settings, topic)
    incarnation = incarnations.newest(settings, topic)
    if incarnation is None:
        incarnation = Incarnation(topic, 1, checkpoint.topic_id if checkpoint else present.topic_id, present.begins)
    if checkpoint and (checkpoint.topic_id, checkpoint.label) != (incarnation.topic_id, incarnation.label):
        checkpoint = None  # of an incarnation before
    position: Positions | None = None
    if checkpoint:
        position, trouble = _find_position(checkpoint, table, written)
    if position is None:
        known = known_offsets(settings, table, incarnation.label)
        resumes = incarnation.first_offsets | {number: last + 1 for number, last in known.items()}
    else:
        resumes = position
    lost_ends = _lost_ends(checkpoint, written) if checkpoint and position is not None and trouble is None else {}
    refusal = _refuse(settings, table, replace(present, ends=present.ends | lost_ends), incarnation, resumes)
    is_behind = any(begin > resumes.get(number, 0) for number, begin in present.begins.items())
    is_narrow = checkpoint is not None and checkpoint.planned < 0 and checkpoint.starts.keys() != present.begins.keys()
    usable = checkpoint if position is not None and trouble is None and not (is_behind or is_narrow) else None
    return ResumeState(present, incarnation, written, resumes, position is not None, usable, trouble, refusal)


def open_checkpoint(settings: Settings, table: Table, topic: str, starting_offsets: str | None) -> Checkpoint:
    """The checkpoint to resume, or a new generation where there is none or a starting point is asked for.

    A new generation counts its batches on from the table's, and remembers what the table has, so that nothing comes twice; one that
    was damaged is replaced by itself. Raises LedgerError, with the command that accepts, where the topic was created again or
    Kafka has removed what bronze lacks. The caller holds the lease of the table.
    """
    state = find_resume_state(settings, table, topic)
    if state.refusal:
        raise state.refusal.error(topic)
    incarnations.record(settings, state.incarnation)
    if starting_offsets is None and state.checkpoint:
        return state.checkpoint
    label = state.incarnation.label
    known = known_offsets(settings, table, label)
    starts = _find_starts(settings, table, state, starting_offsets, known)
    if starting_offsets is None and state.trouble:
        log.warning("%s: a new checkpoint is made, and records that bronze has are left out", state.trouble)
    elif starting_offsets is None and state.is_exact:
        log.warning("%s: a new checkpoint resumes at %s", table.name, starts)
    first_batch = state.written + 1
    return checkpoints.begin(folder_of(settings, topic), topic, state.incarnation.topic_id, label, first_batch, starts, known)


def confirm_topic(settings: Settings, topic: str, checkpoint: Checkpoint) -> None:
    """Refuse, with LedgerError, to take records from a topic that is not the checkpoint's: it was replaced while the query ran."""
    if is_another(settings, topic, checkpoint.topic_id):
        raise LedgerError(f"topic {topic}: found another topic than that with Kafka's id {checkpoint.topic_id}: it was deleted just now")


def resume_offsets(settings: Settings, table: Table, topic: str) -> tuple[str, Positions]:
    """The `_topic` of the records of a topic, and from which offset on the stream brings those of each partition by itself.

    That is, if it is started without options; of a partition that is not named it brings all. Where there is no checkpoint to go
    on from: after bronze's last record. Raises LedgerError when the topic is another than bronze knows.
    """
    state = find_resume_state(settings, table, topic)
    if state.refusal and state.refusal.replacement:
        raise state.refusal.error(topic)
    return state.incarnation.label, state.resumes


def _read(settings: Settings, topic: str) -> tuple[Checkpoint | None, str | None]:
    try:
        return checkpoints.read(folder_of(settings, topic), topic), None
    except ValueError as error:
        return None, str(error)


def _find_position(checkpoint: Checkpoint, table: Table, written: int) -> tuple[Positions | None, str | None]:
    """From where a checkpoint resumes, None when it does not say; and what is wrong with it."""
    damage = checkpoint.damage()
    if not checkpoint.agrees_with(written):
        apart = f"{table.name} and its checkpoint {checkpoint.folder} do not belong together any more (one of them was removed or restored)"
        return None, damage or apart
    try:
        return checkpoint.resumes_at(written), damage
    except (OSError, ValueError) as error:
        return None, damage or f"{checkpoint.folder}: {error}"


def _lost_ends(checkpoint: Checkpoint, written: int) -> Positions:
    """Where partitions ended that had lost their end when Spark planned the batch that is not written yet.

    What they have from there on, also after they have grown past their old end, has the offsets of lost records.
    """
    if written >= checkpoint.first_batch + checkpoint.planned:
        return {}
    planned = checkpoint.offsets(checkpoint.planned)
    return {str(number): offsets.stop for number, offsets in planned.items() if offsets.stop < offsets.start}


def _refuse(settings: Settings, table: Table, present: Present, incarnation: Incarnation, resumes: Positions) -> Refusal | None:
    if present.topic_id != incarnation.topic_id:
        return _recreated(present, incarnation, resumes)
    if any(resumes.get(number, 0) > end for number, end in present.ends.items()):
        return _truncated(present, incarnation, resumes)
    lost = gaps.find_lost(settings, table, incarnation.label, resumes, present.begins)
    if not lost:
        return None
    return Refusal(
        f"found that Kafka has removed offsets {gaps.describe(lost)}, which {table.name} lacks, expected them still there "
        "(the topic's retention is shorter than this pause was, or records were deleted)",
        lost,
    )


def _recreated(present: Present, incarnation: Incarnation, resumes: Positions) -> Refusal:
    replacement = Incarnation(incarnation.topic, incarnation.number + 1, present.topic_id, present.begins)
    return Refusal(
        f"found Kafka's topic id {present.topic_id}, expected {incarnation.topic_id}: it was deleted and created again, or this is another "
        "broker (then use another LEDGER_WAREHOUSE and LEDGER_CHECKPOINTS for it), and its offsets mean other records; what the old one "
        f"had from {_places(resumes) or 'its first offsets'} on is gone, and its records would come as `_topic` {replacement.label}",
        [],
        replacement,
    )


def _truncated(present: Present, incarnation: Incarnation, resumes: Positions) -> Refusal:
    replacement = Incarnation(incarnation.topic, incarnation.number + 1, present.topic_id, present.ends)
    back = {number: end for number, end in present.ends.items() if resumes.get(number, 0) > end}
    return Refusal(
        f"found that Kafka's log ends before {_places(back)}, expected it to reach {_places({each: resumes[each] for each in back})}, "
        "where bronze is: the broker has lost records that bronze has, and gives their offsets to others; what it has from its present "
        f"end on would come as `_topic` {replacement.label}",
        [],
        replacement,
    )


def _places(positions: Positions) -> str:
    return ", ".join(
        f"offset {offset} of partition {number}" for number, offset in sorted(positions.items(), key=lambda pair: int(pair[0]))
    )


def _find_starts(settings: Settings, table: Table, state: ResumeState, starting_offsets: str | None, known: Positions) -> Positions:
    """From where a new generation starts. Records the holes that a starting point leaves."""
    incarnation, present = state.incarnation, state.present
    if starting_offsets is None and state.is_exact:
        return {number: max(begin, state.resumes.get(number, 0)) for number, begin in present.begins.items()}
    floors = {number: incarnation.first_offsets.get(number, 0) for number in present.begins}
    following = {number: known.get(number, -1) + 1 for number in present.begins}
    starts, holes = find_start(settings, incarnation.topic, starting_offsets or "earliest", present, _larger(following, floors))
    gaps.record(settings, table, incarnation.label, holes, f"started at {starting_offsets}")
    return _larger(starts, floors)


def _larger(one: Positions, other: Positions) -> Positions:
    return {number: max(offset, other[number]) for number, offset in one.items()}
