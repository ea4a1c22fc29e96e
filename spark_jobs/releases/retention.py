"""How long releases are offered to readers, and what of it the tables must know."""

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from spark_jobs.lake.retention import properties_of
from spark_jobs.lake.tables import Table
from spark_jobs.releases import archive
from spark_jobs.releases.releases import Release, find_release, newest_release, times_of_releases
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)


def current(settings: Settings, now: datetime) -> list[int]:
    """The numbers of the releases that are offered from the tables' own files, the newest last: it, and each whose days are not over yet.

    They count from when its successor took its place: until then it is what a reader gets who asks for no number.
    """
    return _current(settings, times_of_releases(settings), now)


def _current(settings: Settings, times: Mapping[int, datetime], now: datetime) -> list[int]:
    oldest = now - timedelta(days=settings.release_days)
    # The later of both times: of two releases the first may seem to be the younger one, once a clock was set back.
    earlier = [one for one, successor in pairwise(times) if max(times[one], times[successor]) >= oldest]
    return earlier + list(times)[-1:]


def offered(settings: Settings, now: datetime) -> list[int]:
    """The releases that readers may open, the newest last."""
    return list(times_of_offered(settings, now))


def times_of_offered(settings: Settings, now: datetime) -> dict[int, datetime]:
    """When each release that readers may open was published, by its number, the newest last."""
    times = times_of_releases(settings)
    offers = archive.archived(settings).union(_current(settings, times, now))
    return {number: at for number, at in times.items() if number in offers}


def find_offered(settings: Settings, release_id: int | None = None, now: datetime | None = None) -> Release:
    """A release by its number, or the newest; raises LedgerError when there is none of that number, or it has expired."""
    newest = newest_release(settings)
    if release_id is None or release_id == newest.release_id:
        return newest
    wanted = find_release(settings, release_id)
    if release_id not in offered(settings, now or datetime.now(UTC)):
        raise LedgerError(
            f"release {release_id} of {wanted.released_at:%Y-%m-%d} has expired: an older release that is not archived is "
            f"offered for {settings.release_days} days (LEDGER_RELEASE_DAYS); open the newest one, {newest.release_id}"
        )
    return wanted


def find_asked(settings: Settings, number: int | None, option: str = "", now: datetime | None = None) -> Release:
    """`find_offered` for a number from a command line: raises SettingsError, which names the option, where it offers none."""
    try:
        return find_offered(settings, number, now)
    except LedgerError as error:
        raise SettingsError(f"{option}: {error}" if option else str(error)) from None


def bring_up_to_date(settings: Settings, tables: Iterable[Table]) -> None:
    """Give tables the properties that follow from the settings and their layer, where they have others. The caller holds their leases."""
    for table in tables:
        present = table.open(settings).metadata().configuration
        if changed := {name: value for name, value in properties_of(settings, table).items() if present.get(name) != value}:
            table.open_to_write(settings).alter.set_table_properties(changed)
            log.info("%s: %s", table.name, ", ".join(f"{name} is {value}" for name, value in changed.items()))
