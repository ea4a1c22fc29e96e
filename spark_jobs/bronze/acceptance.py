"""The job behind `run accept`: an operator accepts that offsets are lost, that a topic was replaced, or that one record is left out.

Needs no Spark. Works while the ingestion runs and is refused: it is recorded in control tables, where the next try finds it.
"""

import logging

from spark_jobs.bronze import gaps, incarnations, records
from spark_jobs.bronze.resume_state import find_resume_state
from spark_jobs.kafka.fetches import Fetches
from spark_jobs.kafka.record_batches import MOST_BYTES
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

_NEXT = "next: a running ingestion resumes by itself; else start it"


def check_place(partition: int | None, offset: int | None) -> None:
    """Refuse, with SettingsError, half of a place."""
    if (partition is None) != (offset is None):
        raise SettingsError("found one of --partition and --offset, expected both or none")


def run(settings: Settings, table: Table, topic: str, who: str, why: str) -> None:
    """Accept, once, exactly what is refused of a topic now; raises SettingsError when that is nothing."""
    state = find_resume_state(settings, table, topic) if table.exists(settings) else None
    if state is None or state.refusal is None:
        raise SettingsError(
            f"topic {topic}: found nothing to accept, expected lost offsets or a topic that was created again; nothing was written"
        )
    incarnations.record(settings, state.incarnation)
    if incarnation := state.refusal.replacement:
        incarnations.record(settings, incarnation, who, why)
        log.info("topic %s: accepted with Kafka's id %s; its records come as `_topic` %s", topic, incarnation.topic_id, incarnation.label)
    else:
        lost, label = state.refusal.lost, state.incarnation.label
        gaps.record(settings, table, label, lost, f"removed from Kafka before they were read; accepted by {who}: {why}")
    log.info(_NEXT)


def give_up(settings: Settings, table: Table, partition: int, offset: int, who: str, why: str) -> None:
    """Record, once, that bronze does without one record that is too large; raises SettingsError when it is not."""
    topic = table.topic
    place = f"offset {offset} of partition {partition}"
    state = find_resume_state(settings, table, topic) if table.exists(settings) else None
    if state is None:
        raise SettingsError(f"topic {topic}: found no {table.name}, expected an ingestion that refuses {place}; nothing was written")
    if state.refusal:
        raise SettingsError(f"topic {topic}: {state.refusal.found}; accept that first, without --partition and --offset")
    record = None
    if state.present.begins.get(str(partition), offset + 1) <= offset < state.present.ends.get(str(partition), 0):
        with Fetches(settings.broker(), topic) as fetches:
            record = next(records.records(fetches, partition, range(offset, offset + 1)), None)
    if record is None or not record.is_too_large:
        found = f"a record of {record.size} bytes" if record else "no record"
        raise SettingsError(f"topic {topic}: found {found} at {place}, expected one of more than {MOST_BYTES}; nothing was written")
    hole = {"_partition": partition, "first_offset": offset, "last_offset": offset}
    incarnations.record(settings, state.incarnation)
    reason = f"a record of {record.size} bytes, more than {MOST_BYTES}; given up by {who}: {why}"
    gaps.record(settings, table, state.incarnation.label, [hole], reason)
    log.info(_NEXT)
