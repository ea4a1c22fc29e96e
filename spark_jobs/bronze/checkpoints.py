"""The checkpoint with which a bronze query starts: the one that is there, or a new generation; or a refusal that says what to accept."""

import logging

from spark_jobs.bronze import gaps, generations, incarnations
from spark_jobs.bronze.coverage import known_offsets
from spark_jobs.bronze.generations import Checkpoint
from spark_jobs.bronze.resume_state import ResumeState, find_resume_state, folder_of
from spark_jobs.kafka.offsets import Positions, find_start, is_another
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings

__all__ = ["Checkpoint", "confirm_topic", "open_checkpoint", "resume_offsets"]

log = logging.getLogger(__name__)


def open_checkpoint(settings: Settings, table: Table, topic: str, starting_offsets: str | None) -> Checkpoint:
    """The checkpoint to resume, or a new generation where there is none or a starting point is asked for.

    A new generation counts its batches on from the table's, and remembers what the table has, so that nothing comes twice; one that
    was damaged is replaced by itself. Raises LedgerError, with the command that accepts, where the topic was created again or
    Kafka has removed what bronze lacks. The caller holds the lease of the table.
    """
    state = find_resume_state(settings, table, topic)
    if state.refusal:
        raise state.refusal.error(topic)
    incarnations.record(settings, state.life)
    if starting_offsets is None and state.checkpoint:
        return state.checkpoint
    label = state.life.label
    known = known_offsets(settings, table, label)
    starts = _find_starts(settings, table, state, starting_offsets, known)
    if starting_offsets is None and state.trouble:
        log.warning("%s: a new checkpoint is made, and records that bronze has are left out", state.trouble)
    elif starting_offsets is None and state.is_exact:
        log.warning("%s: a new checkpoint resumes at %s", table.name, starts)
    first_batch = state.written + 1
    return generations.begin(folder_of(settings, topic), topic, state.life.topic_id, label, first_batch, starts, known)


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
    return state.life.label, state.resumes


def _find_starts(settings: Settings, table: Table, state: ResumeState, starting_offsets: str | None, known: Positions) -> Positions:
    """From where a new generation starts. Records the holes that a starting point leaves."""
    life, present = state.life, state.present
    if starting_offsets is None and state.is_exact:
        return {number: max(begin, state.resumes.get(number, 0)) for number, begin in present.begins.items()}
    floors = {number: life.first_offsets.get(number, 0) for number in present.begins}
    following = {number: known.get(number, -1) + 1 for number in present.begins}
    starts, holes = find_start(settings, life.topic, starting_offsets or "earliest", present, _larger(following, floors))
    gaps.record(settings, table, life.label, holes, f"started at {starting_offsets}")
    return _larger(starts, floors)


def _larger(one: Positions, other: Positions) -> Positions:
    return {number: max(offset, other[number]) for number, offset in one.items()}
