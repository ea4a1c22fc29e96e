"""What maintenance must leave of a table: versions that readers, gates or releases open, and commits that a stream has not taken."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from spark_jobs import control
from spark_jobs.control import scope
from spark_jobs.control.verdicts import newest_verdicts
from spark_jobs.lake.retention import MARGIN_DAYS
from spark_jobs.lake.table import LAYERED
from spark_jobs.lake.tables import FOLLOWERS, LIVE_RESULTS, Table
from spark_jobs.lake.txn import applied
from spark_jobs.live import places
from spark_jobs.releases import retention
from spark_jobs.releases.releases import read_releases
from spark_jobs.runtime.settings import Settings


@dataclass(frozen=True)
class VersionsInUse:
    """The versions of a table that are still opened, and the first commit that the stream that reads it has yet to take, if any."""

    versions: tuple[int, ...]
    unread_from: int | None


def find(settings: Settings, table: Table, now: datetime) -> VersionsInUse:
    """What must stay of a table, as things are now. The caller holds the table's lease, or only asks."""
    head = table.open(settings).version()
    first = unread_from(settings, table)
    return VersionsInUse(tuple(sorted(_opened(settings, table, now))), first if first is not None and first <= head else None)


def _opened(settings: Settings, table: Table, now: datetime) -> set[int]:
    """The versions of a table that releases, savepoints and the newest verdicts name, and the one of silver that gold was made of."""
    if table.layer not in LAYERED:
        return set()
    # A release that is offered only because it is archived is read from its copy; a roll-back returns to the newest, copied or not.
    current = set(retention.current(settings, now - timedelta(days=MARGIN_DAYS)))
    releases = read_releases(settings, f"\"table\" = '{table.name}'")
    named: list[Mapping[str, int]] = [release.versions for release in releases if release.release_id in current]
    named += [savepoint.versions for savepoint in places.read_savepoints(settings)]
    # The next release names the judged versions, however old they are, also of a closed gate: an operator may release them.
    named.append({name: verdict.version for name, verdict in newest_verdicts(settings).items()})
    named.append(control.versions_read_by_gold(settings))  # its gate reads the same
    return {versions[table.name] for versions in named if table.name in versions}


def unread_from(settings: Settings, table: Table) -> int | None:
    """From which version on the next layer has yet to take a table's commits; None where no stream reads its commits.

    Silver that never ran reads bronze as it is then, and so does a table of gold that never followed silver.
    """
    if table.layer == "bronze":
        return _unread_by_silver(settings, table)
    if table in LIVE_RESULTS.values():
        return places.unread_from(settings, table)
    if table not in FOLLOWERS:
        return None
    application = control.following(settings, table)
    followed = (applied(settings, follower, application) for follower in FOLLOWERS[table])
    return min((done + 1 for done in followed if done is not None), default=None)


def _unread_by_silver(settings: Settings, bronze: Table) -> int | None:
    done = control.silver_batch(settings, bronze.topic)
    return scope.version_upto(bronze.open(settings), done) + 1 if done else None
