"""One case for each way in which a table can be wrong: what is broken, and which expectations of which table must say so."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from tests.expectations.warehouse import DAY, FIRST_VERSION, LOADED, Row, Rows, at, bronze, daily, quarantined, run_of, transaction

Change = Callable[[Rows], None]


@dataclass(frozen=True)
class Case:
    """`change` breaks good rows; of `table`, exactly the expectations in `failed` must fail."""

    table: str
    failed: frozenset[str]
    change: Change
    which: str = ""

    def __str__(self) -> str:
        return f"{self.table}-{'+'.join(sorted(self.failed))}{self.which}"


def case(table: str, failed: str, change: Change, which: str = "") -> Case:
    return Case(table, frozenset(failed.split()), change, which)


def put(table: str, row: int = -1, **values: Any) -> Change:
    """Overwrite values of one row."""
    return lambda rows: rows[table][row].update(values)


def add(table: str, *new: Row) -> Change:
    return lambda rows: rows[table].extend(new)


def drop(table: str, row: int = -1) -> Change:
    return lambda rows: rows[table].__delitem__(row)


def again(table: str, row: int = -1, **values: Any) -> Change:
    """Add a copy of a row, with other values."""
    return lambda rows: rows[table].append(rows[table][row] | values)


def bronze_cases(topic: str) -> list[Case]:
    table = f"bronze.{topic}"
    return [
        case(table, "rows_judged", lambda rows: rows[table].clear()),
        case(table, "missing_coordinates", put(table, 0, _offset=None), "-offset"),
        case(table, "missing_coordinates", put(table, _batch=None), "-batch"),
        case(table, "negative_coordinates", put(table, 0, _partition=-1, _offset=7)),
        case(table, "missing_times", put(table, _timestamp=None)),
        case(table, "repeated_coordinates", again(table)),
        case(table, "skipped_offsets", again(table, 0, _offset=9)),
    ]


def quarantine_cases(topic: str) -> list[Case]:
    table = f"silver.{topic}_quarantine"
    return [
        case(table, "missing_coordinates rows_that_differ_from_bronze", put(table, _partition=None)),
        case(table, "missing_rules", put(table, broken_rules=[]), "-none"),
        case(table, "missing_rules", put(table, broken_rules=None), "-null"),
        case(table, "missing_rules", put(table, broken_rules=["parseable", ""]), "-nameless"),
        case(table, "repeated_coordinates", again(table)),
        case(table, "rows_that_differ_from_bronze", put(table, value=b"other"), "-value"),
        case(table, "rows_that_differ_from_bronze", put(table, key=b"other"), "-key"),
        case(table, "rows_that_differ_from_bronze", put(table, _offset=99), "-coordinates"),
    ]


def dimension_cases(topic: str, key: str, partner: str) -> list[Case]:
    table = f"silver.{topic}"
    later = FIRST_VERSION + timedelta(days=30)
    closed = {"valid_to": later, "is_current": False}
    job = {"job": "silver", "table": table}

    def with_gap(rows: Rows) -> None:
        rows[table][0].update(closed)
        again(table, 0, valid_from=later + timedelta(days=1), valid_to=None, is_current=True)(rows)

    def with_wrong_sum(rows: Rows) -> None:
        next(row for row in rows["control.batches"] if row.items() >= job.items())["input"] = 3

    return [
        case(table, "rows_read", lambda rows: rows[f"bronze.{topic}"].clear()),
        case(table, "missing_coordinates", put(table, _offset=None)),
        case(table, "missing_keys lost_keys", lambda rows: rows[table][0].update({key: ""})),
        case(table, "missing_validity", put(table, is_deleted=None)),
        case(table, "backward_validity holes_and_overlaps wrong_current_marks", put(table, valid_to=FIRST_VERSION)),
        case(table, "wrong_current_marks keys_without_one_current_version", put(table, is_current=False)),
        case(table, "keys_without_one_current_version holes_and_overlaps", again(table)),
        case(table, "holes_and_overlaps", with_gap),
        case(table, "lost_keys", add(f"bronze.{topic}", bronze(at(0, 2, 1, topic), partner.encode(), b"{}"))),
        case(table, "runs_that_do_not_add_up", with_wrong_sum),
        case(table, "quarantined_per_thousand", many_quarantined(topic, good=190), "-warning"),
        case(table, "quarantined_per_thousand", many_quarantined(topic, good=0), "-critical"),
    ]


def many_quarantined(topic: str, good: int, bad: int = 150) -> Change:
    """Bad rows, and good ones which change nothing (for transactions: which are duplicates)."""

    def change(rows: Rows) -> None:
        for number in range(bad + good):
            coordinates = at(0, 1000 + number, 1, topic)
            key = {"customers": b"C00000001", "accounts": b"A00000001"}.get(topic, b"T1")
            rows[f"bronze.{topic}"].append(bronze(coordinates, key, b"{"))
            if number < bad:
                rows[f"silver.{topic}_quarantine"].append(quarantined(coordinates, key, b"{"))
            elif topic == "transactions":
                rows["silver.transactions_duplicates"].append(rows["silver.transactions_duplicates"][0] | coordinates)

    return change


T, D, L = "silver.transactions", "silver.transactions_duplicates", "silver.transactions_late"
TRANSACTIONS = [
    case(T, "rows_read rows_from_nowhere", lambda rows: rows["bronze.transactions"].clear()),
    case(T, "missing_coordinates rows_not_in_one_place rows_from_nowhere", put(T, _topic=None)),
    case(T, "missing_ids", put(T, transaction_id=""), "-empty"),
    case(T, "missing_ids", put(T, customer_id=None), "-null"),
    case(T, "malformed_ids", put(T, account_id="A1")),
    case(T, "malformed_ids", put(T, customer_id="C00000001\n"), "-line-end"),
    case(T, "missing_times", put(T, event_at=None)),
    case(T, "wrong_days", put(T, event_on=date(2013, 1, 3))),
    case(T, "unknown_types", put(T, type="credit")),
    case(T, "empty_operations", put(T, operation="")),
    case(T, "missing_amounts", put(T, balance=None)),
    case(T, "negative_amounts", put(T, amount=Decimal("-0.01"))),
    case(T, "repeated_ids", put(T, transaction_id="T1")),
    case(T, "rows_not_in_one_place", drop(T), "-lost"),
    case(T, "rows_not_in_one_place", add("silver.transactions_quarantine", quarantined(at(0, 0, 1), b"T", b"{}")), "-twice"),
    case(T, "rows_not_in_one_place rows_from_nowhere", put(T, _offset=77), "-counts-agree"),
    case(T, "rows_from_nowhere", add(T, transaction(5, at(3, 3, 2), "Debit", "1.00", who=1, hour=12))),
    case(T, "runs_that_do_not_add_up", add("control.batches", run_of("silver", T, 2, 2, input=3, output=2))),
    case(T, "quarantined_per_thousand", many_quarantined("transactions", good=190), "-warning"),
    case(T, "quarantined_per_thousand", many_quarantined("transactions", good=0), "-critical"),
    case(D, "missing_coordinates", put(D, _batch=None)),
    case(D, "missing_values", put(D, is_conflicting=None)),
    case(D, "repeated_coordinates", again(D)),
    case(D, "missing_firsts", put(D, first_offset=5)),
    case(D, "duplicates_before_firsts", put(D, _batch=1, _offset=-1)),
    case(L, "missing_coordinates rows_not_in_silver", put(L, _offset=None)),
    case(L, "missing_values", put(L, watermark_at=None)),
    case(L, "rows_in_time wrong_lateness", put(L, late_by_seconds=Decimal(0))),
    case(L, "rows_in_time", put(L, watermark_at=DAY + timedelta(hours=8), late_by_seconds=Decimal(0)), "-at-watermark"),
    case(L, "wrong_lateness", put(L, late_by_seconds=Decimal("3600.001"))),
    case(L, "repeated_coordinates", again(L)),
    case(L, "rows_not_in_silver", put(L, transaction_id="T4")),
]
DT, CA, ET, AB = "gold.daily_totals", "gold.customer_activity", "gold.enriched_transactions", "gold.account_balances"
GOLD = [
    case(DT, "missing_values", put(DT, window_end=None)),
    case(DT, "wrong_windows", put(DT, window_end=DAY + timedelta(days=2))),
    case(DT, "empty_windows", add(DT, daily("Debit", 0, "0.00") | {"window_start": LOADED, "window_end": LOADED + timedelta(days=1)})),
    case(DT, "unknown_types unequal_sums", put(DT, type="debit")),
    case(DT, "repeated_keys transactions_difference unequal_sums", again(DT)),
    case(DT, "transactions_difference", put(DT, transactions=3)),
    case(DT, "unequal_sums", put(DT, 0, amount=Decimal("9007199254741093.11")), "-by-one-cent"),
    case(DT, "transactions_difference unequal_sums", lambda rows: rows[DT].clear(), "-no-rows"),
    case(CA, "missing_values", put(CA, first_event_at=None)),
    case(CA, "wrong_figures", put(CA, first_event_at=LOADED)),
    case(CA, "repeated_keys customers_that_differ", put(CA, customer_id="C00000001")),
    case(CA, "customers_that_differ", put(CA, customer_id="C00000003")),
    case(CA, "transactions_difference", put(CA, transactions=2)),
    case(CA, "unequal_sums", put(CA, credits=Decimal("9007199254740992.00"))),
    case(CA, "customers_that_differ transactions_difference unequal_sums", lambda rows: rows[CA].clear(), "-no-rows"),
    case(ET, "missing_coordinates rows_that_differ_from_silver", put(ET, _topic=None)),
    case(ET, "missing_ids rows_that_differ_from_silver", put(ET, transaction_id=None)),
    case(ET, "unknown_statuses", put(ET, customer_status="Unknown")),
    case(ET, "unmasked_names", put(ET, 0, customer_full_name="A** Lovelace")),
    case(ET, "customers_where_none_matched", put(ET, customer_city="London")),
    case(ET, "matches_without_version", put(ET, 0, customer_version_from=None)),
    case(ET, "matches_without_version", put(ET, 0, customer_version_from=LOADED), "-later-version"),
    case(ET, "repeated_keys transactions_difference", again(ET)),
    case(ET, "rows_that_differ_from_silver", put(ET, amount=Decimal("9007199254740992.00")), "-amount"),
    case(ET, "rows_that_differ_from_silver", put(ET, 0, operation="Cash"), "-null"),
    case(ET, "rows_that_differ_from_silver transactions_difference", drop(ET)),
    case(AB, "missing_coordinates rows_that_are_not_the_last", put(AB, _offset=None)),
    case(AB, "missing_values unequal_sums", put(AB, credits=None)),
    case(AB, "wrong_figures transactions_difference", put(AB, transactions=0)),
    case(AB, "repeated_keys transactions_difference unequal_sums", again(AB)),
    case(AB, "accounts_that_differ rows_that_are_not_the_last", put(AB, account_id="A00000003")),
    case(AB, "transactions_difference", put(AB, transactions=2)),
    case(AB, "unequal_sums", put(AB, 0, debits=Decimal("40.00"))),
    case(AB, "rows_that_are_not_the_last", put(AB, 0, balance=Decimal("999.99")), "-balance"),
]

CASES = [
    *bronze_cases("transactions"),
    *quarantine_cases("transactions"),
    *dimension_cases("customers", "customer_id", "C00000002"),
    *dimension_cases("accounts", "account_id", "A00000002"),
    *TRANSACTIONS,
    *GOLD,
]
