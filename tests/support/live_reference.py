"""What the live tables must hold, made of the same rows by plain loops: no Spark, no streams, no state, nothing of the product's code.

Times are milliseconds since the epoch, in UTC; money is Decimal.
"""

import hashlib
import json
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from typing import Any, NamedTuple

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
Rows = Counter[tuple[Any, ...]]


class Paid(NamedTuple):
    """A record of the topic transactions, in order of arrival."""

    batch: int
    partition: int
    offset: int
    at: int
    name: str
    account: str
    customer: str
    kind: str
    amount: Decimal
    is_valid: bool

    @property
    def where(self) -> tuple[str, int, int]:
        """Its Kafka record."""
        return "transactions", self.partition, self.offset


class Called(NamedTuple):
    """A version of a customer, or with name None a deletion; `before`: the last batch of transactions that came before it."""

    customer: str
    at: int
    name: str | None
    city: str | None
    before: int


class Limits(NamedTuple):
    """The settings of the run. `lateness` is in milliseconds."""

    lateness: int
    wait: int
    debits: int
    money: Decimal
    times: int
    silence: int


def split(rows: Iterable[Paid], lateness: int) -> tuple[list[Paid], Rows, dict[int, int]]:
    """The rows that are accepted, why others are not, and the newest accepted event time up to each batch."""
    accepted, refused, newest_of = list[Paid](), Rows(), dict[int, int]()
    known = dict[str, int]()
    batch = newest = reached = accepted_newest = -1
    for row in rows:
        if row.batch != batch:
            batch, newest = row.batch, reached
        mark = newest - lateness if newest >= 0 else None
        told = (None, None) if not row.is_valid else (row.name, row.at)
        if row.is_valid:
            reached = max(reached, row.at)
        if not row.is_valid:
            refused[(*told, "invalid", mark, *row.where[1:])] += 1
        elif mark is not None and row.at <= mark:
            refused[(*told, "late", mark, *row.where[1:])] += 1
        elif row.name in known and (mark is None or known[row.name] > mark):
            refused[(*told, "duplicate", mark, *row.where[1:])] += 1
            known[row.name] = max(known[row.name], row.at)
        else:
            accepted.append(row)
            known[row.name] = max(known.get(row.name, -1), row.at)
            accepted_newest = max(accepted_newest, row.at)
        newest_of[row.batch] = accepted_newest
    return accepted, refused, newest_of


def totals(rows: Iterable[Paid], passed: int) -> dict[str, Rows]:
    """The three tables of totals: start, end, type, count and sum of each window that is over."""
    sums: dict[str, dict[tuple[int, int, str], list[Any]]] = {name: {} for name in ("daily", "sliding", "cumulative")}
    for row in rows:
        day, step = row.at // DAY * DAY, row.at // (2 * HOUR) * 2 * HOUR
        windows = {
            "daily": [(day, day + DAY)],
            "sliding": [(step - 2 * HOUR * back, step - 2 * HOUR * back + DAY) for back in range(12)],
            "cumulative": [(day, end) for end in range(step + 2 * HOUR, day + DAY + 1, 2 * HOUR)],
        }
        for name, found in windows.items():
            for start, end in found:
                entry = sums[name].setdefault((start, end, row.kind), [0, Decimal(0)])
                entry[0] += 1
                entry[1] += row.amount
    return {name: Counter((*key, *entry) for key, entry in found.items() if key[1] <= passed) for name, found in sums.items()}


def sessions(rows: Iterable[Paid], passed: int) -> Rows:
    """Customer, start, end, count and sum of each session that is over: rows less than 12 hours apart."""
    found = Rows()
    for customer, own in _by(rows, "customer").items():
        times = sorted((row.at, row.amount) for row in own)
        cuts = [0, *(place for place in range(1, len(times)) if times[place][0] - times[place - 1][0] >= 12 * HOUR), len(times)]
        for first, end in pairwise(cuts):
            part = times[first:end]
            if part[-1][0] + 12 * HOUR <= passed:
                found[(customer, part[0][0], part[-1][0] + 12 * HOUR, len(part), sum(amount for _, amount in part))] += 1
    return found


def pairs(rows: Iterable[Paid]) -> Rows:
    """Debit, credit, customer and both times, of debits up to an hour before a credit of the customer."""
    found = Rows()
    for customer, own in _by(rows, "customer").items():
        debits = [(row.at, row.name) for row in own if row.kind == "Debit"]
        for credit in (row for row in own if row.kind == "Credit"):
            found.update((name, credit.name, customer, at, credit.at) for at, name in debits if credit.at - HOUR <= at <= credit.at)
    return found


def shares(rows: Iterable[Paid], passed: int) -> Rows:
    """Day, debits, credits and share up to each day that is over."""
    days: dict[int, Counter[str]] = defaultdict(Counter)
    for row in rows:
        days[row.at // DAY * DAY][row.kind] += 1
    found, total = Rows(), Counter[str]()
    for day in sorted(day for day in days if day + DAY <= passed):
        total.update(days[day])
        share = (Decimal(100 * total["Debit"]) / total.total()).quantize(Decimal("0.0001"), ROUND_HALF_UP)
        found[(day, total["Debit"], total["Credit"], share)] += 1
    return found


def alerts(rows: Iterable[Paid], limits: Limits, passed: int) -> Rows:
    """Id, kind, account, time, what was found and allowed, and the causing ids: each account with all of its rows at hand."""
    found = Rows()
    for account, own in _by(rows, "account").items():
        found.update(_alerts_of(account, sorted(own, key=lambda row: (row.batch, row.at, row.where)), limits, passed))
    return found


def _alerts_of(account: str, rows: Sequence[Paid], limits: Limits, passed: int) -> Iterable[tuple[Any, ...]]:
    window, debits, last = 10 * MINUTE, list[Paid](), None
    used: dict[str, set[tuple[str, int, int]]] = {"many_debits": set(), "much_money": set()}
    total = Decimal(0)

    def alert(kind: str, at: int, number: Decimal | int, allowed: Decimal | int, causes: Sequence[Paid]) -> tuple[Any, ...]:
        cause = json.dumps([kind, sorted(row.where for row in causes)])
        name = hashlib.sha256(cause.encode()).hexdigest()[:32]
        return name, kind, account, at, Decimal(number), Decimal(allowed), tuple(row.name for row in causes)

    for number, row in enumerate(rows):
        if last and number >= 10 and row.at > last.at + limits.silence:
            yield alert("silence", last.at + limits.silence, limits.silence // DAY, limits.silence // DAY, [last])
        last = row if last is None or row.at >= last.at else last
        if row.kind != "Debit":
            continue
        if len(debits) >= 10 and row.amount * len(debits) > limits.times * total:
            yield alert("unusual_debit", row.at, row.amount, round(limits.times * total / len(debits), 2), [row])
        debits.append(row)
        total += row.amount
        near = sorted((each for each in debits if abs(each.at - row.at) < 2 * window), key=lambda each: (each.at, each.where))
        for end in sorted({each.at for each in near if row.at <= each.at < row.at + window}):
            for kind, limit in (("many_debits", limits.debits), ("much_money", limits.money)):
                free = [each for each in near if end - window < each.at <= end and each.where not in used[kind]]
                value = len(free) if kind == "many_debits" else sum((each.amount for each in free), Decimal(0))
                if value > limit:
                    yield alert(kind, free[-1].at, value, limit, free)
                    used[kind].update(each.where for each in free)
    if last and len(rows) >= 10 and last.at + limits.silence <= passed:
        yield alert("silence", last.at + limits.silence, limits.silence // DAY, limits.silence // DAY, [last])


class Allowed(NamedTuple):
    """What a row of gold.live_enriched_transactions may say (status, name, city, version); `is_due`: it must be there."""

    outcomes: set[tuple[Any, ...]]
    is_due: bool


UNKNOWN = ("unknown", None, None, None)


def enriched(rows: Iterable[Paid], versions: Iterable[Called], newest_of: dict[int, int], limits: Limits) -> dict[tuple[Any, ...], Allowed]:
    """Of each accepted row what it may say, by id and record.

    The queries may be behind: so a row may meet every version that came before it, and any that came later. It may be unknown only if no
    version had come when bronze held the rows whose watermark ended its time.
    """
    own: dict[str, list[Called]] = defaultdict(list)
    found = dict[tuple[Any, ...], Allowed]()
    for version in versions:
        own[version.customer].append(version)
    batches = sorted(newest_of)
    newest = [newest_of[batch] for batch in batches]  # it rises
    for row in rows:
        known = own[row.customer]
        ends = bisect_right(newest, row.at + limits.wait + limits.lateness - 1)
        over = batches[ends] if ends < len(batches) else None
        cuts = [[each for each in known if each.before < row.batch]]
        cuts += [known[: place + 1] for place in range(len(cuts[0]), len(known))]
        outcomes = {outcome for cut in cuts if (outcome := _as_of(cut, row.at)) != UNKNOWN}
        if over is not None and _as_of([each for each in known if each.before < over], row.at) == UNKNOWN:
            outcomes.add(UNKNOWN)
        found[(row.name, *row.where[1:])] = Allowed(outcomes, over is not None or _as_of(known, row.at) != UNKNOWN)
    return found


def _as_of(versions: Sequence[Called], at: int) -> tuple[Any, ...]:
    """By the rules of silver.customers: of one time the last counts, neighbours that are equal are one, a deletion of nobody is none."""
    last = {each.at: each for each in versions if each.at <= at}
    holds, since = None, None
    for moment in sorted(last):
        new = last[moment]
        if (holds is None and new.name is None) or (holds and (new.name, new.city) == (holds.name, holds.city)):
            continue
        holds, since = new, moment
    if holds is None:
        return UNKNOWN
    if holds.name is None:
        return "deleted", None, None, None
    return "matched", re.sub(r"\B\w", "*", holds.name), holds.city, since


def _by(rows: Iterable[Paid], name: str) -> dict[str, list[Paid]]:
    found: dict[str, list[Paid]] = defaultdict(list)
    for row in rows:
        found[getattr(row, name)].append(row)
    return found
