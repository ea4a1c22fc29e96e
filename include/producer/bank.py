"""The simulated bank behind the generated transactions: one day after the other, all accounts at once. Pure and seeded."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
from numpy.typing import NDArray

from include.producer import shape

Row = tuple[int, int, int, int, int]  # account, second of the day, index in shape.KINDS, amount and balance in cents

_SIGNS = np.array([1 if kind.type == "Credit" else -1 for kind in shape.KINDS], dtype=np.int64)
_PAID_OUT = np.isin(np.arange(len(shape.KINDS)), [shape.KINDS.index(kind) for kind in (shape.WITHDRAWAL, shape.REMITTANCE, shape.CARD)])


@dataclass(frozen=True)
class Day:
    """The transactions of one day, in order of time; arrays of one length."""

    accounts: NDArray[np.int64]
    seconds: NDArray[np.int64]
    kinds: NDArray[np.int64]
    amounts: NDArray[np.int64]
    balances: NDArray[np.int64]

    def chunks(self, rows: int) -> Iterator[Iterator[Row]]:
        """The rows as Python numbers, at most so many at a time in memory."""
        columns = (self.accounts, self.seconds, self.kinds, self.amounts, self.balances)
        for start in range(0, len(self.accounts), rows):
            yield zip(*(column[start : start + rows].tolist() for column in columns), strict=True)


class Bank:
    """Accounts with their habits and balances, numbered in order of opening."""

    def __init__(self, accounts: int, seed: int) -> None:
        self.today = date.fromisoformat(shape.FIRST_DAY)
        self._first_day = self.today
        self._random = np.random.Generator(np.random.PCG64(seed))
        random = self._random
        weights = np.array(shape.OPENING_WEIGHTS) / sum(shape.OPENING_WEIGHTS)
        months = np.arange(shape.OPENING_MONTHS)
        starts = np.array([self._days_to(2013 + month // 12, month % 12 + 1) for month in range(shape.OPENING_MONTHS + 1)])
        month = np.sort(random.choice(months, accounts, p=weights))
        share = random.random(accounts)
        self.opened = np.sort(starts[month] + (share * (starts[month + 1] - starts[month])).astype(np.int64)).astype(np.int32)
        self.opened -= self.opened[0]  # the first account opens on the first day
        self._opening_months = np.searchsorted(starts, self.opened, "right") - 1
        income = random.random(accounts)
        self._has_salary = income < shape.SALARY_SHARE
        self._has_pension = (income >= shape.SALARY_SHARE) & (income < shape.SALARY_SHARE + shape.PENSION_SHARE)
        first, last = shape.BOOKING_DAYS
        self._income_day = random.integers(first, last + 1, accounts, dtype=np.int8)
        self._income = self._amounts(shape.SALARY, accounts)
        self._income[self._has_pension] = self._amounts(shape.PENSION, int(self._has_pension.sum()))
        self._order_days = [
            np.where(random.random(accounts) < share, random.integers(first, last + 1, accounts, dtype=np.int8), 0)
            for share in shape.ORDER_SHARES
        ]
        self._order_amounts = [self._amounts(shape.REMITTANCE, accounts) for _ in shape.ORDER_SHARES]
        self._balances = np.zeros(accounts, dtype=np.int64)

    def _month_of(self, day: date) -> int:
        return 12 * (day.year - self._first_day.year) + day.month - self._first_day.month

    def _days_to(self, year: int, month: int) -> int:
        return (date(year, month, 1) - self._first_day).days

    def next_day(self) -> Day:
        """Simulate today; tomorrow is next."""
        today = self.today
        day = (today - self._first_day).days
        self.today = today + timedelta(days=1)
        old, opened = (int(np.searchsorted(self.opened, day, side)) for side in ("left", "right"))
        plan = [*self._openings(old, opened), *self._habits(today, old)]
        if self.today.day == 1:
            plan.extend(self._month_end(today, old))
        return self._book(plan)

    def _openings(self, old: int, opened: int) -> Iterator["_Part"]:
        yield _part(shape.OPENING, np.arange(old, opened), self._amounts(shape.OPENING, opened - old))

    def _habits(self, today: date, old: int) -> Iterator["_Part"]:
        """What the accounts that were opened before today do on an ordinary day."""
        age = self._age(today, old)
        lives_on_cash = ~(self._has_salary[:old] | self._has_pension[:old])
        first, last = shape.BOOKING_DAYS
        cash = np.full(old, shape.CASH_CREDITS / 30.4)
        if first <= today.day <= last:
            due = self._income_day[:old] == today.day
            yield self._income_part(shape.SALARY, due & self._has_salary[:old] & self._happens(_by_age(shape.SALARY_BY_AGE, age)))
            yield self._income_part(shape.PENSION, due & self._has_pension[:old] & self._happens(_by_age(shape.PENSION_BY_AGE, age)))
            runs = _by_age(shape.ORDERS_BY_AGE, age)
            for days, amounts in zip(self._order_days, self._order_amounts, strict=True):
                accounts = np.flatnonzero((days[:old] == today.day) & self._happens(runs))
                yield _part(shape.REMITTANCE, accounts, amounts[accounts])
            cash += _by_age(shape.CASH_BOOKED_BY_AGE, age) / (last - first + 1)
        yield self._random_part(shape.CASH_CREDIT, lives_on_cash & self._happens(cash))
        withdrawals = _by_age(shape.WITHDRAWALS_BY_AGE, age) * shape.WITHDRAWAL_SEASON.get(today.month, 1.0) / 30.4
        yield self._withdrawals(np.flatnonzero(self._happens(withdrawals)))
        yield self._random_part(shape.CARD, self._happens(np.full(old, shape.CARD_MONTHLY / 30.4)))

    def _month_end(self, today: date, old: int) -> Iterator["_Part"]:
        age = self._age(today, old)
        yield self._random_part(shape.INTEREST, self._happens(_by_age(shape.INTEREST_BY_AGE, age)))
        yield self._random_part(shape.FEE, self._happens(_by_age(shape.FEE_BY_AGE, age)))
        yield self._random_part(shape.SANCTION, self._happens(np.full(old, shape.SANCTION_PROBABILITY)))

    def _age(self, today: date, old: int) -> NDArray[np.int64]:
        """Calendar months since each of the first `old` accounts was opened."""
        return self._month_of(today) - self._opening_months[:old]

    def _happens(self, probabilities: NDArray[np.float64]) -> NDArray[np.bool_]:
        return self._random.random(len(probabilities)) < probabilities

    def _income_part(self, kind: shape.Kind, happens: NDArray[np.bool_]) -> "_Part":
        accounts = np.flatnonzero(happens)
        return _part(kind, accounts, self._income[accounts])

    def _random_part(self, kind: shape.Kind, happens: NDArray[np.bool_]) -> "_Part":
        accounts = np.flatnonzero(happens)
        return _part(kind, accounts, self._amounts(kind, len(accounts)))

    def _withdrawals(self, accounts: NDArray[np.int64]) -> "_Part":
        """Who has more takes more, so that balances do not run away."""
        kind = shape.WITHDRAWAL
        share = np.clip(self._balances[accounts] / shape.USUAL_BALANCE, 0.25, 3.0)
        steps = np.rint(self._amounts(kind, len(accounts)) * share / kind.step).astype(np.int64)
        return _part(kind, accounts, np.clip(steps * kind.step, kind.step, int(kind.amounts[-1]) * 100))

    def _amounts(self, kind: shape.Kind, count: int) -> NDArray[np.int64]:
        """So many amounts of the kind, in cents."""
        crowns = np.interp(self._random.random(count), shape.PROBABILITIES, kind.amounts)
        steps = np.rint(crowns * 100 / kind.step).astype(np.int64)
        return np.maximum(steps, 1) * kind.step

    def _book(self, plan: list["_Part"]) -> Day:
        """Bring a day's transactions in order and add them up; what is paid out stays within the morning's balance."""
        accounts = np.concatenate([part.accounts for part in plan])
        kinds = np.concatenate([part.kinds for part in plan])
        amounts = np.concatenate([part.amounts for part in plan])
        limit = self._balances[accounts] * 7 // 10 // 10000 * 10000
        amounts = np.where(_PAID_OUT[kinds], np.minimum(amounts, limit), amounts)
        kept = amounts > 0
        accounts, kinds, amounts = accounts[kept], kinds[kept], amounts[kept]
        seconds = self._random.integers(shape.OPENS_AT, shape.CLOSES_AT, len(accounts))

        by_account = np.lexsort((seconds, accounts))
        accounts, kinds, amounts, seconds = accounts[by_account], kinds[by_account], amounts[by_account], seconds[by_account]
        sums = np.cumsum(amounts * _SIGNS[kinds])
        starts = np.flatnonzero(np.diff(accounts, prepend=-1))
        counts = np.diff(np.append(starts, len(accounts)))
        before = np.repeat(sums[starts] - (amounts * _SIGNS[kinds])[starts], counts)
        balances = self._balances[accounts] + sums - before
        ends = starts + counts - 1
        self._balances[accounts[ends]] = balances[ends]

        by_time = np.argsort(seconds, kind="stable")
        return Day(accounts[by_time], seconds[by_time], kinds[by_time], amounts[by_time], balances[by_time])


@dataclass(frozen=True)
class _Part:
    accounts: NDArray[np.int64]
    kinds: NDArray[np.int64]
    amounts: NDArray[np.int64]


def _part(kind: shape.Kind, accounts: NDArray[np.int64], amounts: NDArray[np.int64]) -> _Part:
    return _Part(accounts, np.full(len(accounts), shape.KINDS.index(kind), dtype=np.int64), amounts)


def _by_age(values: tuple[float, ...], age: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.array(values)[np.minimum(age, len(values) - 1)]
