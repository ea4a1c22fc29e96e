"""Gold is judged near in time to the new rows: by the same measures, as if all were judged, and only where the job may have written."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from expectations.profile import measure_table
from expectations.suites import read_suite
from spark_jobs import control
from spark_jobs.control.judged_rows import Written, open_query
from spark_jobs.control.scope import find_written
from spark_jobs.control.verdicts import append_under_lease
from spark_jobs.lake import leases
from spark_jobs.lake.tables import (
    BRONZE_TRANSACTIONS,
    DEBIT_CREDIT_PAIRS,
    DISTRICT_MINUTES,
    GOLD,
    QUALITY_RESULTS,
    SILVER_ACCOUNTS,
    SILVER_TRANSACTIONS,
    Table,
)
from spark_jobs.releases import gates
from spark_jobs.runtime.settings import Settings
from tests.support.changes import Case, put
from tests.support.suite_cases import CASES
from tests.support.verdicts import verdict
from tests.support.warehouse import DAY, LOADED, at, bronze, good_rows, run_of, settings_of, table_named, transaction, write

KINDS = ("Debit", "Credit")
MINUTES, DAYS = "gold.district_minutes", "gold.account_days"


def measure(home: Path, table: str, names: frozenset[str], first: int, *, at_any_time: bool) -> dict[str, int]:
    written = Written(table_named(table), 0, first, 2, at_any_time=at_any_time)
    profile = measure_table(read_suite(table).about(names), open_query(settings_of(home), written, {}, LOADED))
    assert profile.errors == {}
    return profile.values


def names_near(case: Case) -> frozenset[str]:
    """The measures that the case breaks, and that ask for near rows."""
    return frozenset(each.name for each in read_suite(case.table).measures if "_near_" in each.sql) & case.failed


@pytest.mark.parametrize("case", [case for case in CASES if case.table.startswith("gold.") and names_near(case)], ids=str)
def test_what_all_rows_show_near_rows_show(case: Case, good_home: Path, tmp_path: Path) -> None:
    home, rows, good = tmp_path / "home", good_rows(), good_rows()
    shutil.copytree(good_home, home)
    case.change(rows)
    write(settings_of(home), {name: changed for name, changed in rows.items() if changed != good[name]}, mode="overwrite")
    near, every = (measure(home, case.table, names_near(case), 1, at_any_time=at_any_time) for at_any_time in (False, True))
    assert near.keys() == {name for name, value in near.items() if 0 < value <= every[name]}  # a row that went elsewhere is missed once


@pytest.mark.parametrize(
    ("relation", "hours"),
    [
        ("gold_district_minutes_near_0_hours", [8, 11]),
        ("gold_district_minutes_near_1_hours", [8, 9, 10, 11]),
        ("gold_district_minutes_near_0_days", [8, 9, 10, 11]),
    ],
)
def test_near_rows_lie_in_the_hours_of_judged_rows_and_so_many_beside(good_home: Path, relation: str, hours: list[int]) -> None:
    """The second batch has rows of 8 and 11 o'clock; the first one of 9 and 10."""
    written = Written(table_named(MINUTES), 0, 2, 2, at_any_time=False)
    found = open_query(settings_of(good_home), written, {}, LOADED)(f"select minute from {relation} order by minute")
    assert found.column(0).to_pylist() == [DAY + timedelta(hours=hour) for hour in hours]


@pytest.mark.parametrize(("days", "count"), [(0, 0), (1, 2)])
def test_days_are_near_days(good_home: Path, tmp_path: Path, days: int, count: int) -> None:
    home = tmp_path / "home"
    shutil.copytree(good_home, home)
    new = transaction(5, at(1, 1, 3), "Debit", "1.00", who=2, hour=25)
    write(settings_of(home), {"silver.transactions": [new]})
    query = open_query(settings_of(home), Written(table_named(DAYS), 0, 3, 3, at_any_time=False), {}, LOADED)
    assert query(f"select count(*) from gold_account_days_near_{days}_days")[0][0].as_py() == count


def test_rows_that_were_judged_before_are_not_judged_again(good_home: Path, tmp_path: Path) -> None:
    home, rows = tmp_path / "home", good_rows()
    shutil.copytree(good_home, home)
    put(MINUTES, 1, amount=1)(rows)  # 9 o'clock: of the first batch
    write(settings_of(home), {MINUTES: rows[MINUTES]}, mode="overwrite")
    names = frozenset({"minutes_that_differ"})
    found = {first: measure(home, MINUTES, names, first, at_any_time=False) for first in (1, 2)}
    assert found == {1: {"minutes_that_differ": 1}, 2: {"minutes_that_differ": 0}}
    assert measure(home, MINUTES, names, 2, at_any_time=True) == {"minutes_that_differ": 1}


def measure_days(settings: Settings, transactions: list[dict[str, Any]], days: list[dict[str, Any]], *names: str) -> dict[str, int]:
    """What a gate finds in days of accounts after a third batch of transactions."""
    write(settings, {"silver.transactions": transactions, DAYS: days})
    version = table_named(DAYS).open(settings).version()
    query = open_query(settings, Written(table_named(DAYS), version, 3, 3, at_any_time=False), {DAYS: version}, LOADED)
    found = measure_table(read_suite(DAYS).about(frozenset(names)), query)
    assert found.errors == {}
    return found.values


def account_day(account: str, day: date, opening: int | None, closing: int, difference: int | None = None) -> dict[str, Any]:
    sums = {"credits": Decimal(0), "debits": Decimal(0), "transactions": 1, "difference": difference}
    return {"account_id": account, "day": day, "opening": opening, "closing": closing, **sums}


def test_an_opening_is_compared_with_the_day_before_within_31_days_wherever_these_lie(copy_home: Callable[[], Settings]) -> None:
    """Of accounts with two days, 1, 31 or 32 days apart, of which the first or the second is judged, from 70 days on."""
    transactions, days = list[dict[str, Any]](), list[dict[str, Any]]()
    for number, gap, is_first in product(range(70), (1, 31, 32), (True, False)):
        judged = transaction(1000 + len(transactions), at(0, 1000 + len(transactions), 3), "Debit", "1.00", number, hour=24 * number)
        account, day = f"{number} {gap} {is_first}", judged["event_on"]
        first = day if is_first else day - timedelta(days=gap)
        is_counted = gap < 32 or not is_first
        transactions.append(judged | {"account_id": account})
        days += [account_day(account, first, None, 5), account_day(account, first + timedelta(days=gap), 4, 4, int(is_counted))]
    found = measure_days(copy_home(), transactions, days, "wrong_openings", "unbalanced_days_of_1000")
    assert found == {"wrong_openings": 70 * 2 * 2, "unbalanced_days_of_1000": 1000}


@pytest.mark.parametrize(("closing", "count"), [(1, 1), (2, 0), (3, 0), (4, 1)])
def test_a_day_closes_with_the_balance_of_one_of_its_last_rows(copy_home: Callable[[], Settings], closing: int, count: int) -> None:
    """At 9 o'clock there are two, at 8 the row of an earlier batch."""
    rows = [
        transaction(9 + balance, at(0, 9 + balance, batch), "Debit", "1.00", who=9, hour=hour) | {"balance": Decimal(balance)}
        for balance, batch, hour in ((1, 2, 8), (2, 3, 9), (3, 3, 9))
    ]
    days = [account_day(rows[0]["account_id"], DAY.date(), None, closing)]
    assert measure_days(copy_home(), rows, days, "closings_that_are_not_the_last") == {"closings_that_are_not_the_last": count}


def test_firsts_of_duplicates_are_looked_up_by_their_offsets(copy_home: Callable[[], Settings]) -> None:
    """A file of silver with other offsets is not opened: here it is lost."""
    settings, name = copy_home(), "silver.transactions_duplicates"
    before = set(SILVER_TRANSACTIONS.open(settings).file_uris())
    write(settings, {"silver.transactions": [transaction(10_000, at(0, 10_000, 1), "Debit", "1.00", who=1, hour=8)]})
    (far,) = set(SILVER_TRANSACTIONS.open(settings).file_uris()) - before
    Path(far).unlink()
    names = frozenset({"missing_firsts", "duplicates_before_firsts"})
    assert measure(settings.home, name, names, 1, at_any_time=True) == dict.fromkeys(names, 0)


def test_records_of_earlier_batches_and_gaps_are_looked_for_at_the_judged_offsets(copy_home: Callable[[], Settings]) -> None:
    """A file of bronze with other offsets is not opened: here it is lost."""
    settings, name = copy_home(), "bronze.transactions"
    before = set(BRONZE_TRANSACTIONS.open(settings).file_uris())
    write(settings, {name: [bronze(at(0, 10_000, 1), b"T", b"{}")]})
    (far,) = set(BRONZE_TRANSACTIONS.open(settings).file_uris()) - before
    Path(far).unlink()
    names = frozenset({"records_of_earlier_batches", "skipped_offsets"})
    assert measure(settings.home, name, names, 2, at_any_time=True) == dict.fromkeys(names, 0)
    write(settings, {name: [bronze(at(0, 3, 1), b"T", b"{}")]})
    assert measure(settings.home, name, names, 2, at_any_time=True)["records_of_earlier_batches"] == 1


def test_where_single_records_are_judged_a_later_row_of_the_id_is_found(copy_home: Callable[[], Settings], tmp_path: Path) -> None:
    """It is none of these records itself."""
    settings, name, records = copy_home(), "silver.transactions_duplicates", tmp_path / "records"
    duplicate = good_rows()[name][0]
    write_deltalake(str(records), pa.table({column: [duplicate[column]] for column in ("_topic", "_partition", "_offset")}))
    write(settings, {"silver.transactions": [transaction(1, at(0, 10, 2), "Credit", "100.10", who=1, hour=9)]})
    query = open_query(settings, Written(table_named(name), 0, 1, 2, records), {}, LOADED)
    profile = measure_table(read_suite(name).about({"missing_firsts", "duplicates_before_firsts"}), query)
    assert (profile.values, profile.errors) == ({"missing_firsts": 0, "duplicates_before_firsts": 1}, {})


def wrong_pairs(settings: Settings, passed: int | None, batch: int = 3) -> dict[str, int]:
    """What is wrong with the pairs in files after a version, of which a batch is new; None: with all."""
    version = DEBIT_CREDIT_PAIRS.open(settings).version()
    written = Written(DEBIT_CREDIT_PAIRS, version, batch, batch, at_any_time=False, passed=passed)
    names = frozenset({"wrong_times", "missing_values", "repeated_keys", "lost_pairs", "rows_that_differ_from_silver"})
    query = open_query(settings, written, {DEBIT_CREDIT_PAIRS.name: version}, LOADED)
    profile = measure_table(read_suite(DEBIT_CREDIT_PAIRS.name).about(names), query)
    assert profile.errors == {}
    return {name: value for name, value in profile.values.items() if value}


def test_files_that_a_gate_has_let_through_are_not_judged_again(copy_home: Callable[[], Settings]) -> None:
    """The third batch brings a debit and a credit of 8 o'clock, where there is a debit; at 9 there is a credit."""
    settings, name, eight, nine = copy_home(), DEBIT_CREDIT_PAIRS.name, DAY + timedelta(hours=8), DAY + timedelta(hours=9)
    debit, credit = (transaction(5 + number, at(0, 5 + number, 3), kind, "1.00", who=1, hour=8) for number, kind in enumerate(KINDS))
    write(settings, {"silver.transactions": [debit, credit]})
    ids = (("T5", "T6", eight), ("T5", "T1", nine), ("T3", "T6", eight))
    pairs = [
        {"debit_id": one, "credit_id": other, "customer_id": debit["customer_id"], "debit_at": eight, "credit_at": credit_at}
        for one, other, credit_at in ids
    ]
    before = DEBIT_CREDIT_PAIRS.open(settings).version()
    assert wrong_pairs(settings, before) == {"lost_pairs": 3}
    write(settings, {name: [*pairs, pairs[0] | {"debit_id": None}]})
    wrong = {"missing_values": 1, "rows_that_differ_from_silver": 1}
    assert wrong_pairs(settings, before) == wrong_pairs(settings, None) == wrong
    after = DEBIT_CREDIT_PAIRS.open(settings).version()
    assert wrong_pairs(settings, after) == wrong_pairs(settings, None)  # an aggregate of no rows may be null
    write(settings, {name: pairs})
    assert wrong_pairs(settings, before) == wrong_pairs(settings, None) == wrong | {"repeated_keys": 3}
    other = transaction(7, at(0, 7, 4), "Debit", "1.00", who=2, hour=8)  # of another batch and customer
    write(settings, {"silver.transactions": [other]})
    assert wrong_pairs(settings, after, batch=4) == {"repeated_keys": 3}  # of pairs that were let through


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_gate_that_passed_has_let_the_rows_of_its_version_through(copy_home: Callable[[], Settings], *, is_made_again: bool) -> None:
    """But not those of a table that was removed and made again, whose versions have the same numbers."""
    settings = copy_home()
    assert {written.passed for written in find_written(settings, "gold")[0]} == {None}
    made_at = datetime.now(UTC)
    gates.run(settings, "gold", "run-1", now=made_at - timedelta(days=1) if is_made_again else made_at)
    judged = DISTRICT_MINUTES.open(settings).version()
    append_minute(settings, {"application": control.following(settings, SILVER_TRANSACTIONS)})
    runs = [run_of("silver", "silver.transactions", 3, 3), *(run_of("gold", table.name, 3, 3) for table in GOLD)]
    write(settings, {"control.batches": runs})
    (minutes,) = (written for written in find_written(settings, "gold")[0] if written.table == DISTRICT_MINUTES)
    assert (minutes.passed, minutes.version) == (None if is_made_again else judged, judged + 1)


def test_a_version_with_rows_of_judged_batches_counts_as_none_that_was_let_through(copy_home: Callable[[], Settings]) -> None:
    """One table's gate passed the third batch, and all others' did not: it is judged again with them."""
    settings = copy_home()
    gates.run(settings, "gold", "run-1", now=datetime.now(UTC))
    runs = [run_of("silver", "silver.transactions", 3, 3), *(run_of("gold", table.name, 3, 3) for table in GOLD)]
    write(settings, {"control.batches": runs})
    at_three = verdict(MINUTES, version=DISTRICT_MINUTES.open(settings).version(), last_batch=3, judged_at=datetime.now(UTC))
    with leases.hold(settings, [QUALITY_RESULTS], owner="test"):
        append_under_lease(settings, [at_three])
    found = {written.table.name: (written.first_batch, written.passed is None) for written in find_written(settings, "gold")[0]}
    assert found == {table.name: (3, table.name == MINUTES) for table in GOLD}


def append_minute(settings: Settings, facts: dict[str, Any]) -> None:
    schema = pa.schema(DISTRICT_MINUTES.delta_schema().to_arrow())
    minute = good_rows()[MINUTES][0] | {"minute": DAY + timedelta(hours=20)}
    properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(facts)})
    path = str(DISTRICT_MINUTES.path(settings))
    write_deltalake(path, pa.Table.from_pylist([minute], schema), mode="append", commit_properties=properties)


@pytest.mark.parametrize(
    ("source", "at_any_time"), [(SILVER_TRANSACTIONS, False), (SILVER_ACCOUNTS, True), (None, True)], ids=["new", "history", "unknown"]
)
def test_rows_of_any_time_are_judged_where_more_than_new_rows_changed_them(
    copy_home: Callable[[], Settings], source: Table | None, *, at_any_time: bool
) -> None:
    """Another version of an account has its transactions of any time counted again; who does not say what it wrote may write anything."""
    settings = copy_home()
    gates.run(settings, "gold", "run-1", now=LOADED)
    assert find_written(settings, "gold")[0] == []
    append_minute(settings, {"application": control.following(settings, source)} if source else {})
    runs = [run_of("silver", "silver.transactions", 3, 3), *(run_of("gold", table.name, 3, 3) for table in GOLD)]
    write(settings, {"control.batches": runs})
    found = {written.table: written.at_any_time for written in find_written(settings, "gold")[0]}
    assert found == {table: at_any_time and table == DISTRICT_MINUTES for table in GOLD}
