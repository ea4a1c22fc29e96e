"""Where a bronze query stands: its checkpoint, and what is fixed for as long as that checkpoint lives."""

import json
import logging
import os
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spark_jobs import control, sinks
from spark_jobs.bronze.offsets import Offsets, find_start, find_topic_id, known_offsets
from spark_jobs.errors import LedgerError
from spark_jobs.settings import Settings
from spark_jobs.tables import HOLES, Table

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """One generation of a checkpoint: Spark's batch 0 is bronze's batch `first_batch`; `known` is what bronze had before it."""

    folder: Path
    first_batch: int
    starting_offsets: str
    known: Offsets
    topic_id: str

    def agrees_with(self, applied: int) -> bool:
        """Whether the table's last batch is the last that Spark planned here, or the one before, which a crash leaves to repeat."""
        planned = max((int(file.name) for file in (self.folder / "offsets").glob("[0-9]*")), default=-1)
        return applied in (self.first_batch + planned, self.first_batch + planned - 1)

    def may_replay(self, number: int) -> bool:
        """Whether Spark's batch `number` may bring records that bronze had before this generation."""
        if not self.known:
            return False
        previous = self.folder / "offsets" / str(number - 1)
        if not previous.exists():
            return True
        reached = json.loads(previous.read_text().splitlines()[-1])
        return any(
            reached.get(topic, {}).get(partition, 0) <= last for topic, ends in self.known.items() for partition, last in ends.items()
        )


def open_checkpoint(settings: Settings, table: Table, topic: str, starting_offsets: str | None) -> Checkpoint:
    """The checkpoint to go on from, or a new generation where there is none or a starting point is asked for.

    A new generation counts its batches on from the table's, and remembers what the table has, so that nothing comes twice.
    """
    root = settings.checkpoints / "bronze" / topic
    topic_id = find_topic_id(settings, topic)
    current = root / "generation.json"
    if starting_offsets is None and current.exists():
        checkpoint = _read(current)
        _refuse_other_topic(checkpoint, topic, topic_id)
        if checkpoint.agrees_with(sinks.applied(settings, table, "bronze") or 0):
            return checkpoint
        log.warning(
            "%s and its checkpoint %s do not belong together any more (one of them was removed or restored): a new checkpoint is made, "
            "and records that bronze has are left out",
            table.name,
            checkpoint.folder,
        )
    known = known_offsets(settings, table)
    starts, holes = find_start(settings, topic, starting_offsets or "earliest", known)
    _record_holes(settings, table, holes, f"started at {starting_offsets}")
    checkpoint = Checkpoint(
        folder=root / uuid.uuid4().hex[:12],
        first_batch=(sinks.applied(settings, table, "bronze") or 0) + 1,
        starting_offsets=json.dumps({topic: starts}),
        known=known,
        topic_id=topic_id,
    )
    checkpoint.folder.mkdir(parents=True)
    temporary = current.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(checkpoint) | {"folder": checkpoint.folder.name}))
    os.replace(temporary, current)
    return checkpoint


def _refuse_other_topic(checkpoint: Checkpoint, topic: str, topic_id: str) -> None:
    if checkpoint.topic_id != topic_id:
        raise LedgerError(
            f"topic {topic}: found Kafka's topic id {topic_id}, expected {checkpoint.topic_id}: it was deleted and made anew, or this is "
            "another broker, and its offsets mean other records: use another LEDGER_WAREHOUSE and LEDGER_CHECKPOINTS for it"
        )


def _record_holes(settings: Settings, table: Table, holes: list[dict[str, Any]], why: str) -> None:
    """Record what bronze will not get, once."""
    names = ("_topic", "_partition", "first_offset", "last_offset")
    present = {tuple(row[name] for name in names) for row in control.read(settings, HOLES).to_pylist()}
    new = [hole for hole in holes if tuple(hole[name] for name in names) not in present]
    for hole in new:
        log.warning(
            "%s: offsets %d to %d of partition %d are left out", table.name, hole["first_offset"], hole["last_offset"], hole["_partition"]
        )
    if new:
        now = datetime.now(UTC)
        control.append(settings, HOLES, [hole | {"table": table.name, "why": why, "recorded_at": now} for hole in new])


def _read(file: Path) -> Checkpoint:
    try:
        facts = json.loads(file.read_text())
        return Checkpoint(**(facts | {"folder": file.parent / facts["folder"]}))
    except (ValueError, TypeError, KeyError) as error:
        raise LedgerError(
            f"{file} cannot be read ({error}): remove the folder {file.parent} to start a new checkpoint; nothing will come twice"
        ) from None
