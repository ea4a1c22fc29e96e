"""What a backfill's closed gate is about: the records of the step that it has judged, and which of them are in quarantine."""

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from expectations.wire_format import decode
from include.quality_page import quarantine
from include.quality_page.masking import LARGEST
from include.quality_page.reading import Row, Warehouse, schemas_of
from include.quality_page.words import counted, moment, share
from spark_jobs.control.backfills import part_of
from spark_jobs.control.verdicts import Verdict
from spark_jobs.lake.tables import BACKFILLS
from spark_jobs.lake.topic import Topic
from spark_jobs.lake.topics import TOPICS

MOST_STEPS = 1000
MOST_READ = 20_000  # rows of quarantine in which the range's are looked for, the newest first
_ANY = "select run_id from t where run_id = $run_id limit 1"
_STEP = "select * from t where run_id = $run_id and state = 'done' order by number desc limit 1"
_DONE = "select * from t where state = 'done' order by number desc limit $count"
_VALUES = """select _topic, _partition, _offset, _batch, broken_rules, value from t
    where length(encode(value, 'hex')) / 2 <= $largest order by _batch desc, _topic, _partition, _offset limit $count"""


@dataclass(frozen=True)
class Rebuilt:
    """The step of a backfill that was judged last, of one topic: how many records, and those of them that are in quarantine."""

    start: datetime
    end: datetime
    is_whole: bool
    judged: int
    rows: tuple[Row, ...]

    @property
    def says(self) -> str:
        """In numbers, what is in quarantine."""
        of = "the whole history" if self.is_whole else f"{moment(self.start)} to {moment(self.end)} UTC"
        count = len(self.rows)
        return f"{count:,} of the {counted(self.judged, 'record')} of {of} are in quarantine ({share(count, self.judged)})"

    @property
    def rules(self) -> list[tuple[str, int]]:
        """How many of them break each rule, most often broken first."""
        found = Counter(rule for row in self.rows for rule in row["broken_rules"] or ())
        return sorted(found.items(), key=lambda item: (-item[1], item[0]))

    @property
    def places(self) -> set[str]:
        """Their coordinates, as rows of quarantine have them."""
        return {f"{row['_topic']} {row['_partition']}:{row['_offset']}" for row in self.rows}


def is_of_backfill(warehouse: Warehouse, verdict: Verdict) -> bool:
    """Whether the run that has judged it is one of a backfill."""
    return bool(warehouse.select(BACKFILLS, _ANY, run_id=verdict.run_id))


def steps_since(warehouse: Warehouse, moment: datetime | None) -> list[Row]:
    """The steps that backfills have done since a moment, of the newest MOST_STEPS; all of them where it is None."""
    steps = warehouse.select(BACKFILLS, _DONE, count=MOST_STEPS)
    return [step for step in steps if moment is None or step["recorded_at"] > moment]


def read(warehouse: Warehouse, verdict: Verdict) -> Rebuilt | None:
    """The step that a backfill's verdict is about; None where it rebuilt another topic, or is not on record."""
    topic = next((topic for topic in TOPICS if topic.name == verdict.topic), None)
    steps = warehouse.select(BACKFILLS, _STEP, run_id=verdict.run_id)
    if topic is None or not steps or steps[0]["part"] != part_of(topic):
        return None
    step = steps[0]
    rows = warehouse.select(quarantine.TABLES[topic.quarantine.name], _VALUES, largest=LARGEST, count=MOST_READ)
    schemas = schemas_of(warehouse, topic.name)
    found = [
        row for row in rows if topic.has_versions or _is_within(topic, decode(row["value"], schemas), step["step_start"], step["step_end"])
    ]
    return Rebuilt(step["step_start"], step["step_end"], topic.has_versions, int(step["rows"] or 0), tuple(found))


def _is_within(topic: Topic, value: bytes | None, start: datetime, end: datetime) -> bool:
    """Whether a record's event time lies in a range; one whose time cannot be read lies in none."""
    try:
        milliseconds = json.loads(value or b"")[topic.kind.time]
        return bool(start.timestamp() <= milliseconds / 1000 < end.timestamp())
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError):
        return False
