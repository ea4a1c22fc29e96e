"""How fast a stream goes: limits and states from numbers, on a timeline."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from spark_jobs.bronze import pace
from spark_jobs.bronze.pace import CEILING, FALLING_BEHIND, FLOOR, KEEPING_UP, OVERLOADED, Pace, next_limit
from spark_jobs.bronze.stream import Stream
from spark_jobs.lake import tables
from spark_jobs.runtime.settings import read_settings
from spark_jobs.silver import batches


@pytest.mark.parametrize(
    ("limit", "records", "seconds", "expected"),
    [
        (100_000, 100_000, 10.0, 100_000),  # as it should be
        (100_000, 100_000, 8.0, 100_000),  # off by less than half: no restart for that
        (100_000, 100_000, 2.0, CEILING),
        (100_000, 100_000, 5.0, 200_000),
        (500_000, 500_000, 50.0, 100_000),
        (100_000, 100_000, 900.0, FLOOR),
        (100_000, 500, 60.0, 100_000),  # a small batch tells nothing of what a full one takes
        (100_000, 100_000, 0.0, 100_000),
        (FLOOR, FLOOR, 60.0, FLOOR),
        (CEILING, CEILING, 1.0, CEILING),
    ],
)
def test_the_limit_holds_the_time_of_a_full_batch(limit: int, records: int, seconds: float, expected: int) -> None:
    assert next_limit(limit, records, seconds) == expected


def timeline(arrive: int, go: int, seconds: int) -> tuple[Pace, dict[int, int]]:
    """So many records a second come and go, from second 0 on, with a batch every ten seconds."""
    found, reached = Pace(), {0: 0, 1: 0}
    for now in range(seconds + 1):
        found.saw(now, {0: now * arrive, 1: 0})
        if now and now % 10 == 0:
            reached[0] = min(now * arrive, reached[0] + go * 10)
            found.took(now, go * 10, 10.0)
    return found, reached


@pytest.mark.parametrize(("arrive", "go", "state"), [(100, 100, KEEPING_UP), (200, 100, OVERLOADED)])
def test_the_state_of_a_steady_stream(arrive: int, go: int, state: str) -> None:
    found, reached = timeline(arrive, go, 120)
    assert found.state(120, reached) == state
    assert found.arrival_rate(120) == pytest.approx(arrive)
    assert found.processing_rate(120) == pytest.approx(go)


def test_a_backlog_that_is_worked_off_is_no_overload() -> None:
    found, reached = timeline(200, 100, 120)
    for now in range(121, 181):
        found.saw(now, {0: 120 * 200, 1: 0})
    assert found.state(180, reached) == FALLING_BEHIND


def test_the_lag_counts_all_partitions_and_the_oldest_record() -> None:
    found = Pace()
    assert found.lag(0, {}) == (0, 0.0)
    found.saw(0, {0: 5, 1: 5})
    found.saw(10, {0: 7, 1: 5})
    found.saw(20, {0: 9, 1: 6})
    assert found.lag(25, {0: 5, 1: 5}) == (5, 15)
    assert found.lag(25, {0: 7, 1: 5}) == (3, 5)
    assert found.lag(25, {0: 9, 1: 6}) == (0, 0.0)
    assert found.lag(25, {0: 9}) == (6, 25)  # a partition that bronze has not met yet


def test_hours_of_lag_are_remembered_in_bounded_memory() -> None:
    found = Pace()
    for now in range(50_000):
        found.saw(now, {0: now + 1})
    assert len(found.arrived) <= pace._MOST_SAMPLES
    assert found.lag(50_000, {0: 0}) == (50_000, 50_000)


def test_a_query_that_ends_when_all_is_read_brings_as_many_a_batch_as_silver_takes_at_a_time(tmp_path: Path) -> None:
    settings, table = read_settings({"LEDGER_HOME": str(tmp_path)}), tables.BRONZE_TRANSACTIONS
    streams = [Stream(Mock(), settings, table, available_now=ends, starting_offsets=None) for ends in (True, False)]
    assert [stream.limit for stream in streams] == [batches._ROWS_A_PART, pace.FIRST]
