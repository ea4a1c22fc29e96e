"""Figures as people read them: numbers with separators, times in UTC, ages and sizes in units that fit."""

import re
from datetime import datetime, timedelta

NOTHING = "\u2013"
_AGES = (
    (63_115_200, 31_557_600, "year"),  # from two of a unit on: 18 months, then 2 years
    (5_259_600, 2_629_800, "month"),
    (172_800, 86_400, "day"),
    (7_200, 3_600, "hour"),
    (120, 60, "minute"),
)


def number(value: float | None) -> str:
    """`1,234,567`; a dash where nothing is known."""
    return NOTHING if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def grouped(text: str) -> str:
    """A text that begins with a whole number, as found values do, with that number's separators."""
    return re.sub(r"^[0-9]{4,15}(?=$|;)", lambda found: f"{int(found[0]):,}", text)


def counted(value: int, one: str, many: str = "") -> str:
    """`1 row`, `1,200 rows`."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def age(length: timedelta | float) -> str:
    """A length of time in its largest unit of which there are two: `90 seconds`, `12 years`. A negative one is `0 seconds`."""
    seconds = max(0.0, length.total_seconds() if isinstance(length, timedelta) else length)
    for least, unit, name in _AGES:
        if seconds >= least:
            return f"{int(seconds // unit):,} {name}s"
    return f"{seconds:.3g} second{'' if seconds == 1 else 's'}" if seconds < 10 else f"{seconds:.0f} seconds"


def share(part: float, whole: float | None) -> str:
    """A share in percent, never rounded to nothing or to all: `0.02 %`, `99.98 %`."""
    if not whole:
        return NOTHING
    percent = 100 * part / whole
    if 0 < percent < 0.01:
        return "< 0.01 %"
    if 99.99 < percent < 100:
        return "> 99.99 %"
    return f"{percent:.2f}".rstrip("0").rstrip(".") + " %"


def size(count: float | None) -> str:
    """Bytes in a decimal unit: `1.2 MB`."""
    if count is None:
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def moment(at: datetime | None) -> str:
    """A time to the minute: `2026-03-01 01:35`."""
    return f"{at:%Y-%m-%d %H:%M}" if at else NOTHING
