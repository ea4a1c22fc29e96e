"""Generated data: the same for a seed, exact in number, with balances that add up, of the sample's shape."""

import json
import re
from collections import Counter
from decimal import Decimal
from functools import cache
from typing import Any

import pytest

from include.producer import generated_sources, plan_messages
from include.producer.records import ACCOUNTS, CUSTOMERS, TOPICS, TRANSACTIONS
from spark_jobs.runtime.errors import SettingsError


def rows(transactions: int, topic: str, seed: int = 0) -> list[dict[str, Any]]:
    plan = plan_messages(generated_sources(transactions, seed, [topic]))
    return [json.loads(message.value or b"", parse_float=Decimal) for message in plan]


@cache
def sample() -> list[dict[str, Any]]:
    return rows(30_000, TRANSACTIONS)


def test_the_same_seed_gives_the_same_messages_also_by_topic() -> None:
    everything = list(plan_messages(generated_sources(1000, seed=3)))
    assert everything == list(plan_messages(generated_sources(1000, seed=3)))
    assert everything != list(plan_messages(generated_sources(1000, seed=4)))
    only = list(plan_messages(generated_sources(1000, seed=3, only=[TRANSACTIONS])))
    assert only == [message for message in everything if message.topic == TRANSACTIONS]


@pytest.mark.parametrize("transactions", [1, 2, 41, 999])
def test_the_number_of_transactions_is_exact(transactions: int) -> None:
    assert len(rows(transactions, TRANSACTIONS)) == transactions


def test_every_balance_is_the_one_before_plus_credit_minus_debit() -> None:
    balances: dict[str, Decimal] = {}
    for row in sample():
        change = row["amount"] if row["type"] == "Credit" else -row["amount"]
        expected = balances.get(row["accountId"], Decimal(0)) + change
        assert row["balance"] == expected
        balances[row["accountId"]] = expected
    assert len(balances) > 500


def test_rows_come_in_order_of_time_within_the_sample_s_months() -> None:
    times = [row["eventTime"] for row in sample()]
    assert times == sorted(times)
    assert sample()[0]["eventTimeFormatted"].startswith("2013-01-01 ")
    assert "2014-03" <= sample()[-1]["eventTimeFormatted"][:7] <= "2014-04"


def test_ids_have_the_sample_s_format_and_refer_to_each_other() -> None:
    accounts = {row["accountId"] for row in rows(30_000, ACCOUNTS)}
    customers = {row["customerId"] for row in rows(30_000, CUSTOMERS)}
    owners = {row["accountId"]: row["customerId"] for row in sample()}
    assert len({row["transactionId"] for row in sample()}) == 30_000
    assert all(re.fullmatch("T[0-9]{8}", row["transactionId"]) for row in sample())
    assert all(re.fullmatch("A[0-9]{8}", name) for name in accounts)
    assert all(re.fullmatch("C[0-9]{8}", name) for name in customers)
    assert set(owners) <= accounts
    assert set(owners.values()) <= customers
    assert len(set(owners.values())) == len(owners)
    assert all(owners[row["accountId"]] == row["customerId"] for row in sample())
    assert len(sample()) / len(accounts) == pytest.approx(40, abs=1)
    assert len(customers) / len(accounts) == pytest.approx(5369 / 4500, abs=0.01)


@pytest.mark.parametrize(
    ("kind", "operation", "share"),  # as in the real sample
    [
        ("Credit", "", 0.191),
        ("Credit", "Collection from Another Bank", 0.077),
        ("Credit", "Credit in Cash", 0.197),
        ("Debit", "Cash Withdrawal", 0.403),
        ("Debit", "Remittance to Another Bank", 0.131),
        ("Debit", "Credit Card Withdrawal", 0.0003),
    ],
)
def test_kinds_have_the_sample_s_shares(kind: str, operation: str, share: float) -> None:
    found = Counter((row["type"], row["operation"]) for row in sample())
    assert found[kind, operation] / 30_000 == pytest.approx(share, abs=0.03)


def test_days_of_month_accounts_and_balances_are_skewed_like_the_sample() -> None:
    days = Counter(row["eventTimeFormatted"][8:10] for row in sample())
    assert days["31"] / 30_000 == pytest.approx(0.195, abs=0.03)
    assert days["12"] / 30_000 == pytest.approx(0.045, abs=0.01)
    per_account = sorted(Counter(row["accountId"] for row in sample()).values())
    assert per_account[0] <= 3
    assert per_account[len(per_account) // 2] == pytest.approx(40, abs=6)
    negative = sum(row["balance"] < 0 for row in sample()) / 30_000
    assert 0 < negative < 0.01
    assert all(row["amount"] > 0 for row in sample())


def test_more_transactions_than_ids_are_refused() -> None:
    with pytest.raises(SettingsError, match="expected a whole number from 1 to 100000000"):
        generated_sources(100_000_001)


def test_generated_rows_are_good_in_every_topic() -> None:
    sources = generated_sources(500)
    assert [source.topic for source in sources] == list(TOPICS)
    for source in sources:
        assert len(list(source.records())) == source.rows
