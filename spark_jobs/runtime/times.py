"""Times, all in UTC: from and to Spark's numbers, and as they are written on a command line."""

from datetime import UTC, date, datetime, time, timedelta

from spark_jobs.runtime.errors import SettingsError

ALWAYS = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def from_micros(micros: int | None) -> datetime | None:
    """A time from Spark; as a number, because a collected timestamp would take the zone of this machine."""
    return None if micros is None else _EPOCH + micros * _MICROSECOND


def to_micros(time: datetime) -> int:
    """Microseconds since the epoch."""
    return (time - _EPOCH) // _MICROSECOND


def parse_time(text: str, option: str) -> datetime:
    """An ISO 8601 date (midnight) or time, in UTC; without a zone it is UTC. Raises SettingsError, which names the option."""
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise SettingsError(
            f"{option}: found {text!r}, expected a date or time in ISO 8601 such as 2013-01-05 or 2013-01-05T10:30:00Z"
        ) from None


def parse_range(start: str | None, end: str | None) -> tuple[datetime, datetime]:
    """The range [start, end) of a command line, in UTC, without end on a side that is not given; raises SettingsError when it is none."""
    first, after = parse_time(start, "--start") if start else ALWAYS[0], parse_time(end, "--end") if end else ALWAYS[1]
    if first >= after:
        raise SettingsError(f"found --start {to_text(first)} and --end {to_text(after)}, expected a start before the end")
    return first, after


def to_text(time: datetime) -> str:
    """A time in UTC by ISO 8601, with `Z`."""
    return time.isoformat().replace("+00:00", "Z")


def midnight(day: date) -> datetime:
    """Midnight of a day."""
    return datetime.combine(day, time(), UTC)
