"""The rules of gold.live_enriched_transactions: a plain step function over one customer. No Spark, no clock.

A transaction takes the version of its customer at its event time. Where there is none yet, it waits, and continues when one comes, or as
`unknown` when the watermark has passed its event time by so much. Each transaction comes out once. Times are microseconds since the epoch,
in UTC; watermarks, waits and timers are milliseconds.
"""

from bisect import bisect_right
from decimal import Decimal
from typing import NamedTuple

MATCHED, UNKNOWN, DELETED = "matched", "unknown", "deleted"
MILLISECOND = 1000


class Version(NamedTuple):
    """How a customer is from a time on, with the name masked; of a deletion the fields are null. Equal digests: nothing else differs.

    `since` is the valid_from of the first of the equal versions before it and itself; it counts for the first version that is kept, and is
    None for a deletion of a customer who is not known.
    """

    valid_from: int
    since: int | None
    full_name: str | None
    city: str | None
    state: str | None
    is_deleted: bool
    digest: str


class Transaction(NamedTuple):
    """A row of gold.live_transactions; the customer is the key."""

    at: int
    batch: int
    topic: str
    partition: int
    offset: int
    transaction_id: str
    account_id: str
    type: str
    operation: str | None
    amount: Decimal
    balance: Decimal


class Customer(NamedTuple):
    """What is kept of a customer: the versions that rows to come may need, by time; the rows that wait, in the order in which they came.

    `timer`: the event time at which `expire` is asked for; None for none.
    """

    timer: int | None = None
    versions: tuple[Version, ...] = ()
    waiting: tuple[Transaction, ...] = ()


class Enriched(NamedTuple):
    """A transaction that need not wait; the customer's columns are null unless it is matched."""

    row: Transaction
    status: str
    full_name: str | None = None
    city: str | None = None
    state: str | None = None
    version_from: int | None = None


Step = tuple[Customer, list[Enriched]]


def version(valid_from: int, full_name: str | None, city: str | None, state: str | None, is_deleted: bool, digest: str) -> Version:
    """A version as it comes."""
    return Version(valid_from, None if is_deleted else valid_from, full_name, city, state, is_deleted, digest)


def step(customer: Customer, event: Version | Transaction) -> Step:
    """The customer after a version or a transaction of it, and the transactions that wait no longer."""
    if isinstance(event, Transaction):
        if (enriched := _as_of(customer.versions, event)) is not None:
            return customer, [enriched]
        return customer._replace(waiting=(*customer.waiting, event)), []
    others = [each for each in customer.versions if each.valid_from != event.valid_from]  # of one time, the last that came stays
    if others and event.valid_from < others[0].valid_from and event.digest == others[0].digest and others[0].since is not None:
        event = event._replace(since=min(event.valid_from, others[0].since))  # the first that is kept stands for some before it
    customer = customer._replace(versions=tuple(sorted([*others, event], key=lambda each: each.valid_from)))
    found = [(row, _as_of(customer.versions, row)) for row in customer.waiting]
    return customer._replace(waiting=tuple(row for row, enriched in found if enriched is None)), [each for _, each in found if each]


def expire(customer: Customer, watermark: int, wait: int) -> Step:
    """The customer once no transaction at or before the watermark can come, and the transactions that have waited for as long as they may.

    Forgets the versions that no such transaction can need. Call it after the rows of a micro-batch, and when a timer fires.
    """
    due = [row for row in customer.waiting if deadline(row, wait) <= watermark]
    waiting = tuple(row for row in customer.waiting if deadline(row, wait) > watermark)
    timer = None if customer.timer is not None and customer.timer <= watermark else customer.timer
    return Customer(timer, _needed(customer.versions, watermark), waiting), [Enriched(row, UNKNOWN) for row in due]


def next_timer(customer: Customer, wait: int) -> int | None:
    """The event time at which the customer must be looked at, if it is not looked at earlier anyway; None for none."""
    due = min((deadline(row, wait) for row in customer.waiting), default=None)
    return due if due is not None and (customer.timer is None or customer.timer > due) else None


def deadline(row: Transaction, wait: int) -> int:
    """The watermark at which a transaction waits no longer."""
    return -(-row.at // MILLISECOND) + wait


def _as_of(versions: tuple[Version, ...], row: Transaction) -> Enriched | None:
    place = bisect_right(versions, row.at, key=lambda each: each.valid_from) - 1
    since = _since(versions, place) if place >= 0 else None
    if since is None:
        return None
    found = versions[place]
    return Enriched(row, DELETED) if found.is_deleted else Enriched(row, MATCHED, found.full_name, found.city, found.state, since)


def _since(versions: tuple[Version, ...], place: int) -> int | None:
    """From when on a version holds that may repeat the ones before it; None for a deletion of nothing."""
    while place > 0 and versions[place - 1].digest == versions[place].digest:
        place -= 1
    return versions[place].valid_from if place else versions[0].since


def _needed(versions: tuple[Version, ...], watermark: int) -> tuple[Version, ...]:
    """Without the versions that have ended at the watermark."""
    place = bisect_right(versions, watermark * MILLISECOND, key=lambda each: each.valid_from) - 1
    return versions if place <= 0 else (versions[place]._replace(since=_since(versions, place)), *versions[place + 1 :])
