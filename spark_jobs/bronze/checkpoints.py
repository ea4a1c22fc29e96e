"""The checkpoints of bronze's queries: where each generation starts, and how far its batches reach in Kafka."""

import json
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.kafka.offsets import Positions
from spark_jobs.service import checkpoints
from spark_jobs.service.checkpoints import Generation


@dataclass(frozen=True)
class Checkpoint(Generation):
    """One generation of a checkpoint: Spark's batch 0 is the stream's batch `first_batch`.

    `label` is the `_topic` of its records, `known` the last offsets that bronze had of them before it. The stream's batches are
    counted in the table (`additions.count_written`), whatever others add to it.
    """

    first_batch: int
    starting_offsets: str
    known: Positions
    topic_id: str
    label: str

    def agrees_with(self, written: int) -> bool:
        """Whether the last batch that the stream wrote is the last that Spark planned here, or the one before, left to repeat."""
        planned, ended = self.planned, self.ended
        repeated = () if ended >= planned else (self.first_batch + planned - 1,)
        return ended <= planned and written in (self.first_batch + planned, *repeated)

    def resumes_at(self, written: int) -> Positions:
        """From where the stream will bring records when it continues; raises OSError or ValueError when that cannot be read."""
        return self.starts if written < self.first_batch else self._ends(written - self.first_batch)

    @property
    def starts(self) -> Positions:
        """From where its first batch starts."""
        return _parse_offsets(self.starting_offsets)

    def may_replay(self, number: int) -> bool:
        """Whether Spark's batch `number` may bring records that bronze had before this generation."""
        if not self.known:
            return False
        try:
            reached = self._ends(number - 1)
        except (OSError, ValueError):
            return True
        return any(reached.get(partition, 0) <= last for partition, last in self.known.items())

    def offsets(self, number: int) -> dict[int, range]:
        """The offsets of Spark's batch `number`, by partition; raises OSError or ValueError where its files do not say.

        Known before anything is read. There may be fewer records than offsets, and never more.
        """
        before, ends = self._ends(number - 1) if number else self.starts, self._ends(number)
        return {int(partition): range(before.get(partition, 0), end) for partition, end in ends.items()}

    def _ends(self, number: int) -> Positions:
        """How far a batch reaches; raises OSError or ValueError when that cannot be read."""
        return _parse_offsets(self.plan(number)[-1])


def read(root: Path, topic: str) -> Checkpoint | None:
    """The generation in use; None where there was none. Raises ValueError, which says why, when its file cannot be read."""
    try:
        if (facts := checkpoints.read_facts(root)) is None:
            return None
        label = facts.get("label", topic)  # a file of an older version has none
        name, known = Path(facts["folder"]).name, facts["known"].get(label, {})
        found = Checkpoint(root, name, facts["first_batch"], facts["starting_offsets"], known, facts["topic_id"], label)
        if type(found.first_batch) is not int or not name:
            raise ValueError("first_batch or folder is unusable")
        _parse_offsets(found.starting_offsets)
        return found
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{root / checkpoints.FILE}: {type(error).__name__}: {error}") from None


def begin(root: Path, topic: str, topic_id: str, label: str, first_batch: int, starts: Positions, known: Positions) -> Checkpoint:
    """A new generation, in use from now on."""
    starting = json.dumps({topic: starts})
    checkpoint = Checkpoint(root, str(checkpoints.next_number(root)), first_batch, starting, known, topic_id, label)
    checkpoint.use(
        {
            "folder": checkpoint.name,
            "first_batch": first_batch,
            "starting_offsets": starting,
            "known": {label: known} if known else {},
            "topic_id": topic_id,
            "label": label,
        }
    )
    return checkpoint


def _parse_offsets(text: str) -> Positions:
    """The offsets of a query that reads one topic, in Spark's words: `{"topic": {"0": 7}}`; raises ValueError for anything else."""
    offsets = json.loads(text)
    if not isinstance(offsets, dict) or len(offsets) != 1 or not isinstance(positions := next(iter(offsets.values())), dict):
        raise ValueError("it has no offsets of one topic")
    if not all(type(offset) is int for offset in positions.values()):
        raise ValueError("it has offsets that are no numbers")
    return positions
