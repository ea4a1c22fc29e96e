"""gold.live_debit_share: the share of both streams up to each day that is closed, over crashes, restarts and a restored savepoint."""

import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.tws_tester import TwsTester

from spark_jobs.gold.tables import daily_totals, debit_share as gold_share
from spark_jobs.lake import sources, tables
from spark_jobs.live import savepoints
from spark_jobs.live.declaration import LiveQuery
from spark_jobs.live.products.debit_share import QUERY, STATE, Counts, Day, Share, Sharing, step
from spark_jobs.runtime.settings import Settings
from tests.support import kill_points, lake
from tests.support.live_lake import arrive, fingerprint_of, run_live

NOW = datetime(2024, 1, 1, tzinfo=UTC)
NEW_YEAR = date(2024, 1, 1)
Told = Counter[tuple[str, int, int, str]]


@pytest.fixture
def known_queries() -> Sequence[LiveQuery]:
    return (QUERY,)


def come(settings: Settings, batch: int, **days: str) -> None:
    """A bronze batch: of each day of January (`d1`) a letter for each row, D or C."""
    rows = [
        (f"{batch}-{day}-{place}", f"2024-01-{int(day[1:]):02} 12:00:{place:02}", {"type": {"D": "Debit", "C": "Credit"}[letter]})
        for day, letters in days.items()
        for place, letter in enumerate(letters)
    ]
    arrive(settings, batch, *rows)


def told(settings: Settings) -> Told:
    """Day of the month, debits, credits and share of each row that was written."""
    rows = lake.rows_of(settings, QUERY.table)
    return Counter((f"{row['day']:%d}", row["debits"], row["credits"], str(row["debit_share_percent"])) for row in rows)


@pytest.mark.parametrize(
    ("before", "debits", "others", "percent"),
    [
        (Counts(), 1, 0, "100.0000"),
        (Counts(), 0, 1, "0.0000"),
        (Counts(1, 0), 0, 2, "33.3333"),
        (Counts(0, 1), 2, 0, "66.6667"),
        (Counts(1, 7), 0, 79_992, "0.0013"),  # 0.00125: half up
        (Counts(10**12, 10**12), 1, 0, "50.0000"),
    ],
)
def test_a_day_counts_for_its_side_and_the_share_is_rounded_half_up(before: Counts, debits: int, others: int, percent: str) -> None:
    after, share = step(before, Day(NEW_YEAR, debits, others))
    assert after == (before.debits + debits, before.credits + others)
    assert share == Share(NEW_YEAR, *after, Decimal(percent))


def test_the_processor_steps_through_the_days_in_order_and_keeps_the_counts() -> None:
    tester = TwsTester(Sharing())
    days = pd.DataFrame([(date(2024, 1, 2), 0, 1), (NEW_YEAR, 1, 0)], columns=["day", "debits", "credits"])
    found = tester.testInPandas(("bank",), days).to_dict("records")
    assert [(row["day"].day, str(row["debit_share_percent"])) for row in found] == [(1, "100.0000"), (2, "50.0000")]
    assert tester.peekValueState(STATE, ("bank",)) == (1, 1)


def test_the_share_goes_on_over_crashes_restarts_and_a_restored_savepoint(
    live: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day of debits only, one of both, one of credits only; the day under way is not there."""
    come(settings, 1, d1="DDD", d2="D")
    run_live(live, settings, [QUERY])
    first: Told = Counter([("01", 3, 0, "100.0000")])
    assert told(settings) == first
    saved = savepoints.create(settings, "first", NOW)

    def crash(point: str) -> None:
        with monkeypatch.context() as patch:
            kill_points.reach(patch, lambda name: 1 / 0 if name == point else None)
            with pytest.raises(AssertionError, match="ZeroDivisionError"):
                run_live(live, settings, [QUERY])

    come(settings, 2, d2="CCDDC")
    come(settings, 3, d4="C", d2="D")  # the last row is in time: the watermark is that of the batches before
    crash(f"before {QUERY.table.name}")
    assert told(settings) == first
    come(settings, 4, d5="CC")
    crash(f"after {QUERY.table.name}")
    second = first + Counter([("02", 7, 3, "70.0000")])
    run_live(live, settings, [QUERY])
    third = second + Counter([("04", 7, 4, "63.6364")])
    assert told(settings) == third
    taken = sources.read_table(live, settings, tables.LIVE_TRANSACTIONS)
    gold = gold_share.debit_share(daily_totals.daily_totals(taken)).where("day < '2024-01-05'")
    assert Counter((f"{row['day']:%d}", row["debits"], row["credits"], str(row["debit_share_percent"])) for row in gold.collect()) == third

    savepoints.restore(settings, saved, {})
    assert told(settings) == first
    run_live(live, settings, [QUERY])
    assert told(settings) == third
    run_live(live, settings, [QUERY])
    assert told(settings) == third


def test_a_side_that_does_not_come_holds_nothing_back_however_the_runs_cut_the_batches(live: SparkSession, settings: Settings) -> None:
    chance, expected, counts = random.Random(3), Counter[tuple[str, int, int, str]](), Counts()
    for day in range(1, 8):
        letters = "".join(chance.choice("D" if day in (2, 3) else "C" if day == 5 else "DC") for _ in range(chance.randint(1, 6)))
        come(settings, day, **{f"d{day}": letters})
        if day < 7:
            counts, share = step(counts, Day(NEW_YEAR.replace(day=day), letters.count("D"), letters.count("C")))
            expected[(f"{day:02}", *counts, str(share.debit_share_percent))] += 1
        if day in (3, 4, 7):
            run_live(live, settings, [QUERY])
    assert told(settings) == expected


def test_what_its_state_depends_on(live: SparkSession, settings: Settings) -> None:
    tables.ensure_tables(settings, tables.LIVE)
    found = fingerprint_of(live, settings, QUERY)
    assert found == fingerprint_of(live, settings, QUERY)
    assert sorted(each["operator"] for each in found["operators"]) == ["Aggregate", "TransformWithStateInPySpark"]
