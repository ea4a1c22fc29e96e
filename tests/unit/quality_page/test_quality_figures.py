"""Figures of the page Quality: ages, shares and sizes as people read them, and bars that are right after one run and after many."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from include.quality_page import charts
from include.quality_page.measures import Measures, Run
from include.quality_page.runs import PARTS, Conservation
from include.quality_page.words import NOTHING, age, counted, grouped, moment, number, share, size

AT = datetime(2026, 3, 1, 1, 35, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (-5, "0 seconds"),
        (0, "0 seconds"),
        (1, "1 second"),
        (1.25, "1.25 seconds"),
        (119, "119 seconds"),
        (120, "2 minutes"),
        (7199, "119 minutes"),
        (7200, "2 hours"),
        (47 * 3600, "47 hours"),
        (48 * 3600, "2 days"),
        (4000 * 86400, "10 years"),
        (4400 * 86400, "12 years"),
    ],
)
def test_an_age_is_in_the_largest_unit_of_which_there_are_two(seconds: float, says: str) -> None:
    assert age(seconds) == says
    assert age(timedelta(seconds=seconds)) == says


def test_numbers_have_separators_and_what_is_not_known_is_a_dash() -> None:
    assert [number(value) for value in (0, 1234567, 1234.56, -1000, None)] == ["0", "1,234,567", "1,234.6", "-1,000", NOTHING]
    assert [counted(value, "record") for value in (0, 1, 1200)] == ["0 records", "1 record", "1,200 records"]
    assert [size(value) for value in (None, 0, 999, 1000, 1_234_567, 10**15)] == [NOTHING, "0 B", "999 B", "1 kB", "1.23 MB", "1,000.0 TB"]
    assert [moment(at) for at in (AT, None)] == ["2026-03-01 01:35", NOTHING]


def test_found_values_have_separators_and_what_follows_stays() -> None:
    assert [grouped(text) for text in ("800", "1000", "1234567; first: C9000 at 0:12345", "C1234", "12:3456")] == [
        *("800", "1,000", "1,234,567; first: C9000 at 0:12345", "C1234", "12:3456"),
    ]


def test_a_share_is_never_rounded_to_none_or_to_all() -> None:
    shares = [share(part, whole) for part, whole in ((0, 10), (1, 10**6), (1, 8), (10**6 - 1, 10**6), (10, 10), (1, 0), (1, None))]
    assert shares == ["0 %", "< 0.01 %", "12.5 %", "> 99.99 %", "100 %", NOTHING, NOTHING]


def run(number: int, **taken: int) -> Run:
    found = Run(f"run {number}", AT + timedelta(minutes=number))
    found.taken.update(taken)
    return found


def test_a_bar_is_a_run_and_its_parts_stand_on_each_other() -> None:
    volume = charts.draw(Measures([run(1, transactions=60, accounts=20), run(2, transactions=20)], Counter()))[0]
    assert (volume.title, volume.total, volume.most) == ("Volume", "100 records", "80")
    assert [bar.run_id for bar in volume.bars] == ["run 1", "run 2"]
    assert volume.bars[0].parts == (("one", 25.0, 75.0), ("two", 0.0, 25.0))
    assert volume.bars[1].parts == (("one", 75.0, 25.0),)
    assert volume.bars[0].says == "2026-03-01 01:36 UTC: 80 records: transactions 60, 75 %; accounts 20, 25 %"
    assert volume.places == charts.FEWEST  # one run is one slim bar
    many = charts.draw(Measures([run(at, transactions=1) for at in range(100)], Counter()))[0]
    assert (many.places, len(many.bars), many.first, many.last) == (100, 100, "2026-03-01 01:35 UTC", "2026-03-01 03:14 UTC")


def test_nothing_is_drawn_of_nothing() -> None:
    for measures in (Measures([], Counter()), Measures([run(1)], Counter())):
        assert [chart.bars for chart in charts.draw(measures)] == [(), (), (), ()]
    assert charts.spark([], []).bars == ()
    assert charts.rules(Measures([], Counter())) == []


def test_a_small_chart_begins_at_zero() -> None:
    assert [bar.parts[0][2] for bar in charts.spark([99, 100], ["a", "b"]).bars] == [99.0, 100.0]
    assert [bar.parts[0][2] for bar in charts.spark([5, 5], ["a", "b"]).bars] == [100.0, 100.0]
    assert [bar.parts[0][2] for bar in charts.spark([0, 0], ["a", "b"]).bars] == [2, 2]  # still to be pointed at


def test_records_add_up_or_the_difference_is_named() -> None:
    parts = dict.fromkeys(PARTS, 0)
    whole = Conservation("transactions", 100, parts | {"output": 90, "duplicates": 10})
    assert (whole.lost, whole.change) == (0, "")
    assert whole.bar == [("output", 90, "90 %", 90.0), ("duplicates", 10, "10 %", 10.0)]
    lost, twice = (Conservation("transactions", 100, parts | {"output": count}, whole) for count in (75, 125))
    assert (lost.lost, lost.bar[-1]) == (25, ("lost", 25, "25 %", 25.0))
    assert (twice.lost, sum(width for *_, width in twice.bar)) == (-25, 100.0)
    nothing = Conservation("transactions", 0, parts, whole)
    assert (nothing.lost, nothing.bar, nothing.change) == (0, [], "100 % fewer than in the run before")
    assert Conservation("transactions", 300, parts, whole).change == "3 times as many as in the run before"
    assert Conservation("transactions", 100, parts, whole).change == "as many as in the run before"
    assert Conservation("transactions", 125, parts, whole).change == "25 % more than in the run before"


def test_a_run_that_no_release_ends_with_has_no_time_to_its_release() -> None:
    released, held = run(1), run(2)
    released.age_in_silver, released.age_in_release, held.age_in_silver = 120, 180, 120
    freshness = charts.draw(Measures([released, held], Counter()))[-1]
    assert [bar.says.partition(": ")[2] for bar in freshness.bars] == [
        "until silver had it 2 minutes, from silver to the release 60 seconds",
        "until silver had it 2 minutes",
    ]
