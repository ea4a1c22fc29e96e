"""How a transaction goes on with its customer: timelines of one customer, and a history that comes in any order."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import pytest

from spark_jobs.live.products.enrichment_rules import Customer, Enriched, Transaction, Version, deadline, expire, next_timer, step, version

WAIT = 60_000  # milliseconds
SECOND = 1_000_000  # microseconds
Going = list[tuple[str, str, str | None, int | None]]


def paid(name: str, at: float) -> Transaction:
    """A transaction, by seconds."""
    return Transaction(round(at * SECOND), 1, "t", 0, 0, name, "A1", "Debit", None, Decimal("1.00"), Decimal(0))


def is_called(name: str | None, at: float) -> Version:
    """A version, by seconds; of a deletion the name is None."""
    return version(round(at * SECOND), name, name and name.lower(), name and "NM", name is None, str(name))


def told(enriched: Sequence[Enriched]) -> Going:
    """Id, status, name, and the second from which the version holds."""
    return [(each.row.transaction_id, each.status, each.full_name, _seconds(each.version_from)) for each in enriched]


def _seconds(at: int | None) -> int | None:
    return None if at is None else at // SECOND


@dataclass(frozen=True)
class Case:
    """What comes of a customer: versions, transactions, and watermarks, in seconds; and what goes on, in this order."""

    says: str
    comes: Sequence[Version | Transaction | float]
    goes_on: Going


CASES = (
    Case("a known customer holds nothing back", [is_called("Ann", 0), paid("t", 5)], [("t", "matched", "Ann", 0)]),
    Case(
        "every row that waits goes on when its customer comes, once each",
        [paid("t", 5), paid("u", 5), paid("v", 7), is_called("Ann", 0), is_called("Eve", 6), 1000],
        [("t", "matched", "Ann", 0), ("u", "matched", "Ann", 0), ("v", "matched", "Ann", 0)],
    ),
    Case("nobody came in time: at the last moment", [paid("t", 5), 64.999, 65], [("t", "unknown", None, None)]),
    Case(
        "a customer who comes just in time, and after the time",
        [paid("t", 5), paid("u", 6), 65, is_called("Ann", 0), 100],
        [("t", "unknown", None, None), ("u", "matched", "Ann", 0)],
    ),
    Case(
        "a version holds from its own moment on: a row of a moment before waits for an earlier one",
        [is_called("Ann", 5), paid("t", 5), paid("u", 4.999), is_called("Eve", 3)],
        [("t", "matched", "Ann", 5), ("u", "matched", "Eve", 3)],
    ),
    Case(
        "a deletion, and a new beginning",
        [is_called("Ann", 0), is_called(None, 5), is_called("Eve", 9), paid("t", 4), paid("u", 6), paid("v", 9)],
        [("t", "matched", "Ann", 0), ("u", "deleted", None, None), ("v", "matched", "Eve", 9)],
    ),
    Case("a deletion of nobody is no version", [is_called(None, 0), paid("t", 4), 200], [("t", "unknown", None, None)]),
    Case(
        "a deletion of nobody becomes one when the customer comes",
        [is_called(None, 3), paid("t", 4), is_called("Ann", 0)],
        [("t", "deleted", None, None)],
    ),
    Case(
        "a version that repeats the one before changes nothing, also when that comes late",
        [is_called("Ann", 5), is_called("Ann", 3), paid("t", 6)],
        [("t", "matched", "Ann", 3)],
    ),
    Case("of one time, the last that came counts", [is_called("Ann", 0), is_called("Eve", 0), paid("t", 1)], [("t", "matched", "Eve", 0)]),
    Case(
        "versions are forgotten, and what they said of the time is not",
        [
            *(is_called("Eve", 0), is_called("Ann", 1), is_called("Ann", 2), 50, is_called("Ann", 1.5), paid("t", 51)),
            *(is_called(None, 60), is_called(None, 70), 80, is_called(None, 65), paid("u", 81)),
        ],
        [("t", "matched", "Ann", 1), ("u", "deleted", None, None)],
    ),
    Case(
        "a version that comes between two equal ones begins another",
        [is_called("Ann", 1), is_called("Ann", 5), 50, is_called("Eve", 3), paid("t", 51)],
        [("t", "matched", "Ann", 5)],
    ),
    Case("a row that went on is final", [is_called("Ann", 0), paid("t", 5), is_called("Eve", 4), 200], [("t", "matched", "Ann", 0)]),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says.split(":")[0].replace(" ", "-"))
def test_what_goes_on(case: Case) -> None:
    customer, going = Customer(), list[Enriched]()
    for event in case.comes:
        customer, enriched = expire(customer, round(event * 1000), WAIT) if isinstance(event, int | float) else step(customer, event)
        going += enriched
    assert told(going) == case.goes_on
    assert customer.waiting == ()


def test_a_timer_is_that_of_the_first_row_that_has_waited_for_long_enough() -> None:
    customer, _ = step(Customer(), paid("t", 5))
    assert next_timer(customer, WAIT) == 65_000 == deadline(paid("t", 5), WAIT)
    waiting = customer._replace(timer=65_000)
    assert next_timer(waiting, WAIT) is None
    assert next_timer(step(waiting, paid("u", 9))[0], WAIT) is None
    assert next_timer(step(waiting, paid("u", 4))[0], WAIT) == 64_000
    after, due = expire(step(waiting, paid("u", 9))[0], 65_000, WAIT)
    assert (told(due), next_timer(after, WAIT)) == ([("t", "unknown", None, None)], 69_000)
    assert next_timer(expire(after, 69_000, WAIT)[0], WAIT) is None
    assert deadline(paid("t", 0.000001), WAIT) == 60_001  # never before the time is over


def test_what_is_kept_is_bounded() -> None:
    """A version a second, of which the watermark leaves one; rows that wait for no longer than a minute."""
    customer, most = Customer(), 0
    for second in range(1000):
        customer, _ = step(customer, is_called(f"n{second % 7}", second))
        customer, _ = expire(customer, 1000 * second, WAIT)
        assert len(customer.versions) == 1
    customer = Customer()
    for second in range(1000):
        customer, _ = step(customer, paid(f"t{second}", second))
        customer, _ = expire(customer, 1000 * (second - 10), WAIT)
        most = max(most, len(customer.waiting))
    assert most == 70


@pytest.mark.parametrize("seed", range(30))
def test_the_version_is_that_of_the_whole_history_whatever_the_order_and_what_is_forgotten(seed: int) -> None:
    """All versions come before the rows that need them; then the model of the history, in plain words, says the same."""
    chance = random.Random(seed)
    history = {at: chance.choice(("Ann", "Eve", None)) for at in chance.sample(range(100), chance.randint(1, 8))}
    arrivals = [is_called(name, at) for at, name in history.items()]
    for at in chance.sample(sorted(history), len(history) // 2):
        arrivals.insert(0, is_called("Old", at))  # superseded
    customer, watermark = Customer(), -1.0
    for event in arrivals:
        customer, _ = step(customer, event)
    for time in sorted(chance.uniform(0, 120) for _ in range(20)):
        customer, enriched = step(customer, paid("t", time))
        assert told(enriched) == expected(history, time), (history, time)
        watermark = max(watermark, time - chance.uniform(0, 30))
        customer, _ = expire(customer, round(watermark * 1000), 10**9)


def expected(history: dict[int, str | None], at: float) -> Going:
    """By the rules of silver.customers: neighbours that are equal are one version, and a deletion of nobody is none."""
    status, name, since = "unknown", None, None
    for moment in sorted(each for each in history if each <= at):
        new = history[moment]
        if new != name or (status == "unknown" and new is not None):
            status, name, since = ("matched", new, moment) if new is not None else ("deleted", None, None)
    return [] if status == "unknown" else [("t", status, name, since)]
