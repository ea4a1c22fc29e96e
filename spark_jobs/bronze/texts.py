"""Rows of texts, as files and tables of history have them, become keys and values as the topics have them. Pure.

Columns are the topic's fields or the columns that silver makes of them, in any case and with or without underscores
(`transactionId`, `transaction_id`); others are kept as fields of their own, as JSON strings.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from spark_jobs.kafka.messages import (
    ACCOUNTS,
    CUSTOMERS,
    EPOCH,
    FIELDS,
    JSON_NUMBER,
    MILLISECOND,
    NULL,
    TRANSACTIONS,
    format_time,
    number,
    quoted,
)
from spark_jobs.runtime.errors import SettingsError

Texts = Sequence[str | None]
KeyAndValue = tuple[bytes | None, bytes]

IDS = {TRANSACTIONS: "transactionId", CUSTOMERS: "customerId", ACCOUNTS: "accountId"}
_NUMBERS = {TRANSACTIONS: {"amount", "balance"}, CUSTOMERS: set[str](), ACCOUNTS: {"districtId"}}
_TIMES = {"eventTime", "updateTime"}
_OTHER_NAMES = {TRANSACTIONS: {"eventat": "eventTime"}, CUSTOMERS: {"validfrom": "updateTime"}, ACCOUNTS: {"validfrom": "updateTime"}}
_FORMATTED = "eventTimeFormatted"
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.,]([0-9]{1,9}))? ?(?:Z|([+-][0-9]{2})(?::?([0-9]{2}))?)?", re.ASCII
)


def fields_of(topic: str, columns: Sequence[str], where: str) -> list[str]:
    """The field that each column is; `where` names their place in messages.

    Raises SettingsError when the column of the id is missing, a name is empty, or two columns are one field.
    """
    known = {name.lower(): name for name in FIELDS[topic]} | _OTHER_NAMES[topic]
    fields = [known.get(_plain(column), column.strip()) for column in columns]
    listed = ", ".join(columns)[:200]
    if IDS[topic] not in fields:
        raise SettingsError(f"{where}: found no column {IDS[topic]} among {listed}, expected one for the topic {topic}")
    if "" in fields:
        raise SettingsError(f"{where}: found a column without a name among {listed}, expected a name for each")
    if twice := sorted({field for field in fields if fields.count(field) > 1}):
        raise SettingsError(f"{where}: found more than one column for {twice[0]}, expected one")
    return fields


def missing_fields(topic: str, fields: Sequence[str]) -> list[str]:
    """The fields of a topic that no column is, without the time in words."""
    return [name for name in FIELDS[topic] if name not in fields and name != _FORMATTED]


def to_message(topic: str, fields: Sequence[str]) -> Callable[[Texts], KeyAndValue]:
    """A function from a row of texts to the key and value of its message; a text None is a null.

    Bytes that are no UTF-8 (as surrogates, see `surrogateescape`) stay as they are.
    """
    places = {name: fields.index(name) if name in fields else None for name in FIELDS[topic]}
    extra = [(name, place) for place, name in enumerate(fields) if name not in places]
    template = "{" + ",".join(quoted(name).replace("%", "%%") + ":%s" for name in (*FIELDS[topic], *(name for name, _ in extra))) + "}"
    id_place = fields.index(IDS[topic])

    def convert(row: Texts) -> KeyAndValue:
        texts = {name: None if place is None else row[place] for name, place in places.items()}
        values = {name: _value(topic, name, text) for name, text in texts.items()}
        if topic == TRANSACTIONS:
            values["eventTime"], values[_FORMATTED] = _event_time(texts["eventTime"], texts[_FORMATTED])
        value = template % (*values.values(), *(_text(row[place]) for _, place in extra))
        key = row[id_place]
        return None if key is None else _bytes(key), _bytes(value)

    return convert


def parse_time(text: str) -> int | None:
    """Epoch milliseconds of a time such as 2013-01-01T08:23:33.001Z or 2013-01-01 08:23:33+02; UTC where it names no zone."""
    match = _TIME.fullmatch(text)
    if not match:
        return None
    date, clock, fraction, hours, minutes = match.groups()
    try:
        moment = datetime.fromisoformat(f"{date}T{clock}").replace(tzinfo=UTC)
        offset = timedelta(hours=int(hours or 0), minutes=int(f"{(hours or '+')[0]}{minutes or 0}"))
        return (moment - offset - EPOCH) // MILLISECOND + int((fraction or "").ljust(3, "0")[:3])
    except (ValueError, OverflowError):
        return None


def _value(topic: str, name: str, text: str | None) -> str:
    if text is None:
        return NULL
    if name in _TIMES:
        return _time(text)
    return number(text) if name in _NUMBERS[topic] else quoted(text)


def _time(text: str) -> str:
    """A time as a JSON number: epoch milliseconds as they are written, or those of a time in words; else a JSON string."""
    millis = parse_time(text)
    return number(text) if millis is None else str(millis)


def _event_time(text: str | None, formatted: str | None) -> tuple[str, str]:
    """The fields eventTime and eventTimeFormatted, from either. What cannot be read is null, with its text as the time in words."""
    if text is None:
        millis = None if formatted is None else parse_time(formatted)
        return NULL if millis is None else str(millis), _text(formatted)
    value = _time(text)
    if not JSON_NUMBER.fullmatch(value):
        return NULL, quoted(text)
    return value, _text(formatted) if formatted is not None else _in_words(value)


def _in_words(number: str) -> str:
    try:
        return quoted(format_time(int(number)))
    except (ValueError, OverflowError):
        return NULL


def _text(text: str | None) -> str:
    return NULL if text is None else quoted(text)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _plain(column: str) -> str:
    return column.strip().replace("_", "").lower()
