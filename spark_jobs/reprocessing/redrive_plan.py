"""What a re-drive is asked to do, checked before anything is written. Starts no JVM."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.control import corrections, rule_sets
from spark_jobs.control.corrections import Correction
from spark_jobs.lake.topic import Topic
from spark_jobs.lake.topics import TOPICS
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import Settings


@dataclass(frozen=True)
class Selection:
    """Which of the rows that break a rule: of bronze batches from first to last (None: no end), of a source (`_topic`; empty: any)."""

    first_batch: int = 0
    last_batch: int | None = None
    source: str = ""


ALL = Selection()


@dataclass(frozen=True)
class Plan:
    """Which quarantined rows are judged again: those of the selection that break the rule, and those that are corrected."""

    rule: str
    topics: list[Topic]
    corrections: list[Correction]
    chosen: Selection = ALL


def plan(
    settings: Settings,
    rule: str,
    table: str | None,
    file: Path | None,
    given: Sequence[Correction],
    chosen: Selection = ALL,
) -> Plan:
    """What is asked for, checked whole: raises SettingsError for a rule that no table knows, no range of batches, unusable corrections.

    `given` are the corrections of `file`.
    """
    asked = [topic for topic in TOPICS if table in (None, topic.silver.name, topic.quarantine.name)]
    known = {topic.name: rule_sets.rule_names(settings, topic.name) for topic in asked}
    topics = [topic for topic in asked if rule in known[topic.name]]
    if not topics:
        names = "; ".join(f"of {topic.silver.name} {', '.join(known[topic.name])}" for topic in asked)
        raise SettingsError(f"found rule {rule!r}, expected one of these: {names}")
    if chosen.last_batch is not None and chosen.last_batch < chosen.first_batch:
        raise SettingsError(f"found batches {chosen.first_batch} to {chosen.last_batch}, expected a first one that is not after the last")
    if file:
        corrections.refuse_unusable(settings, file, given, [(topic.bronze, topic.silver, topic.quarantine) for topic in topics])
    return Plan(rule, topics, list(given), chosen)
