"""Numbers of hours and days as ranges: neighbours are one, and there are never more than a condition can bear."""

from itertools import accumulate

import pyarrow as pa

from spark_jobs.lake.ranges import DAY, HOUR, MOST, _any, around, counted, numbers


def test_what_is_close_together_is_one_range() -> None:
    assert around([7, 1, 2, 7, 4], 0) == [(1, 2), (4, 4), (7, 7)]
    assert around([8, 1, 2, 4], 1) == [(0, 5), (7, 9)]
    assert around([7, 1, 2, 4], 3) == [(-2, 10)]
    assert around([], 3) == []


def test_of_many_the_nearest_are_joined() -> None:
    numbers = [start + more for start in range(0, 120_000, 1_000) for more in (0, 10)]
    found = around(numbers, 2)
    assert len(found) == MOST
    assert all(any(first <= number - 2 and number + 2 <= last for first, last in found) for number in numbers)
    assert sum(last - first for first, last in found) <= (MOST - 1) * 14 + (121 - MOST) * 1_000


def test_a_hundred_ranges_are_a_shallow_tree() -> None:
    condition = _any([f"(part {number})" for number in range(100)])
    depths = list(accumulate({"(": 1, ")": -1}.get(char, 0) for char in condition))
    assert [condition.count(f"(part {number})") for number in range(100)] == [1] * 100
    assert max(depths) <= 9


def test_times_are_counted_exactly_before_1970_and_in_the_last_year_of_all() -> None:
    hour = 3_600_000_000
    micros = [-hour - 1, -hour, -1, 0, hour - 1, hour, 9_214_646_399_999_000, None]
    times = pa.chunked_array([pa.array(micros, pa.timestamp("us", "UTC"))])
    assert counted(times, HOUR).to_pylist() == [-2, -1, -1, 0, 0, 1, 2_559_623, None]
    assert numbers(times.drop_null(), HOUR) == [-2, -1, 0, 1, 2_559_623]
    days = pa.chunked_array([pa.array([-1, 0, 106_751], pa.date32())])
    assert counted(days, DAY).to_pylist() == [-1, 0, 106_751]
