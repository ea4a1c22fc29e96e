"""Generations of a bronze query's checkpoint, and the file that says which one is in use (generation.json)."""

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_jobs.bronze import checkpoint_files
from spark_jobs.bronze.offsets import Positions
from spark_jobs.runtime.atomic_files import write_whole

_FILE = "generation.json"


@dataclass(frozen=True)
class Checkpoint:
    """One generation of a checkpoint: Spark's batch 0 is the stream's batch `first_batch`.

    `label` is the `_topic` of its records, `known` the last offsets that bronze had of them before it. The stream's batches are
    counted in the table (`additions.count_written`), whatever others add to it.
    """

    folder: Path
    first_batch: int
    starting_offsets: str
    known: Positions
    topic_id: str
    label: str

    def agrees_with(self, written: int) -> bool:
        """Whether the last batch that the stream wrote is the last that Spark planned here, or the one before, left to repeat."""
        planned, ended = (checkpoint_files.last(self.folder, log) for log in ("offsets", "commits"))
        repeated = () if ended >= planned else (self.first_batch + planned - 1,)
        return ended <= planned and written in (self.first_batch + planned, *repeated)

    def resumes_at(self, written: int) -> Positions:
        """From where the stream will bring records when it goes on; raises OSError or ValueError when that cannot be read."""
        if written < self.first_batch:
            return self.starts
        return checkpoint_files.ends(self.folder, written - self.first_batch)

    @property
    def starts(self) -> Positions:
        """From where its first batch starts."""
        return checkpoint_files.parse_offsets(self.starting_offsets)

    @property
    def was_used(self) -> bool:
        """Whether Spark has planned a batch here."""
        return checkpoint_files.last(self.folder, "offsets") >= 0

    def may_replay(self, number: int) -> bool:
        """Whether Spark's batch `number` may bring records that bronze had before this generation."""
        if not self.known:
            return False
        try:
            reached = checkpoint_files.ends(self.folder, number - 1)
        except (OSError, ValueError):
            return True
        return any(reached.get(partition, 0) <= last for partition, last in self.known.items())

    def planned(self, number: int) -> dict[int, range]:
        """The offsets of Spark's batch `number`, by partition; raises OSError or ValueError where its files do not tell.

        Known before anything is read. There may be fewer records than offsets, and never more.
        """
        before = checkpoint_files.ends(self.folder, number - 1) if number else self.starts
        ends = checkpoint_files.ends(self.folder, number)
        return {int(partition): range(before.get(partition, 0), end) for partition, end in ends.items()}


def read(root: Path, topic: str) -> Checkpoint | None:
    """The generation in use; None where there was none. Raises ValueError, which says why, when its file cannot be read."""
    try:
        facts = json.loads((root / _FILE).read_text())
        known = facts["known"]
        label = facts.get("label", topic)  # a file of an older version has none
        found = Checkpoint(
            root / Path(facts["folder"]).name,
            facts["first_batch"],
            facts["starting_offsets"],
            known.get(label, {}),
            facts["topic_id"],
            label,
        )
        if type(found.first_batch) is not int or not found.folder.name:
            raise ValueError("first_batch or folder is unusable")
        checkpoint_files.parse_offsets(found.starting_offsets)
        return found
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{root / _FILE}: {type(error).__name__}: {error}") from None


def begin(root: Path, topic: str, topic_id: str, label: str, first_batch: int, starts: Positions, known: Positions) -> Checkpoint:
    """A new generation, in use from now on. A crash on the way leaves the one before in use."""
    checkpoint = Checkpoint(root / uuid.uuid4().hex[:12], first_batch, json.dumps({topic: starts}), known, topic_id, label)
    checkpoint.folder.mkdir(parents=True)
    facts: dict[str, Any] = {
        "folder": checkpoint.folder.name,
        "first_batch": first_batch,
        "starting_offsets": checkpoint.starting_offsets,
        "known": {label: known} if known else {},
        "topic_id": topic_id,
        "label": label,
    }
    write_whole(root / _FILE, json.dumps(facts))
    return checkpoint
