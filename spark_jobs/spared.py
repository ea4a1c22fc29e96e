"""What upkeep of a table must leave in place: versions of releases that readers are offered, and commits that a stream has not taken."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from deltalake import DeltaTable

from spark_jobs import control, retention, written
from spark_jobs.lifetimes import MARGIN_DAYS
from spark_jobs.settings import Settings
from spark_jobs.streaming import places
from spark_jobs.tables import FOLLOWERS, LIVE_TRANSACTIONS, Table


@dataclass(frozen=True)
class Spared:
    """The versions of a table that offered releases name, and the first commit that the stream behind it has yet to take, if any."""

    versions: tuple[int, ...]
    unread_from: int | None


def spared(settings: Settings, table: Table, now: datetime) -> Spared:
    """What must stay of a table, as things are now. The caller holds the table's lease, or only asks."""
    # A release that is offered only because it was kept is read from its copy; a roll-back returns to the newest, copied or not.
    releases = retention.current(settings, now - timedelta(days=MARGIN_DAYS))
    named = {release.versions[table.name] for release in releases if table.name in release.versions}
    named |= {savepoint.versions[table.name] for savepoint in places.read_savepoints(settings) if table.name in savepoint.versions}
    head = DeltaTable(str(table.path(settings))).version()
    first = unread_from(settings, table)
    return Spared(tuple(sorted(named)), first if first is not None and first <= head else None)


def unread_from(settings: Settings, table: Table) -> int | None:
    """From which version on the next layer has yet to take a table's commits; None where no stream reads its commits.

    Silver that never ran reads bronze as it is then, and so does a table of gold that never followed silver.
    """
    if table.layer == "bronze":
        return _unread_by_silver(settings, table)
    if table == LIVE_TRANSACTIONS:
        return places.unread_from(settings)
    if table not in FOLLOWERS:
        return None
    application = control.following(settings, table)
    applied = (_applied(settings, follower, application) for follower in FOLLOWERS[table])
    return min((done + 1 for done in applied if done is not None), default=None)


def _unread_by_silver(settings: Settings, bronze: Table) -> int | None:
    done = control.last_batch(settings, "silver", bronze.name.replace("bronze.", "silver."))
    return written.version_upto(DeltaTable(str(bronze.path(settings))), done) + 1 if done else None


def _applied(settings: Settings, table: Table, application: str) -> int | None:
    path = str(table.path(settings))
    return DeltaTable(path).transaction_version(application) if DeltaTable.is_deltatable(path) else None
