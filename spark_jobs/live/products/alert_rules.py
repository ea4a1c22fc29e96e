"""The rules of gold.live_alerts: a plain step function over one account. No Spark, no clock, no floats.

Rows of an account come batch by batch of bronze, within a batch by event time (`IN_ORDER`). Two steps move an account on: `take` a row, and
`expire`, when the watermark has moved. Both return the account as it is then, and the alerts that this raises. All times are milliseconds
since the epoch, in UTC; all money is Decimal.

A row that is in an alert does not count for a later one of the same kind: each alert has a cause of its own.
"""

import hashlib
import json
from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

MANY_DEBITS, MUCH_MONEY, UNUSUAL_DEBIT, SILENCE = KINDS = ("many_debits", "much_money", "unusual_debit", "silence")
WINDOW = 10 * 60_000  # (end - 10 minutes, end]
MEAN_DEBITS = 10  # so many earlier debits make a mean
ACTIVE_ROWS = 10  # an account with so many rows is, or was, active
DAY = 86_400_000


class Limits(NamedTuple):
    """What is still in order: debits and money within 10 minutes, times the mean, days without a row. `lateness` is in milliseconds."""

    debits: int
    money: Decimal
    times: int
    silence_days: int
    lateness: int

    @property
    def silence(self) -> int:
        """In milliseconds."""
        return self.silence_days * DAY


class Row(NamedTuple):
    """A transaction of the account. `is_counted`: whether it is in an alert of many_debits; `is_summed`: of much_money."""

    at: int
    transaction_id: str
    topic: str
    partition: int
    offset: int
    amount: Decimal
    is_counted: bool = False
    is_summed: bool = False

    @property
    def coordinates(self) -> tuple[str, int, int]:
        """Of its Kafka record."""
        return self.topic, self.partition, self.offset


class Account(NamedTuple):
    """What is remembered of an account: the row of its largest event time, counts, and the debits that may still share a window.

    The counts and the sum have no end: the mean is that of all debits. The rest is forgotten when the account has been silent for the days
    that are allowed: what is left then is a few numbers.

    `is_silent`: its silence after the last row was raised. `timer`: the event time at which `expire` is asked for; None for none.
    """

    rows: int = 0
    debits: int = 0
    debited: Decimal = Decimal("0.00")
    is_silent: bool = False
    timer: int | None = None
    last: Row | None = None
    recent: tuple[Row, ...] = ()


class Alert(NamedTuple):
    """One alert: what was found, what is allowed, and the rows that caused it, by event time. `raised_at` is an event time."""

    kind: str
    raised_at: int
    found: Decimal
    allowed: Decimal
    caused_by: tuple[Row, ...]

    @property
    def alert_id(self) -> str:
        """The same for the same kind and causing records, whenever and in whichever batch it is raised: 32 hexadecimal digits."""
        cause = json.dumps([self.kind, sorted(row.coordinates for row in self.caused_by)])
        return hashlib.sha256(cause.encode()).hexdigest()[:32]


Step = tuple[Account, list[Alert]]


def take(account: Account, row: Row, is_debit: bool, limits: Limits) -> Step:
    """The account after a row of it, which has come in order, and the alerts that the row raises."""
    account, alerts = _end_silence(account, row.at, limits)
    if account.last is None or row.at >= account.last.at:
        account = account._replace(last=row, is_silent=False)
    account = account._replace(rows=account.rows + 1)
    if not is_debit:
        return account, alerts
    if account.debits >= MEAN_DEBITS and row.amount * account.debits > limits.times * account.debited:
        allowed = round(limits.times * account.debited / account.debits, 2)
        alerts.append(Alert(UNUSUAL_DEBIT, row.at, row.amount, allowed, (row,)))
    recent, in_windows = _in_windows((*account.recent, row), row, limits)
    account = account._replace(debits=account.debits + 1, debited=account.debited + row.amount, recent=recent)
    return _forget(account, _newest(account) - limits.lateness), alerts + in_windows


def expire(account: Account, watermark: int, limits: Limits) -> Step:
    """The account once no row at or before the watermark can come, and its silence, if it was active and has been silent for so long.

    A row that comes after such a silence is later than the last one, which is forgotten, also of an account that was never active.
    """
    account, alerts = _end_silence(account, watermark + 1, limits)
    account = _forget(account._replace(is_silent=account.is_silent or bool(alerts), timer=None), watermark)
    if account.last is not None and account.last.at + limits.silence <= watermark:
        account = account._replace(last=None)
    return account, alerts


def next_timer(account: Account, limits: Limits) -> int | None:
    """The event time at which the account must be looked at without a row, if it is not looked at earlier anyway; None for none."""
    if account.last is None or account.is_silent:
        return None
    due = account.last.at + limits.silence
    return due if account.timer is None or account.timer > due else None


def _newest(account: Account) -> int:
    return account.last.at if account.last else 0


def _end_silence(account: Account, now: int, limits: Limits) -> Step:
    """The silence after the last row, if `now` lies more than the allowed days after it."""
    last = account.last
    if last is None or account.is_silent or account.rows < ACTIVE_ROWS or now <= last.at + limits.silence:
        return account, []
    days = Decimal(limits.silence_days)
    return account, [Alert(SILENCE, last.at + limits.silence, days, days, (last,))]


def _in_windows(recent: tuple[Row, ...], row: Row, limits: Limits) -> tuple[tuple[Row, ...], list[Alert]]:
    """The debits, of which some may be marked now, and the alerts of the windows of 10 minutes in which the row lies.

    Such a window ends at the row, or at a later debit that came before it.
    """
    alerts = []
    for end in sorted({debit.at for debit in recent if row.at <= debit.at < row.at + WINDOW}):
        within = [debit for debit in recent if end - WINDOW < debit.at <= end]
        uncounted = _by_time(debit for debit in within if not debit.is_counted)
        if len(uncounted) > limits.debits:
            alerts.append(Alert(MANY_DEBITS, uncounted[-1].at, Decimal(len(uncounted)), Decimal(limits.debits), uncounted))
            recent = tuple(debit._replace(is_counted=True) if debit in uncounted else debit for debit in recent)
        unsummed = _by_time(debit for debit in recent if end - WINDOW < debit.at <= end and not debit.is_summed)
        money = sum((debit.amount for debit in unsummed), Decimal(0))
        if money > limits.money:
            alerts.append(Alert(MUCH_MONEY, unsummed[-1].at, money, limits.money, unsummed))
            recent = tuple(debit._replace(is_summed=True) if debit in unsummed else debit for debit in recent)
    return recent, alerts


def _by_time(debits: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(sorted(debits, key=lambda debit: (debit.at, debit.coordinates)))


def _forget(account: Account, watermark: int) -> Account:
    """Without the debits that share no window with a row after the watermark."""
    return account._replace(recent=tuple(debit for debit in account.recent if debit.at > watermark - WINDOW))
