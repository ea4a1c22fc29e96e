"""The incarnations of a topic, in control.topics: one that was deleted and created again is another topic, with a label of its own.

The table outlives checkpoints, so a lost checkpoint cannot hide that a topic was replaced. A row records that an incarnation was accepted.
The first one is accepted automatically, when bronze meets the topic.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from spark_jobs import control
from spark_jobs.kafka.offsets import Positions
from spark_jobs.lake.tables import TOPICS
from spark_jobs.lake.txn import Txn
from spark_jobs.runtime.settings import Settings

_FIRST = "first met"


@dataclass(frozen=True)
class Incarnation:
    """One incarnation of a topic: its number (from 1), Kafka's id, and the offset of each partition from which on bronze is to have it."""

    topic: str
    number: int
    topic_id: str
    first_offsets: Positions

    @property
    def label(self) -> str:
        """The `_topic` of its records: the name of the topic, `name#2` after it was created again."""
        return self.topic if self.number == 1 else f"{self.topic}#{self.number}"


def newest(settings: Settings, topic: str) -> Incarnation | None:
    """The last accepted incarnation of a topic; None where bronze has never met it."""
    rows = [row for row in control.read(settings, TOPICS).to_pylist() if row["topic"] == topic]
    if not rows:
        return None
    row = max(rows, key=lambda row: int(row["incarnation"]))
    return Incarnation(topic, row["incarnation"], row["topic_id"], json.loads(row["first_offsets"]))


def record(settings: Settings, incarnation: Incarnation, who: str | None = None, why: str = _FIRST) -> None:
    """Accept an incarnation, once."""
    row = {
        "topic": incarnation.topic,
        "incarnation": incarnation.number,
        "_topic": incarnation.label,
        "topic_id": incarnation.topic_id,
        "first_offsets": json.dumps(incarnation.first_offsets),
        "who": who,
        "why": why,
        "recorded_at": datetime.now(UTC),
    }
    control.append(settings, TOPICS, [row], once=Txn(f"incarnations of {incarnation.topic}", incarnation.number))
