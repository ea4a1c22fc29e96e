"""The source of the example: as many rows as the rate allows, evenly spaced, and a batch that is read again is the same."""

import itertools
import time
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_jobs.live.rate_source import RateReader, Span

SECOND = 1_000_000


class Clock:
    """What the source takes for the time; it stands still between calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_700_000_000 * SECOND
        monkeypatch.setattr(time, "time_ns", lambda: self.now * 1000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def rate(tmp_path: Path) -> Path:
    file = tmp_path / "rate"
    file.write_text("10\n")
    return file


def batch(reader: RateReader, start: dict[str, int]) -> tuple[dict[str, int], list[Span]]:
    end = reader.latestOffset(start, ReadAllAvailable())
    spans = reader.partitions(start, end)
    assert all(isinstance(span, Span) for span in spans)
    return end, [span for span in spans if isinstance(span, Span)]


def test_rows_come_at_the_rate_which_may_change_between_batches(clock: Clock, rate: Path) -> None:
    reader = RateReader(rate)
    start = reader.initialOffset()
    clock.now += SECOND
    end, (first,) = batch(reader, start)
    rate.write_text("1000\n")
    clock.now += 2 * SECOND
    _, (second,) = batch(RateReader(rate), end)  # Spark may make another reader at any time
    assert [(span.first, span.count) for span in (first, second)] == [(0, 10), (10, 2000)]
    values = [row for span in (first, second) for row in span.rows()["value"].to_pylist()]
    times = [int(at.timestamp() * SECOND) for span in (first, second) for at in span.rows()["event_at"].to_pylist()]
    assert values == list(range(2010))
    assert times[0] == start["end"] + SECOND // 10
    assert {after - before for before, after in itertools.pairwise(times[10:])} == {1000}  # one a millisecond
    assert times[-1] == clock.now


def test_no_row_is_lost_or_made_twice_by_parts_of_a_row(clock: Clock, rate: Path) -> None:
    """A batch every 130 ms at 10 a second: after 13 s there are 130 rows, although no batch has a whole number of them."""
    reader, offset = RateReader(rate), RateReader(rate).initialOffset()
    for _ in range(100):
        clock.now += 130_000
        offset, _ = batch(reader, offset)
    assert offset["rows"] == 130


def test_without_time_or_with_a_clock_set_back_there_is_no_batch(clock: Clock, rate: Path) -> None:
    reader, start = RateReader(rate), RateReader(rate).initialOffset()
    assert batch(reader, start) == (start, [])
    clock.now -= 3600 * SECOND
    assert batch(reader, start) == (start, [])


def test_a_pause_of_an_hour_is_not_made_up_for(clock: Clock, rate: Path) -> None:
    reader, start = RateReader(rate), RateReader(rate).initialOffset()
    clock.now += 3600 * SECOND
    end, (span,) = batch(reader, start)
    assert (span.count, span.end - span.begin, end["end"]) == (600, 60 * SECOND, clock.now)
