"""Numbers of hours and days as ranges: neighbours are one, and there are never more than a condition can bear."""

from itertools import accumulate

import pyarrow as pa

from spark_jobs.lake.ranges import DAY, HOUR, MOST, SECOND, any_of, around, beside, counted, numbers


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
    condition = any_of([f"(part {number})" for number in range(100)])
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


def test_a_span_is_beside_a_moment_of_its_own_key_only() -> None:
    """Before 1970, at the ends of what a timestamp holds, and with keys that nobody knows."""
    hour = 3_600_000_000
    moments = pa.table({"key": ["a", "a", "b"], "event_at": pa.array([-hour, 90 * hour, 5 * hour], pa.timestamp("us", "UTC"))})
    most = 9_223_372_036_854_000_000
    spans = [
        ("a", -2 * hour, -2 * hour, True),
        ("a", -2 * hour - 1_000_000, -2 * hour - 1_000_000, False),
        ("a", -9 * hour, 9 * hour, True),
        ("a", -most, -most, False),
        ("a", -most, most, True),
        ("a", most, most, False),
        ("b", -hour, -hour, False),
        ("b", 6 * hour, 99 * hour, True),
        ("b", 6 * hour + 1_000_000, 99 * hour, False),
        ("c", -most, most, False),
        (None, -most, most, False),
    ]
    rows = pa.table(
        {"key": [key for key, *_ in spans]}
        | {name: pa.array([span[place] for span in spans], pa.timestamp("us", "UTC")) for place, name in ((1, "start"), (2, "end"))}
    )
    assert beside(moments, "key", "start", "end", 3_600, SECOND)(rows).to_pylist() == [wanted for *_, wanted in spans]
    assert beside(moments.slice(0, 0), "key", "start", "end", 3_600, SECOND)(rows).to_pylist() == [False] * len(spans)
    anybody = beside(moments, None, "start", "end", 3_600, SECOND)(rows).to_pylist()
    assert [key for (key, *_), wanted in zip(spans, anybody, strict=True) if wanted] == ["a", "a", "a", "b", "b", "b", "c", None]

    days = pa.table({"key": ["a", "a", "b"], "day": pa.array([-2, -3, 1], pa.date32())})
    assert beside(moments, "key", "day", "day", 1, DAY)(days).to_pylist() == [True, False, True]
