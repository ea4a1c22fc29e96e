"""The record of backfills, how a range is cut into steps, and which ranges are none."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spark_jobs import control
from spark_jobs.control import backfills
from spark_jobs.control.backfills import TRANSACTIONS, Backfill, Step
from spark_jobs.control.scope import _is_amended
from spark_jobs.lake import tables
from spark_jobs.lake.tables import REDRIVES, SILVER_TRANSACTIONS
from spark_jobs.lake.topics import BY_TOPIC
from spark_jobs.releases.releases import has_unreleased_batches
from spark_jobs.reprocessing.backfill import _cut
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings, read_settings
from spark_jobs.runtime.times import from_micros, parse_range, to_micros
from spark_jobs.silver.job import _newest_event
from tests.support.verdicts import verdict

START, END = datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 31, 12, tzinfo=UTC)
RULES = {"transactions": "1", "customers": "1", "accounts": "1"}
DAY = timedelta(days=1)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = read_settings({"LEDGER_HOME": str(tmp_path)})
    tables.ensure_tables(found, (*tables.CONTROL, *tables.SILVER))
    return found


def started(settings: Settings, rules: dict[str, str] = RULES) -> Backfill:
    return backfills.find_or_start(settings, START, END, ("silver.transactions",), rules, "run")


def test_the_unfinished_backfill_of_the_same_continues(settings: Settings) -> None:
    first = started(settings)
    assert started(settings) == first
    assert started(settings, RULES | {"transactions": "2"}) != first
    assert backfills.find_or_start(settings, START, END, ("gold.daily_totals",), RULES, "run") != first
    backfills.finish(settings, first, "run")
    assert started(settings) != first


def test_a_step_is_halfway_from_its_beginning_to_its_end(settings: Settings) -> None:
    backfill = started(settings)
    step, later = Step(backfill, TRANSACTIONS, START, START + DAY), Step(backfill, TRANSACTIONS, START + DAY, END)
    backfills.refuse_halfway(settings)
    assert backfills.begun(settings) is None
    backfills.begin(settings, step, "run", {"silver.transactions": 3}, START)
    backfills.begin(settings, step, "another run", {"silver.transactions": 4}, END)
    backfills.begin(settings, step, "one that changes gold only", {"silver.transactions": 5})
    assert backfills.halfway(settings) == step
    assert backfills.begun(settings) == ({"silver.transactions": 3}, END)
    assert backfills.steps_done(settings, backfill) == []
    with pytest.raises(
        LedgerError, match=r"run backfill --start 2013-01-01T00:00:00Z --end 2013-01-31T12:00:00Z --tables silver.transactions"
    ):
        backfills.refuse_halfway(settings)
    backfills.end(settings, step, "run", rows=1, changed=1, last_batch=3, versions={"silver.transactions": 4})
    backfills.end(settings, later, "run", rows=1, changed=0, last_batch=3, versions={})
    assert (backfills.halfway(settings), backfills.begun(settings)) == (None, None)
    assert backfills.steps_done(settings, backfill) == [step, later]
    assert backfills.changed_versions(settings) == {"silver.transactions": 4}


@pytest.mark.parametrize(("released", "kept"), [(4, 1), (3, 0)])
def test_a_roll_back_keeps_the_steps_that_the_release_holds(settings: Settings, released: int, kept: int) -> None:
    backfill = started(settings)
    for state in (backfills.begin, backfills.end):
        versions = {"silver.transactions": 4, tables.TRANSACTION_IDS.name: 9}  # the index is in no release
        facts: dict[str, Any] = {} if state is backfills.begin else {"rows": 1, "changed": 1, "last_batch": 3}
        state(settings, Step(backfill, TRANSACTIONS, START, END), "run", versions=versions, **facts)
    rows = control.read(settings, tables.BACKFILLS).to_pylist()
    assert sum(backfills.is_of_release(row, {"silver.transactions": released}) for row in rows) == kept


def test_the_watermark_continues_from_what_is_valid_after_a_backfill(settings: Settings) -> None:
    """Also when that is less than before; a re-drive after it counts, one before it is in it already."""

    def at(day: int) -> datetime:
        return START + day * DAY

    def redriven(day: int, version: int) -> dict[str, object]:
        return {"table": SILVER_TRANSACTIONS.name, "_newest_event_at": at(day), "_silver_version": version}

    batch = {"job": "silver", "table": SILVER_TRANSACTIONS.name, "first_batch": 1, "last_batch": 3, "_newest_event_at": at(20)}
    control.append(settings, tables.BATCHES, [batch])
    control.append(settings, REDRIVES, [redriven(25, 2)])
    assert _newest_event(settings, BY_TOPIC[TRANSACTIONS]) == at(25)
    step = Step(started(settings), TRANSACTIONS, START, END)
    backfills.end(settings, step, "run", rows=1, changed=1, last_batch=3, versions={SILVER_TRANSACTIONS.name: 4}, _newest_event_at=at(10))
    backfills.end(settings, step, "run", rows=1, changed=0, last_batch=3, versions={})
    assert _newest_event(settings, BY_TOPIC[TRANSACTIONS]) == at(10)
    control.append(settings, REDRIVES, [redriven(11, 5), redriven(29, 6) | {"table": "silver.card_payments"}])  # which has its own
    assert _newest_event(settings, BY_TOPIC[TRANSACTIONS]) == at(11)
    control.append(settings, tables.BATCHES, [batch | {"first_batch": 4, "last_batch": 4, "_newest_event_at": at(12)}])
    assert _newest_event(settings, BY_TOPIC[TRANSACTIONS]) == at(25)  # from here on every batch knows what was before it


def test_what_a_backfill_changed_is_judged_whole_and_unreleased(settings: Settings) -> None:
    now = datetime.now(UTC)
    passed = [verdict(SILVER_TRANSACTIONS.name, version=3, judged_at=now)]
    step = Step(started(settings), TRANSACTIONS, START, END)
    assert not _is_amended(settings, "silver", passed)
    backfills.end(settings, step, "run", rows=1, changed=1, last_batch=3, versions={SILVER_TRANSACTIONS.name: 4})
    assert _is_amended(settings, "silver", passed)
    assert not _is_amended(settings, "silver", [verdict(SILVER_TRANSACTIONS.name, version=4, judged_at=now)])
    assert not _is_amended(settings, "gold", [verdict("gold.daily_totals", version=1, judged_at=now)])
    backfills.end(settings, step, "run", rows=1, changed=1, last_batch=3, versions={"gold.daily_totals": 2})
    assert _is_amended(settings, "gold", [verdict("gold.daily_totals", version=1, judged_at=now)])
    assert not has_unreleased_batches(settings)


def test_a_range_is_cut_between_days_and_no_day_is_cut() -> None:
    rest = Step(started_nowhere(), TRANSACTIONS, START + timedelta(hours=6), END)
    days = [(START, 5), (START + DAY, 6), (START + 2 * DAY, 1), (START + 9 * DAY, 50), (START + 10 * DAY, 1)]
    cuts = [(step.start, step.end) for step in _cut(rest, days, 10)]
    middle = [START + DAY, START + 9 * DAY, START + 10 * DAY]
    assert cuts == list(zip([rest.start, *middle], [*middle, END], strict=True))
    assert [(step.start, step.end) for step in _cut(rest, [], 10)] == [(rest.start, END)]
    assert len(_cut(rest, days, 1000)) == 1
    assert len(_cut(rest, days, 42)) == 1, "a short rest has no step of its own"
    assert len(_cut(rest, days, 41)) == 2


def started_nowhere() -> Backfill:
    return Backfill("b", START, END, ("silver.transactions",), RULES)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("2013-01-05", "2013-01-05"),
        ("2013-01-06", "2013-01-05"),
        ("2013-01-05T01:00+02:00", "2013-01-04T23:00Z"),
        ("x", "2013"),
        ("2013-13-01", "2014-01-01"),
    ],
)
def test_no_range(start: str, end: str) -> None:
    with pytest.raises(SettingsError, match="expected"):
        parse_range(start, end)


def test_a_range_in_another_zone_is_the_same_moment() -> None:
    assert parse_range("2013-01-05T02:00:00+02:00", "2013-01-06") == (datetime(2013, 1, 5, tzinfo=UTC), datetime(2013, 1, 6, tzinfo=UTC))
    assert from_micros(to_micros(END)) == END
