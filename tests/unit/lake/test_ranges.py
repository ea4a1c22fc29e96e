"""Numbers of hours and days as ranges: neighbours are one, and there are never more than a condition can bear."""

from itertools import accumulate

from spark_jobs.lake.ranges import MOST, _any, around


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
