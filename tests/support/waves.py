"""What the tests send: generated rows in two waves, and beside them the cases that a generator does not make."""

import json
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from include.producer import Disturbances, Message, generated_sources, plan_messages

TRANSACTIONS = 2_000
SEED = 11
DISTURBANCES = Disturbances(duplicates=0.05, malformed=0.06, late=0.03, shuffle_seconds=7200, seed=SEED)


def split_plan() -> tuple[list[Message], list[Message]]:
    """The generated messages: all customers and accounts and 60 % of the transactions, then the rest with the late ones."""
    plan = list(plan_messages(generated_sources(TRANSACTIONS, SEED), DISTURBANCES))
    transactions = [message for message in plan if message.topic == "transactions"]
    cut = len(transactions) * 6 // 10
    others = [message for message in plan if message.topic != "transactions"]
    return [*others, *transactions[:cut]], transactions[cut:]


def second_wave(first: list[Message], rest: list[Message]) -> list[Message]:
    """The rest of the generated messages, and what changes rows that are there already."""
    return [*customer_changes(first), *account_changes(first), *copies(first), *rest, *edges(first)]


def copies(first: list[Message]) -> list[Message]:
    """Transactions of the first wave once more, the same and with another amount."""
    plain = [message for message in first if message.topic == "transactions" and message.injected is None][::50]
    same = [message._replace(injected="duplicate") for message in plain]
    other = [changed(message, amount=Decimal("0.01"))._replace(injected="duplicate:conflicting") for message in plain[::2]]
    return [*same, *other]


def customer_changes(first: list[Message]) -> list[Message]:
    """New versions, in order and out of it, repetitions, and deletions."""
    one, two, three, four = customers(first)[:4]
    return [
        changed(one, city="Brno", updateTime=ms("2013-09-01")),
        changed(one, city="Olomouc", updateTime=ms("2013-05-01")),  # came late: lies before the one above
        changed(two, city="Zlin", updateTime=ms("2012-12-31")),  # replaces the first version: the last arrival stays
        changed(three, updateTime=ms("2013-06-01")),  # nothing but its time: no change
        changed(three, phone="000", updateTime=ms("2013-08-01")),
        Message("customers", four.key, None),
        Message("customers", four.key, None),  # deleted already
        Message("customers", b"C00000000", None),  # never known
        one._replace(key=one.key + b"x", injected="malformed:key_matches"),
    ]


def account_changes(first: list[Message]) -> list[Message]:
    """A new version, and one that cannot be used."""
    account = next(message for message in first if message.topic == "accounts" and message.injected is None)
    moved = changed(account, districtId=77, updateTime=ms("2013-07-01"))
    return [moved, account._replace(key=account.key + b"x", injected="malformed:key_matches")]


def edges(first: list[Message]) -> list[Message]:
    """Rows at the watermark and 1 ms before it, of an unknown customer, and, as the last one, of a deleted customer."""
    row = next(message for message in first if message.topic == "transactions" and message.injected is None)
    times = [
        json.loads(m.value or b"")["eventTime"] for m in first if m.topic == "transactions" and not (m.injected or "").startswith("mal")
    ]
    watermark = max(times) - 10_000
    soon = time.time_ns() // 1_000_000 + 120_000  # after the deletion; up to five minutes in the future are plausible
    return [
        new(row, "T-at-watermark", eventTime=watermark),
        new(row, "T-before-watermark", eventTime=watermark - 1),
        new(row, "T-unknown", customerId="C99999999"),
        new(row, "T-deleted", customerId=customers(first)[3].key.decode(), eventTime=soon),
    ]


def few_new(sent: list[Message], name: str) -> list[Message]:
    """Twenty more valid transactions, as the first plain one that was sent."""
    plain = next(message for message in sent if message.topic == "transactions" and message.injected is None)
    return [new(plain, f"T-{name}-{number}") for number in range(20)]


def new(row: Message, transaction_id: str, **fields: Any) -> Message:
    """A transaction of another id."""
    return changed(row, transactionId=transaction_id, **fields)._replace(key=transaction_id.encode())


def changed(message: Message, **fields: Any) -> Message:
    """The message with other values in some fields; amounts keep their digits."""
    known = json.loads(message.value or b"", parse_float=_Number, parse_int=_Number)
    text = ",".join(f"{json.dumps(name)}:{_json(value)}" for name, value in (known | fields).items())
    return message._replace(value=f"{{{text}}}".encode())


def ms(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000)


def customers(first: list[Message]) -> list[Message]:
    """The good ones."""
    return [message for message in first if message.topic == "customers" and message.injected is None]


class _Number(str):
    """A JSON number as it was written."""


def _json(value: Any) -> str:
    return str(value) if isinstance(value, _Number | Decimal) else json.dumps(value)
