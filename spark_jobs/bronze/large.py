"""Records that do not fit into the heap of Spark's Kafka consumer, and a reader for the batches that hold them.

A few compressed bytes can decode to a very large record. Kafka's Java consumer decodes each record in one piece, and all records of a
poll. So the compressed record batches of a planned batch are checked first. If one poll could decode to more than `MOST_BYTES`, our own
reader takes the batch, one record at a time. A record that is itself larger is refused until an operator gives it up.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from spark_jobs.bronze import gaps
from spark_jobs.bronze.additions import Spool, bronze_row
from spark_jobs.bronze.coverage import Coverage
from spark_jobs.kafka.fetches import Fetches
from spark_jobs.kafka.record_batches import MOST_BYTES, Record, RecordBatch
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings

POLL_BYTES = 2**20  # compressed, of a partition, in one answer to Spark's consumer: Kafka's own default
Planned = Mapping[int, range]  # the offsets of a batch, by partition


@dataclass(frozen=True)
class Sizes:
    """Decoded bytes of a planned batch: what Spark's consumer could have to hold at once, and all of it; None: nobody knows."""

    most_at_once: int = 0
    total: int | None = None

    @property
    def is_large(self) -> bool:
        """Whether Spark's consumer could have to hold more than it may."""
        return self.most_at_once > MOST_BYTES


def measure(settings: Settings, topic: str, planned: Planned) -> Sizes:
    """The sizes of the records at these offsets."""
    with Fetches(settings.broker(), topic) as fetches:
        try:
            found = [_measure(fetches.batches(number, offsets.start), offsets.stop) for number, offsets in planned.items() if offsets]
        except (ValueError, OSError):  # damaged, or older than Kafka 0.11
            return Sizes()
    return Sizes(max((most for most, _ in found), default=0), sum(total for _, total in found))


def read(settings: Settings, table: Table, label: str, planned: Planned, spool: Spool) -> None:
    """Put the records of these offsets that bronze lacks on a spool, one at a time.

    Without those given up in control.holes. Raises LedgerError, with the command that gives it up, at another one that is too large.
    """
    coverage, given_up = Coverage(settings, table, label), gaps.recorded(settings, table, label)
    with Fetches(settings.broker(), table.topic) as fetches:
        for number, offsets in planned.items():
            missing = set(coverage.missing(number, offsets.start, offsets.stop).tolist())
            for record in records(fetches, number, offsets):
                if not record.is_too_large and record.offset in missing:
                    spool.add({**bronze_row(record, label, number), "_batch": None})
                elif record.is_too_large and not gaps.covers(given_up, number, record.offset):
                    raise refusal(table.topic, number, record)


def records(fetches: Fetches, partition: int, offsets: range, *, are_all_there: bool = True) -> Iterator[Record]:
    """The records at these offsets, in order. Raises LedgerError where they cannot be decoded, or Kafka's log does not reach the last.

    Without `are_all_there` it ends where Kafka's log does.
    """
    for batch in fetches.batches(partition, offsets.start, offsets.stop if are_all_there else None):
        if batch.first_offset >= offsets.stop:
            return
        try:
            yield from (record for record in batch.records() if record.offset in offsets)
        except (ValueError, OSError) as error:
            raise LedgerError(
                f"offsets {batch.first_offset} to {batch.last_offset} of partition {partition} cannot be decoded: {error}"
            ) from None


def refusal(topic: str, partition: int, record: Record) -> LedgerError:
    """The refusal of a record, with the command that gives it up."""
    command = f".venv/bin/python -m spark_jobs.run accept --topic {topic} --partition {partition} --offset {record.offset}"
    return LedgerError(
        f"topic {topic}: found a record of {record.size} bytes at offset {record.offset} of partition {partition}, "
        f"expected at most {MOST_BYTES}; to do without it and resume: {command} --who NAME --why TEXT"
    )


def _measure(batches: Iterable[RecordBatch], end: int) -> tuple[int, int]:
    """Decoded bytes of the record batches that may come in one answer, the most of them, and of all. More than MOST_BYTES ends the count.

    Looks as far past `end` as an answer may reach.
    """
    answer: deque[tuple[int, int]] = deque()  # compressed and decoded sizes of the last batches that may come together
    compressed = decoded = passed = most = total = 0
    for batch in batches:
        if batch.first_offset >= end:
            if passed > POLL_BYTES:
                break
            passed += len(batch.payload)
        answer.append((len(batch.payload), batch.decoded_size(MOST_BYTES)))
        total += answer[-1][1]
        compressed, decoded = compressed + answer[-1][0], decoded + answer[-1][1]
        while len(answer) > 1 and compressed > POLL_BYTES:
            before = answer.popleft()
            compressed, decoded = compressed - before[0], decoded - before[1]
        most = max(most, decoded)
        if most > MOST_BYTES:
            break
    return most, total
