"""Dates and times that Arrow has and Python does not."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.explain.cells import literal
from spark_jobs.explain.snapshot import Session
from spark_jobs.runtime.text import shown
from spark_jobs.runtime.values import Beyond, to_list, to_rows

DAY = 86_400_000_000
TIME = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (-719_529, "-0001-12-31"),
        (-719_528, "0000-01-01"),
        (-719_163, "0000-12-31"),
        (2_932_897, "+10000-01-01"),
        (100_000_000, "+275760-09-13"),
        (-2_545_740, "-5000-01-01"),
    ],
)
def test_a_date_beyond_pythons_years_has_its_text(days: int, text: str) -> None:
    (found,) = to_list(pa.array([days], pa.date32()))
    assert (found, str(found)) == (Beyond(days * DAY, is_date=True), text)


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (253_402_300_800_000_000, "+10000-01-01 00:00:00"),
        (-62_135_596_800_000_001, "0000-12-31 23:59:59.999999"),
        (2**63 - 1, "+294247-01-10 04:00:54.775807"),
        (-(2**63), "-290308-12-21 19:59:05.224192"),
    ],
)
def test_a_time_beyond_pythons_years_has_its_text(micros: int, text: str) -> None:
    (found,) = to_list(pa.array([micros], TIME))
    assert (found, str(found)) == (Beyond(micros), text)


def test_all_that_python_has_stays_as_it_is() -> None:
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    assert to_list(pa.array([first, None, last, 253_402_300_800_000_000], TIME)) == [first, None, last, Beyond(253_402_300_800_000_000)]
    assert to_list(pa.array([-719_162, None, -719_163], pa.date32())) == [date(1, 1, 1), None, Beyond(-719_163 * DAY, is_date=True)]
    largest = Decimal("9" * 36 + ".99")
    both = [largest, largest.copy_negate()]
    assert to_list(pa.array(both, pa.decimal128(38, 2))) == both


@pytest.mark.parametrize(("unit", "number"), [("s", 253_402_300_800), ("ms", 253_402_300_800_000), ("us", 253_402_300_800_000_000)])
def test_times_of_any_unit_and_zone(unit: Any, number: int) -> None:
    for kind in (pa.timestamp(unit), pa.timestamp(unit, "UTC")):
        assert to_list(pa.array([number], kind)) == [Beyond(253_402_300_800_000_000)]


def test_rows_with_such_values_within_lists_and_structs() -> None:
    rows = [{"n": 1, "days": [0, -719_528, None], "of": {"at": 253_402_300_800_000_000, "x": None}}, {"n": None, "days": None, "of": None}]
    kinds = pa.schema([("n", pa.int64()), ("days", pa.list_(pa.date32())), ("of", pa.struct([("at", TIME), ("x", pa.string())]))])
    day, at = Beyond(-719_528 * DAY, is_date=True), Beyond(253_402_300_800_000_000)
    expected = [{"n": 1, "days": [date(1970, 1, 1), day, None], "of": {"at": at, "x": None}}, {"n": None, "days": None, "of": None}]
    assert to_rows(pa.Table.from_pylist(rows, kinds)) == expected
    assert to_rows(pa.table({"n": pa.chunked_array([], pa.int64())})) == []


@pytest.mark.parametrize("beyond", [Beyond(-719_528 * DAY, is_date=True), Beyond(253_402_300_800_000_000), Beyond(-(2**63))])
def test_such_a_value_of_a_cell_can_be_asked_for_and_shown(beyond: Beyond) -> None:
    (row,) = Session().query(f"select {literal(beyond)} as found")
    assert row == {"found": beyond}
    assert shown(beyond) == str(beyond)
