"""Which rows came late: watermarks of whole bronze batches, and lateness to the millisecond."""

from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from pyspark.sql import SparkSession

from spark_jobs.silver.events import batch_watermarks, late_rows
from tests.support.frames import assert_same, at, frame

pytestmark = pytest.mark.spark

Newest = list[tuple[int, datetime | None]]

ROWS = "transaction_id string, event_at timestamp, _batch bigint"
LATE = "_batch bigint, transaction_id string, event_at timestamp, watermark_at timestamp, late_by_seconds decimal(18,3)"


def hour(number: int) -> datetime:
    return at("2013-01-01") + timedelta(hours=number)


@pytest.mark.parametrize(
    ("newest", "before", "watermarks"),
    [
        pytest.param([(1, hour(5))], None, [], id="none before the first batch"),
        pytest.param([(1, hour(5)), (2, hour(6))], None, [(2, hour(5))], id="a batch does not count for itself"),
        pytest.param([(1, hour(5)), (2, hour(3)), (3, hour(4))], None, [(2, hour(5)), (3, hour(5))], id="it never falls"),
        pytest.param(
            [(1, None), (2, hour(3)), (3, None), (4, hour(1))], None, [(3, hour(3)), (4, hour(3))], id="batches with no valid row"
        ),
        pytest.param([(9, hour(7)), (8, hour(1))], hour(2), [(8, hour(2)), (9, hour(2))], id="by number, after what was before"),
        pytest.param(
            [(3, hour(1)), (7, hour(9)), (8, None)], hour(4), [(3, hour(4)), (7, hour(4)), (8, hour(9))], id="numbers may be missing"
        ),
        pytest.param([], hour(4), [], id="nothing came"),
    ],
)
def test_a_batch_has_the_watermark_of_all_before_it(
    newest: Newest, before: datetime | None, watermarks: list[tuple[int, datetime]]
) -> None:
    assert batch_watermarks(newest, before, 0) == watermarks
    earlier = [(batch, mark - timedelta(seconds=10)) for batch, mark in watermarks]
    assert batch_watermarks(newest, before, 10) == earlier


def test_watermarks_do_not_depend_on_the_cut() -> None:
    newest: Newest = [(1, None), (2, hour(5)), (3, hour(2)), (4, hour(9)), (5, None), (6, hour(1))]
    wanted = [(3, hour(5)), (4, hour(5)), (5, hour(9)), (6, hour(9))]
    for cuts in ([0, 6], [0, 1, 6], [0, 3, 6], [0, 1, 2, 3, 4, 5, 6], [0, 2, 5, 6]):
        before, found = None, []
        for start, end in pairwise(cuts):
            found += batch_watermarks(newest[start:end], before, 0)
            before = max((time for time in (before, *(time for _, time in newest[start:end])) if time), default=None)
        assert found == wanted


def test_late_is_what_comes_after_its_watermark(spark: SparkSession) -> None:
    rows = frame(
        spark,
        ROWS,
        [
            ("no watermark", "2000-01-01", 1),
            ("at the watermark", "2013-01-01 05:00:00", 2),
            ("one ms before it", "2013-01-01 04:59:59.999", 2),
            ("after it", "2013-01-01 05:00:00.001", 2),
            ("13 years before it", "2000-01-01 00:00:00.001", 2),
            ("another batch, not late", "2013-01-01 04:00:00", 3),
            ("another batch, late", "2013-01-01 03:59:58.766", 3),
        ],
    )
    found = late_rows(rows, [(2, hour(5)), (3, hour(4))], spark)
    expected = [
        (2, "one ms before it", "2013-01-01 04:59:59.999", "2013-01-01 05:00:00", "0.001"),
        (2, "13 years before it", "2000-01-01 00:00:00.001", "2013-01-01 05:00:00", "410331599.999"),
        (3, "another batch, late", "2013-01-01 03:59:58.766", "2013-01-01 04:00:00", "1.234"),
    ]
    assert_same(found, frame(spark, LATE, expected))


def test_without_watermarks_nothing_is_late(spark: SparkSession) -> None:
    assert_same(late_rows(frame(spark, ROWS, [("T1", "2013-01-01", 1)]), [], spark), frame(spark, LATE, []))
