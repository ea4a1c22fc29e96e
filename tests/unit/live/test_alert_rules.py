"""Which rows of an account raise which alerts: timelines, the moments at which a rule begins to hold, and any cut of the input."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

from spark_jobs.live.products.alert_rules import (
    ACTIVE_ROWS,
    DAY,
    MANY_DEBITS,
    MEAN_DEBITS,
    MUCH_MONEY,
    SILENCE,
    UNUSUAL_DEBIT,
    WINDOW,
    Account,
    Alert,
    Limits,
    Row,
    expire,
    next_timer,
    take,
)
from tests.support import live_reference as reference

LIMITS = Limits(debits=3, money=Decimal(1000), times=5, silence_days=30, lateness=10_000)
MINUTE = 60_000
Timed = tuple[str, int, str]  # id, time, amount


def row(name: str, at: int, amount: str = "1.00") -> Row:
    return Row(at, name, "transactions", 0, int.from_bytes(name.encode()[-6:]), Decimal(amount))


def debits(*rows: Timed, limits: Limits = LIMITS, account: Account = Account()) -> list[Alert]:  # noqa: B008  (it is frozen)
    raised = []
    for each in rows:
        account, alerts = take(account, row(*each), True, limits)
        raised += alerts
    return raised


def told(alerts: Iterable[Alert]) -> list[tuple[str, str]]:
    """Kind, and the ids of the causing rows."""
    return [(alert.kind, " ".join(cause.transaction_id for cause in alert.caused_by)) for alert in alerts]


@dataclass(frozen=True)
class Case:
    """Debits as they come, and what they raise."""

    says: str
    rows: Sequence[Timed]
    raised: Sequence[tuple[str, str]] = field(default=())


SMALL = "1.00"
CASES = (
    Case("three debits in 10 minutes are in order", [("a", 0, SMALL), ("b", 1, SMALL), ("c", 2, SMALL)]),
    Case(
        "the fourth is one too many, at the last moment that counts",
        [("a", 1, SMALL), ("b", 2, SMALL), ("c", 3, SMALL), ("d", WINDOW, SMALL)],
        [(MANY_DEBITS, "a b c d")],
    ),
    Case("a debit exactly 10 minutes before is outside", [("a", 0, SMALL), ("b", 2, SMALL), ("c", 3, SMALL), ("d", WINDOW, SMALL)]),
    Case(
        "what stands in an alert does not count for the next one of its kind",
        [(name, number, SMALL) for number, name in enumerate("abcdefgh")],
        [(MANY_DEBITS, "a b c d"), (MANY_DEBITS, "e f g h")],
    ),
    Case(
        "a row that comes out of order completes the window of a later one",
        [("a", 5 * MINUTE, SMALL), ("c", 14 * MINUTE, SMALL), ("d", 14 * MINUTE + 9000, SMALL), ("b", 14 * MINUTE + 2000, SMALL)],
        [(MANY_DEBITS, "a c b d")],
    ),
    Case("exactly the allowed money is in order", [("a", 0, "999.99"), ("b", 1, "0.01")]),
    Case("a cent more is not", [("a", 0, "999.99"), ("b", 1, "0.02")], [(MUCH_MONEY, "a b")]),
    Case("one debit can be too much", [("a", 0, "1000.01")], [(MUCH_MONEY, "a")]),
    Case(
        "money in an alert does not count for the next one",
        [("a", 0, "900"), ("b", 1, "200"), ("c", 2, "900")],
        [(MUCH_MONEY, "a b")],
    ),
    Case(
        "the kinds do not take rows from each other",
        [("a", 0, "300"), ("b", 1, "300"), ("c", 2, "300"), ("d", 3, "300")],
        [(MANY_DEBITS, "a b c d"), (MUCH_MONEY, "a b c d")],
    ),
    Case(
        "five times the mean is in order, a cent more is not, and counts for the mean after it",
        [*((f"m{n}", n * WINDOW, "10.00") for n in range(MEAN_DEBITS)), ("a", 100 * WINDOW, "50.00")],
    ),
    Case(
        "a cent more is not",
        [*((f"m{n}", n * WINDOW, "10.00") for n in range(MEAN_DEBITS)), ("a", 100 * WINDOW, "50.01"), ("b", 102 * WINDOW, "68.18")],
        [(UNUSUAL_DEBIT, "a")],
    ),
    Case("nine debits make no mean", [*((f"m{n}", n * WINDOW, "10.00") for n in range(MEAN_DEBITS - 1)), ("a", 100 * WINDOW, "900.00")]),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says.replace(" ", "-"))
def test_what_debits_raise(case: Case) -> None:
    assert told(debits(*case.rows)) == list(case.raised)


def test_an_alert_says_what_was_found_and_what_is_allowed() -> None:
    many, much = debits(*((name, number, "300.10") for number, name in enumerate("abcd")))
    assert (many.raised_at, many.found, many.allowed) == (3, Decimal(4), Decimal(3))
    assert (much.raised_at, much.found, much.allowed) == (3, Decimal("1200.40"), Decimal(1000))
    (unusual,) = debits(*((f"m{n}", n * WINDOW, "1.01") for n in range(MEAN_DEBITS)), ("a", 100 * WINDOW, "6.00"))
    assert (unusual.found, unusual.allowed) == (Decimal("6.00"), Decimal("5.05"))


def test_the_id_of_an_alert_is_that_of_its_kind_and_causing_records() -> None:
    one, two = (Alert(MUCH_MONEY, at, Decimal(1), Decimal(2), (row("a", at), row("b", 2))) for at in (1, 7))
    assert one.alert_id == two.alert_id == one._replace(caused_by=one.caused_by[::-1]).alert_id
    assert len({one.alert_id, one._replace(kind=MANY_DEBITS).alert_id, one._replace(caused_by=one.caused_by[:1]).alert_id}) == 3


def test_a_credit_counts_for_no_rule_but_silence() -> None:
    account = Account()
    for number in range(20):
        account, alerts = take(account, row(f"c{number}", number, "5000"), False, LIMITS)
        assert alerts == []
    assert (account.rows, account.debits, account.recent) == (20, 0, ())
    assert next_timer(account, LIMITS) == 19 + 30 * DAY


def active(last: int = 0, count: int = ACTIVE_ROWS) -> Account:
    account = Account()
    for number in range(count):
        account, _ = take(account, row(f"r{number}", last - (count - 1 - number) * DAY), False, LIMITS)
    return account


def test_an_active_account_is_silent_once_the_watermark_has_passed_its_days() -> None:
    account = active()
    assert expire(account, 30 * DAY - 1, LIMITS)[1] == []
    silent, (alert,) = expire(account, 30 * DAY, LIMITS)
    assert (alert.kind, alert.raised_at, told([alert])) == (SILENCE, 30 * DAY, [(SILENCE, "r9")])
    assert expire(silent, 90 * DAY, LIMITS)[1] == []
    assert next_timer(silent, LIMITS) is None
    again, alerts = take(silent, row("x", 40 * DAY), True, LIMITS)
    assert (alerts, next_timer(again, LIMITS)) == ([], 70 * DAY)
    assert expire(active(count=ACTIVE_ROWS - 1), 90 * DAY, LIMITS)[1] == []


@pytest.mark.parametrize("count", [1, ACTIVE_ROWS])
def test_of_an_account_that_has_been_silent_for_long_three_numbers_are_kept(count: int) -> None:
    """Also of one that was never active, for which a timer fires, too."""
    account = active(count=count)
    for place in range(count):
        account, _ = take(account, row(f"d{place}", place), True, LIMITS)
    assert next_timer(account, LIMITS) == (count - 1) + 30 * DAY
    kept, _ = expire(account, (count - 1) + 30 * DAY - 1, LIMITS)
    assert kept.last is not None
    left, _ = expire(account, (count - 1) + 30 * DAY, LIMITS)
    assert (left.last, left.recent, left.timer, next_timer(left, LIMITS)) == (None, (), None, None)
    assert (left.rows, left.debits, left.debited) == (2 * count, count, Decimal(count))


def test_a_row_that_ends_a_silence_before_its_timer_fires_raises_the_same_alert() -> None:
    (by_timer,) = expire(active(), 35 * DAY, LIMITS)[1]
    account, (by_row,) = take(active(), row("x", 30 * DAY + 1), False, LIMITS)
    assert by_row == by_timer
    assert expire(account, 35 * DAY, LIMITS)[1] == []
    assert take(active(), row("x", 30 * DAY), False, LIMITS)[1] == []


def test_a_timer_is_asked_for_when_none_waits_or_one_that_is_too_late() -> None:
    account = active()
    assert next_timer(account, LIMITS) == 30 * DAY
    waiting = account._replace(timer=30 * DAY)
    assert next_timer(waiting, LIMITS) is None
    assert next_timer(take(waiting, row("x", DAY), True, LIMITS)[0], LIMITS) is None  # it fires, and another one is asked for
    moved_on, alerts = expire(take(waiting, row("x", DAY), True, LIMITS)[0], 30 * DAY, LIMITS)
    assert (alerts, next_timer(moved_on, LIMITS)) == ([], 31 * DAY)
    assert next_timer(waiting, LIMITS._replace(silence_days=7)) == 7 * DAY


def test_the_state_holds_the_debits_of_a_window_and_the_lateness_and_no_more() -> None:
    account, most = Account(), 0
    for second in range(0, 7200, 30):
        account, _ = take(account, row(f"d{second}", second * 1000), True, LIMITS)
        most = max(most, len(account.recent))
    assert most == (WINDOW + LIMITS.lateness) // 30_000 + 1
    assert expire(account, 2 * 7_200_000, LIMITS)[0].recent == ()


@pytest.mark.parametrize("seed", range(20))
def test_the_same_alerts_however_micro_batches_cut_the_batches_of_bronze(seed: int) -> None:
    """As Spark does it: the rows of some batches, then the timers that the watermark before them has passed; at last all that is due."""
    chance = random.Random(seed)
    batches, newest = [], 0
    for number in range(30):
        start = newest + chance.choice((0, 60_000, 20 * DAY, 31 * DAY))
        low = max(0, newest - LIMITS.lateness + 1)  # a row at the watermark, or before it, would be late
        times = [max(low, start + chance.randint(-9_000, 15 * MINUTE)) for _ in range(chance.randint(1, 6))]
        newest = max(newest, *times)
        batches.append(
            [(row(f"{number}-{place}", at, str(chance.randint(1, 700))), chance.random() < 0.8) for place, at in enumerate(times)]
        )
    whole = run(batches, [0, len(batches)])
    assert {SILENCE, MANY_DEBITS, MUCH_MONEY} <= {alert.kind for alert in whole}
    assert len({alert.alert_id for alert in whole}) == len(whole)
    assert Counter(map(summary, whole)) == by_plain_loops(batches, newest - LIMITS.lateness)
    for _ in range(5):
        cuts = sorted({0, len(batches), *chance.sample(range(len(batches)), chance.randint(1, 12))})
        assert sorted(run(batches, cuts)) == sorted(whole)


def summary(alert: Alert) -> tuple[Any, ...]:
    causes = tuple(cause.transaction_id for cause in alert.caused_by)
    return alert.alert_id, alert.kind, "A", alert.raised_at, alert.found, alert.allowed, causes


def by_plain_loops(batches: Sequence[Sequence[tuple[Row, bool]]], watermark: int) -> Counter[tuple[Any, ...]]:
    """The alerts of one who forgets nothing."""
    limits = reference.Limits(LIMITS.lateness, 0, LIMITS.debits, LIMITS.money, LIMITS.times, LIMITS.silence)
    rows = [
        reference.Paid(number, 0, each.offset, each.at, each.transaction_id, "A", "C", "Debit" if is_debit else "Credit", each.amount, True)
        for number, batch in enumerate(batches)
        for each, is_debit in batch
    ]
    return reference.alerts(rows, limits, watermark)


def run(batches: Sequence[Sequence[tuple[Row, bool]]], cuts: Sequence[int]) -> list[Alert]:
    account, raised, watermark, newest = Account(), list[Alert](), 0, 0
    timers = set[int]()

    def fire() -> None:
        nonlocal account, raised
        for timer in sorted(each for each in timers if each <= watermark):
            timers.remove(timer)
            account, alerts = expire(account, watermark, LIMITS)
            raised += alerts
            register()

    def register() -> None:
        nonlocal account
        if (due := next_timer(account, LIMITS)) is not None:
            assert due > watermark, "Spark would refuse such a timer"
            timers.add(due)
            account = account._replace(timer=due)

    for first, end in pairwise(cuts):
        for batch in batches[first:end]:
            for each, is_debit in sorted(batch, key=lambda pair: (pair[0].at, pair[0].coordinates)):
                account, alerts = take(account, each, is_debit, LIMITS)
                raised += alerts
                newest = max(newest, each.at)
        register()
        fire()
        watermark = newest - LIMITS.lateness
    fire()
    return raised
