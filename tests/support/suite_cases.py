"""One case for each way in which a table can be wrong: what is broken, and which expectations of which table must say so."""

from datetime import date, timedelta
from decimal import Decimal

from tests.support.changes import Case, Change, add, again, case, drop, put
from tests.support.gold_cases import GOLD, GOLD_OF_TIMES
from tests.support.warehouse import (
    DAY,
    FIRST_VERSION,
    Rows,
    at,
    bronze,
    quarantined,
    run_of,
    transaction,
)
from tests.support.warning_cases import many_conflicting, stale, strangers, volume_cases


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
        case(table, "missing_rules unknown_rules", put(table, broken_rules=["parseable", ""]), "-nameless"),
        case(table, "unknown_rules", put(table, broken_rules=["parseable", "unheard_of"])),
        case(table, "repeated_coordinates", again(table)),
        case(table, "rows_that_differ_from_bronze", put(table, value=b"other"), "-value"),
        case(table, "rows_that_differ_from_bronze", put(table, key=b"other"), "-key"),
        case(table, "rows_that_differ_from_bronze", put(table, _offset=99), "-coordinates"),
    ]


def dimension_cases(topic: str, key: str, partner: str) -> list[Case]:
    table = f"silver.{topic}"
    later = FIRST_VERSION + timedelta(days=30)
    job = {"job": "silver", "table": table}

    def with_gap(rows: Rows) -> None:
        put(table, 0, valid_to=later, is_current=False)(rows)
        again(table, 0, valid_from=later + timedelta(days=1), valid_to=None, is_current=True)(rows)

    def with_wrong_sum(rows: Rows) -> None:
        next(row for row in rows["control.batches"] if row.items() >= job.items())["input"] = 3

    def with_overlap(rows: Rows) -> None:
        put(table, 0, valid_to=later, is_current=False)(rows)
        again(table, 0, valid_from=later - timedelta(days=1), valid_to=None, is_current=True)(rows)

    def with_two_ends(rows: Rows) -> None:
        again(table, 0, valid_from=later)(rows)

    return [
        case(table, "rows_read", lambda rows: rows[f"bronze.{topic}"].clear()),
        case(table, "missing_coordinates", put(table, _offset=None)),
        case(table, "missing_keys lost_keys", lambda rows: rows[table][0].update({key: ""})),
        case(table, "missing_validity", put(table, is_deleted=None)),
        case(table, "backward_validity holes_and_overlaps wrong_current_marks", put(table, valid_to=FIRST_VERSION)),
        case(table, "wrong_current_marks keys_without_one_current_version", put(table, is_current=False)),
        case(table, "keys_without_one_current_version holes_and_overlaps", again(table)),
        case(table, "holes_and_overlaps", with_gap, "-hole"),
        case(table, "holes_and_overlaps", with_overlap, "-overlap"),
        case(table, "holes_and_overlaps keys_without_one_current_version", with_two_ends, "-never-ended"),
        case(
            table,
            "holes_and_overlaps keys_without_one_current_version",
            put(table, valid_to=later, is_current=False),
            "-ended",
        ),
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
    *volume_cases(T),
    case(T, "unknown_accounts_per_thousand", strangers(200, customer_id="C00000001"), "-warning"),
    case(T, "unknown_customers_per_thousand", strangers(200, account_id="A00000001"), "-warning"),
    case(D, "missing_coordinates", put(D, _batch=None)),
    case(D, "missing_values", put(D, is_conflicting=None)),
    case(D, "repeated_coordinates", again(D)),
    case(D, "missing_firsts", put(D, first_offset=5)),
    case(D, "duplicates_before_firsts", put(D, _batch=1, _offset=-1)),
    case(D, "conflicting_per_thousand", many_conflicting(others=3000), "-warning"),
    case(D, "conflicting_per_thousand", many_conflicting(others=1500), "-critical"),
    case(L, "missing_coordinates rows_not_in_silver", put(L, _offset=None)),
    case(L, "missing_values", put(L, watermark_at=None)),
    case(L, "rows_in_time wrong_lateness", put(L, late_by_seconds=Decimal(0))),
    case(L, "rows_in_time", put(L, watermark_at=DAY + timedelta(hours=8), late_by_seconds=Decimal(0)), "-at-watermark"),
    case(L, "wrong_lateness", put(L, late_by_seconds=Decimal("3600.001"))),
    case(L, "repeated_coordinates", again(L)),
    case(L, "rows_not_in_silver", put(L, transaction_id="T4")),
]
B = "bronze.transactions"
CASES = [
    *bronze_cases("transactions"),
    *volume_cases(B),
    case(B, "seconds_past_freshness", stale, "-warning"),
    *quarantine_cases("transactions"),
    *dimension_cases("customers", "customer_id", "C00000002"),
    *dimension_cases("accounts", "account_id", "A00000002"),
    *TRANSACTIONS,
    *GOLD,
    *GOLD_OF_TIMES,
]
