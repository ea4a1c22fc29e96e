"""Why a record is in quarantine, in plain words, by the value that broke the rule as it may be seen.

What is allowed is read out of the rule's own description (expectations/rules), so a changed limit changes these words.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation

from expectations.row_rules import Rule, RuleError, read_rules

_SCALE = re.compile(r"At most (\d+) decimals and (\d+) digits")
_ID = re.compile(r"([A-Z]) and (\d+) ASCII digits")
_SINCE = re.compile(r"from (\d{4}-\d\d-\d\d) UTC to (\d+) minutes after")
_KIND = re.compile(r"(text|number|object|array) of [0-9,]+|true or false|null|[0-9,]+ bytes|not? \w+")  # what masking says of what it hides
_MOST_MILLISECONDS = 6 * 10**13  # about 1,900 years either side of 1970, which Python's times can hold


@dataclass(frozen=True)
class Reason:
    """A broken rule: the field that broke it (empty: none is known), and what is wrong with it, in one sentence."""

    rule: str
    field: str
    says: str


def why(topic: str, rule: str, detail: str, key: str, fields: Mapping[str, str]) -> Reason:
    """The reason of one broken rule. `fields` and `key` are masked; `detail` is what silver noted, masked, for rules that are gone."""
    known = _rules(topic).get(rule)
    if known is None:
        return Reason(rule, "", f"{detail} (a rule of an older version)")
    if known.field == "key":
        return Reason(rule, "", f"{_named('key', key)} Expected: {known.description}")
    if known.field not in fields:
        found = fields.get("", "")
        says = _named("value", found) if known.field == "value" and found else f"{known.field} is missing."
        return Reason(rule, "" if known.field == "value" else known.field, f"{says} Expected: {known.description}")
    value = fields[known.field]
    particular = None if _KIND.match(value) else _particular(known.description, value)
    return Reason(rule, known.field, f"{known.field} {particular or f'is {_with_article(value)}. Expected: {known.description}'}")


def _named(part: str, found: str) -> str:
    """What a record's key or value is, in a sentence."""
    return f"There is {found}." if found == f"no {part}" else f"The {part} is {found}."


def _rules(topic: str) -> dict[str, Rule]:
    try:
        return {rule.name: rule for rule in read_rules(topic).rules}
    except RuleError:
        return {}


def _with_article(value: str) -> str:
    """`a text of 9 characters`, `an array of 1 element`; a value that may be seen is as it is."""
    kind = _KIND.match(value)
    return f"{'a' if kind[1] in ('text', 'number') else 'an'} {value}" if kind and kind[1] else value


def _particular(description: str, value: str) -> str | None:
    """What exactly is wrong with a value that may be seen; None where no more than the rule itself can be said."""
    if limits := _SCALE.search(description):
        return _digits(value, int(limits[1]), int(limits[2]))
    if parts := _ID.search(description):
        digits = len(re.sub(r"\D", "", value))
        asked = f"{parts[1]} and {parts[2]} digits are expected"
        return f"{value} has {digits} digit{'' if digits == 1 else 's'}, {asked}" if value.startswith(parts[1]) else f"{value}: {asked}"
    if limits := _SINCE.search(description):
        return _time(value, limits[1], limits[2])
    if "zero or more" in description and value.startswith("-"):
        return f"{value} is negative, zero or more is allowed"
    return None


def _digits(value: str, decimals: int, whole: int) -> str | None:
    try:
        _, digits, exponent = Decimal(value).normalize().as_tuple()
    except InvalidOperation:
        return None
    if not isinstance(exponent, int):
        return None
    if -exponent > decimals:
        return f"{value} has {-exponent} decimals, at most {decimals} are allowed"
    if len(digits) + exponent > whole:
        return f"{value} has {len(digits) + exponent} digits before the point, at most {whole} are allowed"
    return None


def _time(value: str, since: str, minutes: str) -> str | None:
    if not re.fullmatch(r"-?\d{1,15}", value):
        return f"{value} is not a whole number of milliseconds"
    milliseconds = int(value)
    if abs(milliseconds) > _MOST_MILLISECONDS:
        return f"{value} is not a time near ours, {since} or later is expected, in milliseconds"
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    if at < datetime.fromisoformat(since).replace(tzinfo=UTC):
        return f"{value} is {at:%Y-%m-%d %H:%M} UTC, {since} or later is expected"
    return f"{value} is {at:%Y-%m-%d %H:%M} UTC, at most {minutes} minutes after the record came to Kafka are allowed"
