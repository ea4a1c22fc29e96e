"""Gold's sums are judged by what changed since a gate let a table through: files that came and that went, and silver's new rows."""

import shutil
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from expectations.profile import measure_table
from expectations.suites import read_suite
from spark_jobs.control import judged_rows
from spark_jobs.control.judged_rows import Written, open_query
from spark_jobs.runtime.settings import Settings
from tests.support.changes import Case
from tests.support.gold_cases import GOLD, GOLD_OF_TIMES
from tests.support.warehouse import DAY, LOADED, Row, Rows, at, good_rows, settings_of, table_named, transaction, write

BATCH = 3
SUMMED = ("gold.daily_totals", "gold.customer_activity", "gold.account_balances", "gold.customer_sessions", "gold.account_days")


def wrong(settings: Settings, name: str, passed: int | None, names: frozenset[str] | None = None) -> dict[str, int]:
    """What is wrong with a table by the batch that comes after the good ones, where a gate let a version through; None: by all rows."""
    table, suite = table_named(name), read_suite(name)
    version = table.open(settings).version()
    written = Written(table, version, 1 if passed is None else BATCH, BATCH, at_any_time=passed is None, passed=passed)
    profile = measure_table(suite if names is None else suite.about(names), open_query(settings, written, {name: version}, LOADED))
    assert profile.errors == {}
    return {measure: value for measure, value in profile.values.items() if value}


def changed_names(case: Case) -> frozenset[str]:
    """The measures that the case breaks, and that ask for what changed."""
    return frozenset(each.name for each in read_suite(case.table).measures if "new_gold_" in each.sql) & case.failed


@pytest.mark.parametrize("case", [case for case in (*GOLD, *GOLD_OF_TIMES) if changed_names(case)], ids=str)
def test_what_all_rows_show_the_files_that_changed_show(case: Case, good_home: Path, tmp_path: Path) -> None:
    """Good rows were let through, and broken ones took their place."""
    home, rows = tmp_path / "home", good_rows()
    shutil.copytree(good_home, home)
    settings = settings_of(home)
    passed = table_named(case.table).open(settings).version()
    case.change(rows)
    write(settings, {case.table: rows[case.table]}, mode="overwrite")
    names = changed_names(case)
    found = wrong(settings, case.table, passed, names)
    assert found.keys() == names
    assert found == wrong(settings, case.table, None, names)


def with_new_row(rows: Rows) -> tuple[Row, Rows]:
    """A debit of the second customer at 12 o'clock, an hour after a credit, and the good rows with it."""
    new, noon = transaction(5, at(1, 1, BATCH), "Debit", "1.00", who=2, hour=12), DAY + timedelta(hours=12)
    one: dict[str, Any] = {"transactions": 1, "debits": Decimal("1.00")}
    total = next(row for row in rows["gold.daily_totals"] if row["type"] == "Debit")
    changes: dict[str, tuple[Row, dict[str, Any]]] = {
        "gold.daily_totals": (total, {"transactions": 1, "amount": Decimal("1.00")}),
        "gold.customer_activity": (rows["gold.customer_activity"][1], one),
        "gold.account_balances": (rows["gold.account_balances"][1], one),
        "gold.customer_sessions": (rows["gold.customer_sessions"][1], {"transactions": 1, "amount": Decimal("1.00")}),
        "gold.account_days": (rows["gold.account_days"][1], one),
    }
    for row, added in changes.values():
        row |= {name: row[name] + value for name, value in added.items()}
    changes["gold.customer_activity"][0]["last_event_at"] = noon
    changes["gold.account_balances"][0].update(at(1, 1, BATCH), last_event_at=noon)
    changes["gold.customer_sessions"][0]["session_end"] = noon + timedelta(hours=12)
    changes["gold.account_days"][0]["closing"] = new["balance"]
    return new, rows


@pytest.mark.parametrize("name", SUMMED)
def test_what_a_new_row_changes_adds_up(copy_home: Callable[[], Settings], name: str) -> None:
    settings = copy_home()
    passed = table_named(name).open(settings).version()
    new, rows = with_new_row(good_rows())
    write(settings, {"silver.transactions": [new]})
    assert wrong(settings, name, passed), "the row is not in the table"
    write(settings, {name: rows[name]}, mode="overwrite")
    assert wrong(settings, name, passed) == wrong(settings, name, None) == {}
    (row,) = (row for row in rows[name] if row not in good_rows()[name])
    row["transactions"] += 1
    write(settings, {name: rows[name]}, mode="overwrite")
    assert wrong(settings, name, passed).keys() == wrong(settings, name, None).keys() != set()


@pytest.mark.parametrize("what", ["a file is gone for good", "too many files"])
def test_without_the_files_that_went_all_rows_are_summed(
    copy_home: Callable[[], Settings], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    settings, name = copy_home(), "gold.daily_totals"
    table = table_named(name)
    passed, files = table.open(settings).version(), table.open(settings).file_uris()
    new, rows = with_new_row(good_rows())
    write(settings, {"silver.transactions": [new]})
    write(settings, {name: rows[name]}, mode="overwrite")
    if what == "too many files":
        monkeypatch.setattr(judged_rows, "_MOST_FILES", 0)
    else:
        Path(files[0]).unlink()
    assert wrong(settings, name, passed) == {}
    rows[name][0]["transactions"] += 1
    write(settings, {name: rows[name]}, mode="overwrite")
    assert wrong(settings, name, passed).keys() == {"transactions_difference"}


def test_a_session_that_a_new_row_did_not_join_overlaps_also_where_it_began_long_before(copy_home: Callable[[], Settings]) -> None:
    settings, name = copy_home(), "gold.customer_sessions"
    rows = good_rows()[name]
    long = rows[1] | {"session_start": DAY - timedelta(days=30), "session_end": DAY + timedelta(days=30), "transactions": 200}
    write(settings, {name: [rows[0], long]}, mode="overwrite")
    passed = table_named(name).open(settings).version()
    new, at_noon = transaction(5, at(1, 1, BATCH), "Debit", "1.00", who=2, hour=12), DAY + timedelta(hours=12)
    alone = {"session_start": at_noon, "session_end": at_noon + timedelta(hours=12), "transactions": 1, "amount": Decimal("1.00")}
    write(settings, {"silver.transactions": [new], name: [rows[1] | alone]})
    assert wrong(settings, name, passed) == {"overlapping_sessions": 1}
