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


def format_time(epoch_ms: int) -> str:
    """Epoch milliseconds as `yyyy-MM-dd HH:mm:ss.SSS` in UTC; raises OverflowError beyond the years 1 to 9999."""
    time = EPOCH + epoch_ms * MILLISECOND
    return f"{time:%Y-%m-%d %H:%M:%S}.{epoch_ms % 1000:03d}"
