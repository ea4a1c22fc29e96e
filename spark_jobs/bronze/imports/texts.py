"""Rows of texts, as files and tables of history have them, become keys and values as the topics have them. Pure.

Columns are the topic's fields or the columns that silver makes of them, in any case and with or without underscores
(`transactionId`, `transaction_id`); others are kept as fields of their own, as JSON strings.
"""

from collections.abc import Callable, Sequence

from spark_jobs.kafka.messages import JSON_NUMBER, NULL, format_time, number, parse_time, quoted
from spark_jobs.lake.topic import Field, Topic
from spark_jobs.runtime.errors import SettingsError

Texts = Sequence[str | None]
KeyAndValue = tuple[bytes | None, bytes]


def fields_of(topic: Topic, columns: Sequence[str], where: str) -> list[str]:
    """The field that each column is; `where` names their place in messages.

    Raises SettingsError when the column of the id is missing, a name is empty, or two columns are one field.
    """
    known = {name.lower(): name for name in topic.names} | {"validfrom" if topic.has_versions else "eventat": topic.kind.time}
    fields = [known.get(_plain(column), column.strip()) for column in columns]
    listed = ", ".join(columns)[:200]
    if topic.kind.key not in fields:
        raise SettingsError(f"{where}: found no column {topic.kind.key} among {listed}, expected one for the topic {topic.name}")
    if "" in fields:
        raise SettingsError(f"{where}: found a column without a name among {listed}, expected a name for each")
    if twice := sorted({field for field in fields if fields.count(field) > 1}):
        raise SettingsError(f"{where}: found more than one column for {twice[0]}, expected one")
    return fields


def missing_fields(topic: Topic, fields: Sequence[str]) -> list[str]:
    """The fields of a topic that no column is, without the time in words."""
    return [name for name in topic.names if name not in fields and name != topic.in_words]


def to_message(topic: Topic, fields: Sequence[str]) -> Callable[[Texts], KeyAndValue]:
    """A function from a row of texts to the key and value of its message; a text None is a null.

    Bytes that are no UTF-8 (as surrogates, see `surrogateescape`) stay as they are.
    """
    extra = [(name, place) for place, name in enumerate(fields) if name not in topic.names]
    template = "{" + ",".join(quoted(name).replace("%", "%%") + ":%s" for name in (*topic.names, *(name for name, _ in extra))) + "}"
    key_place, to_values = fields.index(topic.kind.key), values_of(topic, fields)

    def convert(row: Texts) -> KeyAndValue:
        value = template % (*to_values(row).values(), *(_text(row[place]) for _, place in extra))
        key = row[key_place]
        return None if key is None else _bytes(key), _bytes(value)

    return convert


def values_of(topic: Topic, fields: Sequence[str]) -> Callable[[Texts], dict[str, str]]:
    """A function from a row of texts to the JSON texts of the topic's fields, by name and in their order."""
    places = {field: fields.index(field.name) if field.name in fields else None for field in topic.fields}
    time, in_words = topic.kind.time, topic.in_words

    def convert(row: Texts) -> dict[str, str]:
        texts = {field: None if place is None else row[place] for field, place in places.items()}
        values = {field.name: _value(field, text) for field, text in texts.items()}
        if in_words:
            by_name = {field.name: text for field, text in texts.items()}
            values[time], values[in_words] = _event_time(by_name[time], by_name[in_words])
        return values

    return convert


def _value(field: Field, text: str | None) -> str:
    if text is None:
        return NULL
    if field.type == "timestamp":
        return _time(text)
    return number(text) if field.is_number and not field.is_quoted else quoted(text)


def _time(text: str) -> str:
    """A time as a JSON number: epoch milliseconds as they are written, or those of a time in words; else a JSON string."""
    millis = parse_time(text)
    return number(text) if millis is None else str(millis)


def _event_time(text: str | None, formatted: str | None) -> tuple[str, str]:
    """The time of an event and the same in words, from either. What cannot be read is null, with its text as the time in words."""
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
