"""What the producer would send: order, extra copies, late rows, and that each malformed copy breaks just its rule."""

import json
import re
from collections import Counter
from decimal import Decimal
from random import Random

import pytest

from include.producer import Disturbances, Message, Source, generated_sources, plan_messages
from include.producer.faults import BREAKING, INJECTED_HEADER, is_good, malformed_copy
from include.producer.files import account, customer, transaction
from include.producer.records import ACCOUNTS, CUSTOMERS, TOPICS, TRANSACTIONS, Record, encode

ROW = ("T00000001", "A00000001", "Credit", "Credit in Cash", "900.5", "-12.34", "2013-01-01T08:23:33", "C00000001")
CUSTOMER = ("C00000001", "Female", "1990-12-13", "1-2-3", "Zoë", "", "Smith", "p", "e", "a1", "", "c", "NM", "4", "18")
GOOD = {
    TRANSACTIONS: transaction(ROW),
    CUSTOMERS: customer(CUSTOMER),
    ACCOUNTS: account(("A00000576", "55", "Monthly Issuance", "2013-01-01")),
}


def rows(count: int) -> Source:
    """So many good transactions, one a second."""

    def row(place: int) -> Record:
        return transaction((f"T{place:08d}", *ROW[1:6], f"2013-01-01T{place // 3600:02d}:{place // 60 % 60:02d}:{place % 60:02d}", ROW[7]))

    return Source(TRANSACTIONS, lambda: map(row, range(count)), count)


def kinds(messages: list[Message]) -> Counter[str]:
    return Counter((message.injected or "plain").split(":")[0] for message in messages)


def event_time(message: Message) -> int:
    return int(json.loads(message.value or b"")["eventTime"])


def test_without_disturbances_every_row_goes_out_once_in_order() -> None:
    assert [message.key for message in plan_messages([rows(3)])] == [b"T00000000", b"T00000001", b"T00000002"]


def test_same_seed_same_messages_another_seed_others() -> None:
    def plan(seed: int) -> list[Message]:
        return list(plan_messages(generated_sources(2000, seed=5), Disturbances(0.1, 0.1, 0.1, shuffle_seconds=9, seed=seed)))

    assert plan(1) == plan(1)
    assert plan(1) != plan(2)


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_copies_are_extra_and_late_rows_are_not(share: float) -> None:
    messages = list(plan_messages([rows(5000)], Disturbances(duplicates=share, malformed=share, late=share)))
    found = kinds(messages)
    assert found["plain"] + found["late"] == 5000
    for kind in ("duplicate", "malformed", "late"):
        assert found[kind] == pytest.approx(5000 * share, abs=150 if 0 < share < 1 else 0)
    good = Counter(message.key for message in messages if message.injected in (None, "late"))
    assert len(good) == 5000


def test_the_three_topics_are_disturbed_in_the_order_customers_accounts_transactions() -> None:
    messages = list(plan_messages(generated_sources(4000), Disturbances(0.5, 0.5, 0.0)))
    order = [message.topic for message in messages]
    assert order == sorted(order, key=TOPICS.index)
    for topic in TOPICS:
        assert set(kinds([message for message in messages if message.topic == topic])) == {"plain", "duplicate", "malformed"}


def test_late_rows_and_their_copies_come_after_all_others_of_all_topics() -> None:
    messages = list(plan_messages(generated_sources(4000), Disturbances(duplicates=0.3, malformed=0.3, late=0.3)))
    first_late = next(place for place, message in enumerate(messages) if message.injected == "late")
    late_keys = {message.key for message in messages[first_late:]}
    assert {message.topic for message in messages[first_late:]} == set(TOPICS)
    assert set(kinds(messages[first_late:])) == {"late", "duplicate"}
    assert not late_keys & {message.key for message in messages[:first_late] if not (message.injected or "").startswith("malformed")}


def test_a_duplicate_follows_its_row_and_is_identical_or_differs_in_the_amount() -> None:
    first: dict[bytes, bytes | None] = {}
    found = Counter[str]()
    for message in plan_messages([rows(5000)], Disturbances(duplicates=1.0)):
        if message.injected is None:
            first[message.key] = message.value
            continue
        found[message.injected] += 1
        if message.injected == "duplicate":
            assert message.value == first[message.key]
        else:
            copy, original = (json.loads(value or b"", parse_float=Decimal) for value in (message.value, first[message.key]))
            assert copy.pop("amount") != original.pop("amount")
            assert copy == original
    assert found["duplicate"] + found["duplicate:conflicting"] == 5000
    assert found["duplicate:conflicting"] == pytest.approx(500, abs=100)


def test_shuffled_rows_leave_their_place_by_at_most_the_given_seconds() -> None:
    times = [event_time(message) for message in plan_messages([rows(5000)], Disturbances(shuffle_seconds=30))]
    assert len(set(times)) == 5000
    assert times != sorted(times)
    newest = 0
    for time in times:
        newest = max(newest, time)
        assert newest - time <= 30_000


def test_event_time_now_is_the_clock_when_the_row_is_taken() -> None:
    ticks = iter(range(1_700_000_000_000, 1_700_000_010_000, 1000))
    messages = list(plan_messages([rows(3)], Disturbances(event_time="now"), clock=lambda: next(ticks)))
    assert [event_time(message) for message in messages] == [1_700_000_000_000, 1_700_000_001_000, 1_700_000_002_000]
    assert json.loads(messages[1].value or b"")["eventTimeFormatted"] == "2023-11-14 22:13:21.000"


def test_event_time_now_leaves_a_time_that_cannot_be_read_and_the_dimensions_alone() -> None:
    unreadable = transaction((*ROW[:6], "2013-02-01T15:60:16", ROW[7]))
    sources = [
        Source(CUSTOMERS, lambda: iter([GOOD[CUSTOMERS]]), 1),
        Source(TRANSACTIONS, lambda: iter([unreadable]), 1),
    ]
    messages = list(plan_messages(sources, Disturbances(event_time="now"), clock=lambda: 1_700_000_000_000))
    assert json.loads(messages[0].value or b"")["updateTime"] == 1356912000000
    assert messages[1].value == encode(unreadable)


# The contract's rules, written again with Python's own JSON reader.


def broken_rules(message: Message) -> set[str]:
    try:
        text = (message.value if message.value is not None else b"").decode("utf-8")
        fields = json.loads(text, parse_float=Decimal, parse_constant=lambda name: 1 / 0)
        assert isinstance(fields, dict)
    except (ValueError, AssertionError, ZeroDivisionError):
        return {"parseable"}
    rules = {TRANSACTIONS: transaction_rules, CUSTOMERS: dimension_rules, ACCOUNTS: dimension_rules}[message.topic](message, fields)
    return {rule for rule, holds in rules.items() if not holds}


def is_number(value: object) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def is_money(value: object) -> bool:
    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        return False
    amount = Decimal(value)
    return amount == round(amount, 2) and abs(amount) < 10**16


def is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 946684800000 <= value <= 1_800_000_000_000


def is_text(value: object, pattern: str) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def transaction_rules(message: Message, fields: dict[str, object]) -> dict[str, bool]:
    amount = fields.get("amount")
    return {
        "transaction_id_present": is_text(fields.get("transactionId"), ".+"),
        "account_id_format": is_text(fields.get("accountId"), "A[0-9]{8}"),
        "customer_id_format": is_text(fields.get("customerId"), "C[0-9]{8}"),
        "event_time_plausible": is_time(fields.get("eventTime")),
        "type_known": fields.get("type") in ("Credit", "Debit"),
        "operation_text": fields.get("operation") is None or isinstance(fields["operation"], str),
        "amount_not_negative": isinstance(amount, int | Decimal) and amount >= 0,
        "amount_scale": is_money(amount),
        "balance_scale": is_money(fields.get("balance")),
    }


def dimension_rules(message: Message, fields: dict[str, object]) -> dict[str, bool]:
    is_customer = message.topic == CUSTOMERS
    date = fields.get("birthDate" if is_customer else "creationDate")
    district = fields.get("districtId")
    return {
        "key_present": message.key != b"",
        "key_matches": message.key.decode() == fields.get("customerId" if is_customer else "accountId"),
        "update_time_plausible": is_time(fields.get("updateTime")),
        "district_id_whole": is_text(district, "-?[0-9]+") if is_customer else isinstance(district, int),
        "birth_date_valid" if is_customer else "creation_date_valid": is_text(date, r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9])"),
    }


def test_the_good_rows_break_no_rule() -> None:
    for topic, record in GOOD.items():
        assert is_good(record)
        assert broken_rules(Message(topic, record.key, encode(record))) == set()


@pytest.mark.parametrize("topic", TOPICS)
def test_each_mutation_breaks_the_rule_it_is_named_after_and_no_other(topic: str) -> None:
    record = GOOD[topic]
    assert BREAKING[topic]
    for rule, mutations in BREAKING[topic].items():
        assert mutations
        for place, mutate in enumerate(mutations):
            assert broken_rules(mutate(record)) == {rule}, f"{rule} {place}"


def test_there_is_a_mutation_for_every_rule_of_transactions() -> None:
    fields = transaction_rules(Message(TRANSACTIONS, b"", b""), {})
    assert set(BREAKING[TRANSACTIONS]) == {"parseable", *fields}


def test_amounts_that_are_zero_or_huge_can_be_broken_too() -> None:
    for amount in ("0", "0.00", "9999999999999999.99"):
        record = GOOD[TRANSACTIONS].replaced(amount=amount, balance=amount)
        for rule in ("amount_not_negative", "amount_scale", "balance_scale"):
            assert [broken_rules(mutate(record)) for mutate in BREAKING[TRANSACTIONS][rule]] == [{rule}] * len(BREAKING[TRANSACTIONS][rule])


def test_no_malformed_copy_of_a_row_that_breaks_a_rule_itself() -> None:
    for bad in ({"eventTime": "null"}, {"amount": "1.234"}, {"amount": "-1"}, {"type": '"x"'}, {"accountId": '"A1"'}):
        assert malformed_copy(GOOD[TRANSACTIONS].replaced(**bad), Random(1)) is None


def test_injected_messages_say_what_was_done_in_the_header_text() -> None:
    messages = plan_messages([rows(2000)], Disturbances(duplicates=0.5, malformed=1.0, late=0.1))
    malformed = {f"malformed:{rule}" for rule in BREAKING[TRANSACTIONS]}
    assert {message.injected for message in messages} == {None, "late", "duplicate", "duplicate:conflicting", *malformed}
    assert INJECTED_HEADER == "ledger-injected"
