"""What of a quarantined record may be seen on a page: its field names, and of values the kind and size.

Content is shown only where a whole value looks like what it should be and is no personal data: ids, amounts, times and types of
transactions and accounts. Of customers no content is shown. Silver holds the values themselves.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from include.quality_page.words import counted

LARGEST = 65_536  # bytes; a larger value is not read
MOST_FIELDS = 40
_MAGIC, _HEADER_BYTES = b"\0", 5  # https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop: the wire format

_ID = re.compile(r"[A-Z][0-9]{1,10}")
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,6})?([eE][+-]?[0-9]{1,3})?")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?Z?)?")
_TYPE = re.compile(r"(?i)credit|debit")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
_FOUND = r"(?:string|number|boolean|null|object|array|nothing|[0-9]+ bytes of \w+|no \w+)\b"

_SHOWN = {
    "transactions": {
        "transactionId": _ID,
        "accountId": _ID,
        "customerId": _ID,
        "eventTime": _NUMBER,
        "eventTimeFormatted": _TIME,
        "type": _TYPE,
        "amount": _NUMBER,
        "balance": _NUMBER,
    },
    "accounts": {"accountId": _ID, "districtId": _NUMBER, "creationDate": _TIME, "updateTime": _NUMBER},
}


class _Number(str):
    """A JSON number as it was written: of any length, and never rounded."""


def mask_key(key: bytes | None) -> str:
    """The key of a Kafka record: itself where it is an id, else its size."""
    if key is None:
        return "no key"
    text = _decode(key)
    return text if text is not None and _ID.fullmatch(text) else f"{len(key):,} bytes"


def mask_value(topic: str, value: bytes | None, size: int | None = None) -> list[tuple[str, str]]:
    """(field, what may be seen of its value) of a record; one pair with an empty name for what is no JSON object.

    `size` is that of the whole value where it was too large to be read (`value` is None then). Raises nothing, whatever the bytes are.
    """
    if value is None or len(value) > LARGEST:
        found = size if value is None else len(value)
        return [("", "no value" if found is None else f"{found:,} bytes, too many to be shown")]
    if value[:1] == _MAGIC and len(value) > _HEADER_BYTES:
        return [("", _behind_header(value))]
    text = _decode(value)
    if text is None:
        return [("", f"{len(value):,} bytes, not UTF-8")]
    try:
        fields = json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_refuse)
    except ValueError:
        return [("", f"{len(value):,} bytes, not JSON")]
    except RecursionError:
        return [("", f"{len(value):,} bytes, nested too deep")]
    if not isinstance(fields, dict):
        return [("", f"not an object: {_kind(fields)}")]
    shown = _SHOWN.get(topic, {})
    masked = [(_mask_name(name), _mask(fields[name], shown.get(name))) for name in list(fields)[:MOST_FIELDS]]
    return masked + ([("", f"{len(fields) - MOST_FIELDS:,} more fields")] if len(fields) > MOST_FIELDS else [])


def _behind_header(value: bytes) -> str:
    """What a producer with a schema registry has sent: five bytes that name the schema, then the record in JSON or another format."""
    schema, rest = int.from_bytes(value[1:_HEADER_BYTES], "big"), value[_HEADER_BYTES:]
    is_json = rest[:1] == b"{" and rest[-1:] == b"}" and _decode(rest) is not None
    kind = "bytes of JSON" if is_json else "bytes that are not JSON, as of Avro or Protobuf"
    return f"the header of a schema registry (schema {schema}) before {len(rest):,} {kind}"


def mask_detail(rules: Sequence[str], detail: str | None) -> list[str]:
    """What silver noted of each broken rule, without the values: `amount_scale: found number`."""
    found = (re.search(rf"(?:^|; ){re.escape(rule)}: found ({_FOUND})", detail or "") for rule in rules)
    return [f"{rule}: found {match[1]}" if match else rule for rule, match in zip(rules, found, strict=True)]


def _mask(value: Any, pattern: re.Pattern[str] | None) -> str:
    is_alike = isinstance(value, str) and isinstance(value, _Number) == (pattern is _NUMBER)
    return str(value) if is_alike and pattern is not None and pattern.fullmatch(value) else _kind(value)


def _mask_name(name: str) -> str:
    return name if _NAME.fullmatch(name) else f"(a name of {counted(len(name), 'character')})"


def _kind(value: Any) -> str:
    if isinstance(value, _Number):
        return f"number of {counted(len(value), 'character')}"
    if isinstance(value, str):
        return f"text of {counted(len(value), 'character')}"
    if isinstance(value, dict | list):
        kind, part = ("object", "field") if isinstance(value, dict) else ("array", "element")
        return f"{kind} of {counted(len(value), part)}"
    return "null" if value is None else "true or false"


def _decode(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
