"""What the answers of a broker mean: an empty one is no end, and one that is held back comes again."""

import struct
from collections import deque
from typing import Any

import pytest

from spark_jobs.kafka import fetches
from spark_jobs.kafka.fetches import Fetches, _Answer
from spark_jobs.kafka.record_batches import split
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.kafka_config import Broker
from tests.unit.bronze.test_record_batches import batch, values

OPEN = 0  # isolation: records of open transactions, too


def answer(end: int, *firsts: int) -> _Answer:
    return _Answer([found for first in firsts for found in split(memoryview(batch("none", *values(1, 1), first=first)))], deque(), end)


class Told(Fetches):
    """A reader without a broker: it gets these answers, the last one again and again. `asked`: for which offset, by which isolation."""

    def __init__(self, *answers: _Answer) -> None:
        self._topic, self._broker = "accounts", Broker("here")
        self._left, self.asked = list(answers), list[tuple[int, int]]()

    def _fetch(self, partition: int, offset: int, *, isolation: int = 1, wait_ms: int = 0) -> _Answer:
        self.asked.append((offset, isolation))
        return self._left.pop(0) if len(self._left) > 1 else self._left[0]


class Connected(Fetches):
    """A reader that asks nobody where the leader is."""

    def __init__(self) -> None:
        self._topic = "accounts"

    def _connect(self, partition: int) -> Any:
        return None


def reader(*answers: _Answer) -> tuple[Fetches, list[tuple[int, int]]]:
    """A reader that gets these answers, and what it asked for."""
    found = Told(*answers)
    return found, found.asked


def offsets(found: Fetches, first: int, end: int | None) -> list[int]:
    return [each.first_offset for each in found.batches(0, first, end)]


def test_answers_are_read_up_to_the_end() -> None:
    found, asked = reader(answer(9, 0, 2), answer(9, 4, 6))
    assert offsets(found, 0, 6) == [0, 2, 4]
    assert asked == [(0, 1), (4, 1)]


def test_records_that_come_late_are_asked_for_again() -> None:
    found, asked = reader(answer(4, 0), answer(4), answer(4), answer(4, 2), answer(4, 2))
    assert offsets(found, 0, 4) == [0, 2]
    assert asked == [(0, 1), (2, 1), (2, OPEN), (2, OPEN), (2, 1)]


def test_an_end_without_records_is_one_where_others_lie_behind_it() -> None:
    found, _ = reader(answer(4, 0), answer(4), answer(9, 6))
    assert offsets(found, 0, 4) == [0]


@pytest.mark.parametrize("end", [4, None])
def test_records_that_never_come_are_an_error(end: int | None) -> None:
    found, asked = reader(answer(4, 0), answer(4))
    with pytest.raises(LedgerError, match="partition 0 gives no record from offset 2 on, expected some, because its log reaches 4"):
        offsets(found, 0, end)
    assert len(asked) == 2 + fetches._TRIES


def test_a_log_that_is_too_short_is_an_error_and_without_an_end_it_is_none() -> None:
    with pytest.raises(LedgerError, match="partition 0 ends at 2, expected it to reach 4"):
        offsets(reader(answer(2, 0), answer(2))[0], 0, 4)
    assert offsets(reader(answer(2, 0), answer(2))[0], 0, None) == [0]


def test_a_broker_with_a_quota_is_left_alone_for_as_long_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such an answer has no topic."""
    held_back = memoryview(struct.pack(">iihii", 0, 2_000, 0, 0, 0))
    partition = fetches._PARTITION.pack(0, 0, 7, 7, 0) + struct.pack(">iii", -1, -1, 0)
    whole = memoryview(struct.pack(">iihiih", 0, 0, 0, 0, 1, 8) + b"accounts" + struct.pack(">i", 1) + partition)
    told, slept = [held_back, held_back, whole], list[float]()
    monkeypatch.setattr(fetches, "_ask", lambda *_: told.pop(0))
    monkeypatch.setattr("time.sleep", slept.append)
    assert Connected()._fetch(0, 3).end == 7
    assert slept == [2.0, 2.0]
