"""Malformed copies: each breaks exactly one rule of the contract, and is named after it. Pure: no I/O, no clock.

A copy is only made of a row that is good itself; else it would break more than the one rule.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from random import Random

from include.producer.records import ACCOUNTS, CUSTOMERS, FIELDS, TRANSACTIONS, Message, Record, encode, encode_without
from spark_jobs.kafka.messages import NULL

INJECTED_HEADER = "ledger-injected"  # the Kafka header that says what was done to a message

DUPLICATE = "duplicate"
CONFLICTING = "duplicate:conflicting"
LATE = "late"
MALFORMED = "malformed:"  # followed by the name of the broken rule

Mutation = Callable[[Record], Message]


def malformed_copy(record: Record, random: Random) -> Message | None:
    """A copy of the record that breaks one rule, chosen at random; None if the record is not good itself."""
    if not is_good(record):
        return None
    rules = BREAKING.get(record.topic, {"parseable": _UNPARSEABLE})
    rule = random.choice(list(rules))
    return random.choice(rules[rule])(record)._replace(injected=MALFORMED + rule)


def conflicting_copy(record: Record) -> Message | None:
    """A valid transaction of the same id with another amount; None for other topics and for rows that are not good."""
    if record.topic != TRANSACTIONS or not is_good(record):
        return None
    amount = Decimal(record.text("amount"))
    other = amount + 1 if amount < 10**15 else amount - 1
    return Message(record.topic, record.key, encode(record.replaced(amount=format(other, "f"))), CONFLICTING)


def is_good(record: Record) -> bool:
    """Whether the producer knows of no rule that the record breaks; it knows those of the bank's topics."""
    patterns = _GOOD.get(record.topic, dict.fromkeys(FIELDS[record.topic]))
    return bool(record.key) and all(
        pattern.fullmatch(text) for pattern, text in zip(patterns.values(), record.values, strict=True) if pattern
    )


def _field(name: str, *texts: str) -> tuple[Mutation, ...]:
    """One mutation for each text that the field gets instead of its own."""

    def replace(text: str) -> Mutation:
        return lambda record: Message(record.topic, record.key, encode(record.replaced(**{name: text})))

    return tuple(replace(text) for text in texts)


def _without(name: str) -> Mutation:
    return lambda record: Message(record.topic, record.key, encode_without(record, name))


def _bytes(change: Callable[[bytes], bytes | None]) -> Mutation:
    return lambda record: Message(record.topic, record.key, change(encode(record)))


def _computed(name: str, compute: Callable[[str], str]) -> Mutation:
    return lambda record: Message(record.topic, record.key, encode(record.replaced(**{name: compute(record.text(name))})))


def _thousandths(text: str) -> str:
    return format(Decimal(text) + Decimal("0.001").copy_sign(Decimal(text)), "f")


def _negative(text: str) -> str:
    return format(-(abs(Decimal(text)) or Decimal(1)), "f")


_TOO_LARGE = "10000000000000000.00"  # 17 digits before the point: decimal(18,2) has 16
_TOO_PRECISE = "1.0000000000000001e2"  # more than 15 significant digits, with an exponent
_WRONG_TIMES = (NULL, '"2013-01-01 00:00:00.000"', '"1356998400000"', "1356998400000.5", "946684799999", "4102444800000", "true")
_UNPARSEABLE: tuple[Mutation, ...] = (
    _bytes(lambda value: value[: len(value) // 2]),
    _bytes(lambda value: value.replace(b'":"', b'":"\xff\xfe', 1)),
    _bytes(lambda value: b""),
    _bytes(lambda value: value + b" trailing"),
    _bytes(lambda value: value + value),
    _bytes(lambda value: value.replace(b'"', b"'")),
    _bytes(lambda value: b"[" + value + b"]"),
    _bytes(lambda value: b"true"),
    _bytes(lambda value: bytes(value[:-1]) + b',"extra":NaN}'),
    _bytes(lambda value: bytes(value[:-1]) + b',"extra":007}'),
)


def _wrong_ids(name: str, letter: str) -> tuple[Mutation, ...]:
    other = "C" if letter == "A" else "A"
    shapes = ("{0}1234567", "{0}123456789", "{1}12345678", "{0}1234567x", "{0}12345678\\n", " {0}12345678", "{0}1234567٣", "")
    texts = [f'"{shape.format(letter, other)}"' for shape in shapes] + [f'"{letter.lower()}12345678"', NULL, "12345678"]
    return (*_field(name, *texts), _without(name))


def _dimension_rules(identifier: str, districts: tuple[str, ...], date_rule: str, date: str) -> dict[str, tuple[Mutation, ...]]:
    return {
        "parseable": _UNPARSEABLE,
        # A compacted topic refuses a null key. The id is empty too, so that key_matches holds.
        "key_present": (lambda record: Message(record.topic, b"", encode(record.replaced(**{identifier: '""'}))),),
        "key_matches": (lambda record: Message(record.topic, record.key + b"x", encode(record)),),
        "update_time_plausible": _field("updateTime", *_WRONG_TIMES),
        "district_id_whole": _field("districtId", *districts),
        date_rule: _field(date, '"2013-02-30"', '"1970-13-01"', '"30.01.1970"'),
    }


# For each topic of the bank: rule -> the ways to break it and nothing else.
BREAKING: dict[str, dict[str, tuple[Mutation, ...]]] = {
    TRANSACTIONS: {
        "parseable": (*_UNPARSEABLE, _bytes(lambda value: None)),
        "transaction_id_present": (*_field("transactionId", '""', NULL, "12345678"), _without("transactionId")),
        "account_id_format": _wrong_ids("accountId", "A"),
        "customer_id_format": _wrong_ids("customerId", "C"),
        "event_time_plausible": (*_field("eventTime", *_WRONG_TIMES), _without("eventTime")),
        "type_known": (*_field("type", '"credit"', '"Debit "', '"Refund"', '""', NULL, "1"), _without("type")),
        "operation_text": _field("operation", "7", "true", "{}", '["Credit in Cash"]'),
        "amount_not_negative": (_computed("amount", _negative),),
        "amount_scale": (_computed("amount", _thousandths), *_field("amount", _TOO_LARGE, _TOO_PRECISE)),
        "balance_scale": (
            _computed("balance", _thousandths),
            *_field("balance", _TOO_LARGE, "-" + _TOO_LARGE, _TOO_PRECISE, '"100.00"', NULL),
            _without("balance"),
        ),
    },
    CUSTOMERS: _dimension_rules("customerId", ('"one"', '"1.5"', '"1 2"'), "birth_date_valid", "birthDate"),
    ACCOUNTS: _dimension_rules("accountId", ("1.5", '"one"', "[1]"), "creation_date_valid", "creationDate"),
}

_TEXT = re.compile(r'".*"')
_MONEY = r"(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,2})?"
_PLAUSIBLE_TIME = re.compile(r"(?:9[5-9][0-9]{10}|[1-9][0-9]{12})")  # about 2000 to 2286
_DATE = re.compile(r'null|"[0-9]{4}-[0-9]{2}-[0-9]{2}"')
_GOOD: dict[str, dict[str, re.Pattern[str] | None]] = {
    TRANSACTIONS: {
        "transactionId": re.compile(r'".+"'),
        "accountId": re.compile(r'"A[0-9]{8}"'),
        "customerId": re.compile(r'"C[0-9]{8}"'),
        "eventTime": _PLAUSIBLE_TIME,
        "eventTimeFormatted": _TEXT,
        "type": re.compile(r'"(?:Credit|Debit)"'),
        "operation": _TEXT,
        "amount": re.compile(_MONEY),
        "balance": re.compile("-?" + _MONEY),
    },
    CUSTOMERS: {
        **dict.fromkeys(("customerId", "sex", "social", "fullName", "phone", "email", "address1", "address2"), _TEXT),
        **dict.fromkeys(("city", "state", "zipcode"), _TEXT),
        "districtId": re.compile(r'"[0-9]{1,9}"'),
        "birthDate": _DATE,
        "updateTime": None,
    },
    ACCOUNTS: {
        "accountId": _TEXT,
        "districtId": re.compile(r"[0-9]{1,9}"),
        "frequency": _TEXT,
        "creationDate": _DATE,
        "updateTime": None,
    },
}
