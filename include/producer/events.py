"""Generated customers, accounts and transactions. Pure: no I/O, no clock; the same numbers and seed give the same rows.

A small bank is simulated day by day: accounts open, earn, pay and withdraw by the measured shape (shape.py), and every
balance is the one before plus credit or minus debit. Rows come in order of time. Memory grows with the number of accounts
(some 30 bytes each) and the rows of one day, not with the number of transactions.
"""

import math
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from functools import partial
from random import Random

import numpy as np
from numpy.typing import NDArray

from include.producer import shape
from include.producer.bank import Bank
from include.producer.plan import Source
from include.producer.records import ACCOUNTS, BANK, CUSTOMERS, FIRST_VERSION_MS, TRANSACTIONS, Record, cents
from spark_jobs.kafka.messages import quoted
from spark_jobs.runtime.errors import SettingsError

MOST_TRANSACTIONS = 10**8  # an id has 8 digits
_STRIDE = 48271  # has no divisor in common with 10**8: counting in such steps visits every 8-digit number once
_ROWS_AT_ONCE = 20_000
_EPOCH = date(1970, 1, 1)
_WORDS = [(quoted(kind.type), quoted(kind.operation)) for kind in shape.KINDS]
_CLOCK = [f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}.000" for second in range(24 * 3600)]


def generated_sources(transactions: int, seed: int = 0, only: Sequence[str] = BANK) -> list[Source]:
    """The wanted topics' rows for so many transactions, in the order of sending; accounts and customers in proportion.

    Raises SettingsError for a number of transactions that the 8 digits of an id cannot hold.
    """
    if not 1 <= transactions <= MOST_TRANSACTIONS:
        raise SettingsError(f"--transactions: found {transactions}, expected a whole number from 1 to {MOST_TRANSACTIONS}")
    accounts = count_accounts(transactions)
    sources = {
        CUSTOMERS: Source(CUSTOMERS, partial(_customers, accounts, seed), count_customers(accounts)),
        ACCOUNTS: Source(ACCOUNTS, partial(_accounts, accounts, seed), accounts),
        TRANSACTIONS: Source(TRANSACTIONS, partial(_transactions, transactions, accounts, seed), transactions),
    }
    return [sources[topic] for topic in BANK if topic in only]


def count_accounts(transactions: int) -> int:
    """How many accounts make about so many transactions in the 15 months of the sample."""
    return max(1, math.ceil(transactions / shape.TRANSACTIONS_PER_ACCOUNT))


def count_customers(accounts: int) -> int:
    """Customers to so many accounts, in the proportion of the sample; each account has an owner of its own."""
    return _owner(accounts - 1) + 1


def _owner(account: int) -> int:
    per_accounts, customers = shape.ACCOUNTS_PER_CUSTOMERS
    return account * customers // per_accounts


class _Numbers:
    """Scattered 8-digit numbers, each at most once: the n-th is `first` + n strides. Other seeds begin elsewhere."""

    def __init__(self, seed: int, what: str) -> None:
        self._first = Random(f"{seed} {what}").randrange(10**8)

    def __call__(self, place: int) -> str:
        return f"{(self._first + place * _STRIDE) % 10**8:08d}"


def _transactions(wanted: int, accounts: int, seed: int) -> Iterator[Record]:
    """Exactly the wanted number of transactions, in order of time."""
    number, account_number, customer_number = _Numbers(seed, "T"), _Numbers(seed, "A"), _Numbers(seed, "C")
    bank = Bank(accounts, seed)
    place = 0
    while place < wanted:
        midnight, start_ms = f"{bank.today} ", (bank.today - _EPOCH).days * 86_400_000
        for rows in bank.next_day().chunks(_ROWS_AT_ONCE):
            for account, second, kind, amount, balance in rows:
                transaction = "T" + number(place)
                type_, operation = _WORDS[kind]
                event_ms = start_ms + second * 1000
                values = (
                    f'"{transaction}"',
                    f'"A{account_number(account)}"',
                    f'"C{customer_number(_owner(account))}"',
                    str(event_ms),
                    f'"{midnight}{_CLOCK[second]}"',
                    type_,
                    operation,
                    cents(amount),
                    cents(balance),
                )
                yield Record(TRANSACTIONS, transaction.encode(), values, event_ms)
                place += 1
                if place == wanted:
                    return


def _accounts(accounts: int, seed: int) -> Iterator[Record]:
    number, random = _Numbers(seed, "A"), Random(f"{seed} accounts")
    first_day = date.fromisoformat(shape.FIRST_DAY)
    opened: NDArray[np.int32] = Bank(accounts, seed).opened
    for account in range(accounts):
        identifier = "A" + number(account)
        frequency = random.choices(list(shape.FREQUENCIES), list(shape.FREQUENCIES.values()))[0]
        created = first_day + timedelta(days=int(opened[account]))
        values = (f'"{identifier}"', str(_district(random)), quoted(frequency), f'"{created}"', FIRST_VERSION_MS)
        yield Record(ACCOUNTS, identifier.encode(), values)


def _customers(accounts: int, seed: int) -> Iterator[Record]:
    number, random = _Numbers(seed, "C"), Random(f"{seed} customers")
    for place in range(count_customers(accounts)):
        identifier = "C" + number(place)
        is_male = random.random() < 0.507
        first = random.choice(shape.MALE_NAMES if is_male else shape.FEMALE_NAMES)
        last = random.choice(shape.LAST_NAMES)
        district = _district(random)
        city, state = shape.CITIES[0 if district == 1 else 1 + district % (len(shape.CITIES) - 1)]
        born = date(1931, 8, 20) + timedelta(days=random.randrange(27_700))
        texts = (
            identifier,
            "Male" if is_male else "Female",
            f"{random.randrange(100, 1000)}-{random.randrange(10, 100)}-{random.randrange(1000, 10000)}",
            " ".join(name for name in (first, random.choice(shape.MIDDLE_NAMES), last) if name),
            f"{random.randrange(200, 1000)}-{random.randrange(100, 1000)}-{random.randrange(1000, 10000)}",
            f"{first}.{last}{place}@{random.choice(shape.MAIL_HOSTS)}".lower().replace("'", "").replace("ë", "e").replace("é", "e"),
            f"{random.randrange(1, 10000)} {random.choice(shape.STREETS)}",
            random.choice(shape.UNITS),
            city,
            state,
            str(random.randrange(1000, 100000)),
            str(district),
            str(born),
        )
        yield Record(CUSTOMERS, identifier.encode(), (*map(quoted, texts), FIRST_VERSION_MS))


def _district(random: Random) -> int:
    return 1 if random.random() < shape.FIRST_DISTRICT_SHARE else random.randrange(2, shape.DISTRICTS + 1)
