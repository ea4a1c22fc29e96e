"""The cases of the gold tables; the others are in cases.py."""

from datetime import timedelta
from decimal import Decimal

from tests.support.changes import add, again, case, drop, put
from tests.support.warehouse import (
    DAY,
    LOADED,
    Rows,
    account_day,
    at,
    daily,
    hour,
    session,
    totals,
    transaction,
)

T = "silver.transactions"
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


def overlapping_sessions(rows: Rows) -> None:
    """What should be one session is two: both as long as they may be, together what the customer has."""
    rows[CS][0].update(session_end=hour(20), transactions=1, amount=Decimal("0.01"))
    rows[CS].append(session(1, 9, 22, 2, "140.10"))


def swapped_tie(rows: Rows) -> None:
    """Two customers of as many transactions, in the wrong order."""
    first, second = rows[WT]
    first.update(customer_id="C00000002", transactions=1)
    second.update(customer_id="C00000001", transactions=1)


def lost_credit(rows: Rows) -> None:
    """A credit of the second batch that is larger than one in the table."""
    rows[T].append(transaction(5, at(1, 1, 2), "Credit", "9007199254740993.01", who=2, hour=12))


def unbalanced_day(rows: Rows) -> None:
    """A debit on the day after, by which the balance did not move."""
    rows[T].append(transaction(5, at(1, 1, 2), "Debit", "1.00", who=1, hour=33))
    values = {"opening": Decimal("1000.00"), "difference": Decimal("1.00")}
    rows[AD].append(account_day(1, "0.00", "1.00", transactions=1, day=hour(33).date(), **values))


ST, CT, CS = "gold.sliding_totals", "gold.cumulative_totals", "gold.customer_sessions"
WT, LC, DP = "gold.weekly_top_customers", "gold.large_credits", "gold.debit_credit_pairs"
DM, DS, AD = "gold.district_minutes", "gold.debit_share", "gold.account_days"
OPENED = {"opening": Decimal("939.91"), "difference": Decimal("0.00")}  # balances, but the account's first day has no opening
MINUTE = timedelta(minutes=1)
MIDNIGHT = 8  # row of ST: the window of credits that starts at DAY; CT's rows are one short step each, then 10:00-12:00 and on
GOLD_OF_TIMES = [
    case(ST, "missing_values", put(ST, window_end=None)),
    case(ST, "wrong_windows", put(ST, window_end=hour(35)), "-end"),
    case(ST, "wrong_windows", put(ST, 0, window_start=hour(-15), window_end=hour(9)), "-odd-hour"),
    case(ST, "empty_windows", add(ST, totals("Debit", 12, 36, 0, "0.00"))),
    case(ST, "unknown_types unequal_sums", put(ST, type="debit")),
    case(ST, "repeated_keys transactions_difference unequal_sums", again(ST)),
    case(ST, "transactions_difference", put(ST, transactions=2)),
    case(ST, "unequal_sums", put(ST, -2, amount=Decimal("9007199254740993.01")), "-by-one-cent"),
    case(ST, "days_that_differ unequal_sums", put(ST, MIDNIGHT, amount=Decimal("9007199254741093.11"))),
    case(ST, "days_that_differ transactions_difference unequal_sums", lambda rows: rows[ST].clear(), "-no-rows"),
    case(CT, "missing_values skipped_steps days_that_differ", put(CT, window_end=None)),
    case(CT, "wrong_windows skipped_steps steps_that_differ", put(CT, 0, window_end=hour(9))),
    case(CT, "empty_windows steps_that_differ", put(CT, 0, transactions=0)),
    case(CT, "unknown_types skipped_steps steps_that_differ", put(CT, 0, type="credit")),
    case(CT, "repeated_keys skipped_steps", again(CT)),
    case(CT, "skipped_steps", drop(CT, 3)),
    case(CT, "falling_sums steps_that_differ", put(CT, 3, transactions=1)),
    case(CT, "days_that_differ", put(DT, amount=Decimal("40.02"))),
    case(CT, "steps_that_differ", drop(CT, 0)),
    case(CT, "days_that_differ steps_that_differ", lambda rows: rows[CT].clear(), "-no-rows"),
    case(CS, "missing_values unequal_sums", put(CS, amount=None)),
    case(CS, "wrong_figures unequal_sums", put(CS, amount=Decimal("-0.01"))),
    case(CS, "wrong_lengths customers_that_differ", put(CS, session_end=hour(22)), "-short"),
    case(CS, "wrong_lengths customers_that_differ", put(CS, 0, session_start=hour(-14)), "-long"),
    case(CS, "repeated_keys overlapping_sessions customers_that_differ transactions_difference unequal_sums", again(CS)),
    case(CS, "overlapping_sessions", overlapping_sessions),
    case(CS, "customers_that_differ", put(CS, customer_id="C00000003")),
    case(CS, "transactions_difference customers_that_differ", put(CS, 0, transactions=4)),
    case(CS, "unequal_sums", put(CS, amount=Decimal("9007199254740993.01"))),
    case(CS, "customers_that_differ transactions_difference unequal_sums", lambda rows: rows[CS].clear(), "-no-rows"),
    case(WT, "missing_values rows_that_differ_from_silver", put(WT, customer_id=None)),
    case(WT, "wrong_windows", put(WT, window_end=hour(0))),
    case(WT, "wrong_figures weeks_with_holes wrong_order rows_that_differ_from_silver", put(WT, rank=0)),
    case(WT, "repeated_keys repeated_customers", again(WT)),
    case(WT, "repeated_customers rows_that_differ_from_silver", put(WT, customer_id="C00000001")),
    case(WT, "weeks_with_holes rows_that_differ_from_silver", put(WT, rank=3)),
    case(WT, "wrong_order rows_that_differ_from_silver", put(WT, transactions=4), "-counts"),
    case(WT, "wrong_order rows_that_differ_from_silver", swapped_tie, "-tie"),
    case(WT, "rows_that_differ_from_silver", put(WT, 0, transactions=2)),
    case(WT, "rows_that_differ_from_silver", lambda rows: rows[WT].clear(), "-no-rows"),
    case(LC, "missing_coordinates rows_that_differ_from_silver", put(LC, _offset=None)),
    case(LC, "missing_values rows_that_differ_from_silver", put(LC, amount=None)),
    case(LC, "repeated_keys", again(LC)),
    case(LC, "rows_that_differ_from_silver", put(LC, balance=Decimal("1000.01")), "-balance"),
    case(LC, "rows_that_differ_from_silver", put(T, type="Debit"), "-debit"),
    case(LC, "lost_credits", lost_credit),
    case(DP, "missing_values rows_that_differ_from_silver", put(DP, customer_id=None)),
    case(DP, "wrong_times rows_that_differ_from_silver", put(DP, debit_at=hour(8) - MINUTE), "-early"),
    case(DP, "wrong_times rows_that_differ_from_silver", put(DP, debit_at=hour(9) + MINUTE), "-after"),
    case(DP, "repeated_keys", again(DP)),
    case(DP, "rows_that_differ_from_silver", put(DP, customer_id="C00000002"), "-customer"),
    case(DP, "rows_that_differ_from_silver lost_pairs", put(DP, debit_id="T2"), "-debit"),
    case(DP, "lost_pairs", drop(DP)),
    case(DM, "missing_values", put(DM, district_id=None)),
    case(DM, "wrong_minutes minutes_that_differ", put(DM, minute=hour(11) + timedelta(seconds=1))),
    case(DM, "wrong_figures averages_that_differ minutes_that_differ transactions_difference", put(DM, transactions=0)),
    case(DM, "wrong_averages averages_that_differ", put(DM, average_5m=Decimal("0.3"))),
    case(DM, "repeated_keys averages_that_differ minutes_that_differ transactions_difference unequal_sums", again(DM)),
    case(DM, "averages_that_differ", put(DM, average_5m=Decimal("0.4"))),
    case(DM, "minutes_that_differ", put(DM, minute=hour(12)), "-minute"),
    case(DM, "minutes_that_differ unequal_sums", put(DM, 0, amount=Decimal("0.02")), "-by-one-cent"),
    case(DM, "minutes_that_differ transactions_difference unequal_sums", lambda rows: rows[DM].clear(), "-no-rows"),
    case(DS, "missing_values", put(DS, debit_share_percent=None)),
    case(DS, "wrong_figures wrong_shares", put(DS, debit_share_percent=Decimal("100.0001"))),
    case(DS, "wrong_shares", put(DS, debit_share_percent=Decimal("49.9999"))),
    case(DS, "repeated_keys days_that_differ", again(DS)),
    case(DS, "falling_counts days_that_differ", again(DS, day=DAY.date() - timedelta(days=1), debits=3, credits=3)),
    case(DS, "days_that_differ", put(DS, day=DAY.date() + timedelta(days=1))),
    case(DS, "transactions_difference days_that_differ", put(DS, debits=3, credits=3)),
    case(DS, "days_that_differ transactions_difference", lambda rows: rows[DS].clear(), "-no-rows"),
    case(AD, "missing_values closings_that_are_not_the_last", put(AD, closing=None)),
    case(AD, "missing_values", put(AD, difference=Decimal("0.00")), "-difference"),
    case(AD, "wrong_figures days_that_differ", put(AD, transactions=0)),
    case(AD, "wrong_differences wrong_openings unbalanced_days_of_1000", put(AD, 0, **OPENED | {"difference": Decimal("0.01")})),
    case(AD, "repeated_keys wrong_openings", again(AD)),
    case(AD, "wrong_openings", put(AD, 0, **OPENED)),
    case(AD, "days_that_differ", put(AD, credits=Decimal("9007199254740993.01")), "-by-one-cent"),
    case(AD, "days_that_differ", drop(AD), "-lost"),
    case(AD, "closings_that_are_not_the_last", put(AD, closing=Decimal("1000.01"))),
    case(AD, "unbalanced_days_of_1000", unbalanced_day, "-warning"),
]
