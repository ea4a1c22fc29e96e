"""How texts become values of a topic's JSON.

Numbers stay the digits they were written with; nothing passes through a float.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

NULL = "null"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)

JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_PLAIN_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.,]([0-9]{1,9}))? ?(?:Z|([+-][0-9]{2})(?::?([0-9]{2}))?)?", re.ASCII
)
_quote: Callable[[str], str] = json.JSONEncoder(ensure_ascii=False).encode


def quoted(text: str) -> str:
    """A JSON string."""
    return _quote(text)


def quoted_or_null(text: str) -> str:
    """A JSON string, or null for an empty text."""
    return _quote(text) if text else NULL


def number(text: str) -> str:
    """A JSON number with exactly the digits of the text; null for an empty text, a JSON string for what is no number."""
    if JSON_NUMBER.fullmatch(text):
        return text
    if _PLAIN_NUMBER.fullmatch(text):
        return format(Decimal(text), "f")
    return quoted_or_null(text)


def parse_time(text: str) -> int | None:
    """Epoch milliseconds of a time such as 2013-01-01T08:23:33.001Z or 2013-01-01 08:23:33+02; UTC where it names no zone."""
    match = _TIME.fullmatch(text)
    if not match:
        return None
    date, clock, fraction, hours, minutes = match.groups()
    try:
        time = datetime.fromisoformat(f"{date}T{clock}").replace(tzinfo=UTC)
        offset = timedelta(hours=int(hours or 0), minutes=int(f"{(hours or '+')[0]}{minutes or 0}"))
        return (time - offset - EPOCH) // MILLISECOND + int((fraction or "").ljust(3, "0")[:3])
    except (ValueError, OverflowError):
        return None


def format_time(epoch_ms: int) -> str:
    """Epoch milliseconds as `yyyy-MM-dd HH:mm:ss.SSS` in UTC; raises OverflowError beyond the years 1 to 9999."""
    time = EPOCH + epoch_ms * MILLISECOND
    return f"{time:%Y-%m-%d %H:%M:%S}.{epoch_ms % 1000:03d}"
