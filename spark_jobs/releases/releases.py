"""Releases: one commit in control.releases that names one version of every table, so that readers see all tables at one point."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from string import Template
from typing import Any

import pyarrow as pa

from spark_jobs import control
from spark_jobs.control.scope import newest_batch
from spark_jobs.control.verdicts import Verdict, newest_verdicts
from spark_jobs.lake import leases
from spark_jobs.lake.tables import BRONZE, BY_NAME, FOLLOWERS, GOLD, LAYERS, RELEASES, SILVER, Table
from spark_jobs.lake.txn import Txn
from spark_jobs.lake.versions import hold_same_rows
from spark_jobs.runtime.errors import GateClosed, LedgerError
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

_ROWS = Template("select * from t where $where")
_TIMES = "select release_id, min(released_at) as released_at from t group by release_id order by release_id"
_MOST_NAMED = 10


@dataclass(frozen=True)
class Release:
    """A release: for every table the version that it names, its rows and (bronze) its last batch."""

    release_id: int
    released_at: datetime
    versions: dict[str, int]
    rows: dict[str, int]
    last_batches: dict[str, int]


def publish(settings: Settings) -> int:
    """Release, for every table, the version that its gate passed; returns the release's number.

    When the newest release names these versions already, nothing is written and its number is returned. Raises GateClosed
    where a table was never judged, its newest verdict is not a pass, the layers were judged at different batches, or gold as it was judged
    is not of silver as it was judged; LedgerError where a roll-back was decided and is not carried out.
    """
    with leases.hold(settings, [RELEASES], owner="release"):
        if not control.is_rolled_back(settings):
            raise LedgerError("a roll-back was decided and is not carried out, expected it to be: run release again, which does that first")
        verdicts = newest_verdicts(settings)
        _refuse_unjudged(verdicts)
        _refuse_other_silver(settings, verdicts)
        versions = {name: verdict.version for name, verdict in verdicts.items()}
        current = latest_release(settings)
        if current and current.versions == versions:
            log.info("release %d names these versions already", current.release_id)
            return current.release_id
        number = current.release_id + 1 if current else 1
        runs = {table.topic: control.newest_run(settings, "silver", f"silver.{table.topic}") for table in BRONZE}
        rows = [_row(settings, number, table, verdicts[table.name], runs) for table in BY_NAME.values()]
        now = datetime.now(UTC)
        kill_point("before a release")
        control.append_under_lease(settings, RELEASES, [row | {"released_at": now} for row in rows], once=Txn("release", number))
        kill_point("after a release")
    upto = ", ".join(f"{table.name} {verdicts[table.name].last_batch}" for table in BRONZE)
    log.info("release %d: %d tables, bronze up to batch %s", number, len(rows), upto)
    return number


def read_releases(settings: Settings, where: str = "true") -> list[Release]:
    """The releases on record whose rows meet a condition, the newest last. There are thousands of them: ask for no more than is needed."""
    by_number: dict[int, list[dict[str, Any]]] = {}
    for row in control.select(settings, RELEASES, _ROWS.substitute(where=where)):
        by_number.setdefault(int(row["release_id"]), []).append(row)
    return [_release(by_number[number]) for number in sorted(by_number)]


def times_of_releases(settings: Settings) -> dict[int, datetime]:
    """When each release on record was published, by its number, the newest last."""
    return {int(row["release_id"]): row["released_at"] for row in control.select(settings, RELEASES, _TIMES)}


def find_release(settings: Settings, release_id: int) -> Release:
    """A release by its number, however old; raises LedgerError when there never was one of that number."""
    if found := read_releases(settings, f"release_id = {release_id}"):
        return found[0]
    known = times_of_releases(settings)
    if 0 < release_id < max(known, default=0):
        raise LedgerError(f"release {release_id} has expired and is not on record any more: open the newest one, {max(known)}")
    named = ", ".join(map(str, list(known)[-_MOST_NAMED:]))
    raise LedgerError(f"there is no release {release_id}: found {'... ' if len(known) > _MOST_NAMED else ''}{named or 'none'}")


def newest_release(settings: Settings) -> Release:
    """The release that readers see; raises LedgerError when there is none."""
    if release := latest_release(settings):
        return release
    raise LedgerError(f"nothing was released: found no release in {RELEASES.path(settings)}, expected one: run the pipeline to a release")


def latest_release(settings: Settings) -> Release | None:
    """The release that readers see; None where nothing was released yet."""
    return next(iter(read_releases(settings, "release_id = (select max(release_id) from t)")), None)


def has_unreleased_batches(settings: Settings) -> bool:
    """Whether bronze has batches that the newest release lacks, or silver or gold changed without any, as by a re-drive or backfill."""
    release = latest_release(settings)
    if any((newest_batch(settings, table) or 0) > _last_batch(release, table) for table in BRONZE):
        return True
    versions = release.versions if release else {}
    heads = {table: table.open(settings).version() for table in (*SILVER, *GOLD) if table.name in versions}
    return any(not hold_same_rows(settings, table, versions[table.name], head) for table, head in heads.items())


def holds_what_silver_read(settings: Settings, release: Release | None) -> bool:
    """Whether a release (None: that before the first one) holds every bronze batch that silver has read."""
    read = control.silver_batches(settings)
    return all(read[table.topic] <= _last_batch(release, table) for table in BRONZE)


def _release(rows: Iterable[dict[str, Any]]) -> Release:
    named = {str(row["table"]): row for row in rows}
    first = next(iter(named.values()))
    return Release(
        release_id=first["release_id"],
        released_at=first["released_at"],
        versions={name: row["version"] for name, row in named.items()},
        rows={name: row["rows"] for name, row in named.items()},
        last_batches={name: row["last_batch"] for name, row in named.items() if row["last_batch"] is not None},
    )


def _last_batch(release: Release | None, bronze: Table) -> int:
    return release.last_batches.get(bronze.name, 0) if release else 0


def unreleased_since(settings: Settings) -> datetime | None:
    """When the first bronze rows were written that the newest release lacks; None when it holds them all.

    From the files' statistics: of a file that also holds released rows (compaction makes such), their time is taken.
    """
    release = latest_release(settings)
    times = []
    for table in BRONZE:
        if table.exists(settings):
            files = pa.table(table.open(settings).get_add_actions(flatten=True))
            known = files.select(["min._ingested_at", "max._batch"]).to_pylist() if files.num_rows else []
            times += [file["min._ingested_at"] for file in known if (file["max._batch"] or 0) > _last_batch(release, table)]
    return min(times, default=None)


def _refuse_unjudged(verdicts: dict[str, Verdict]) -> None:
    if missing := [name for name in BY_NAME if name not in verdicts]:
        raise GateClosed(f"no gate has judged {', '.join(missing)}: run gate bronze, gate silver and gate gold first")
    if closed := [name for name in BY_NAME if not verdicts[name].passed]:
        reports = ", ".join(sorted({str(verdicts[name].report) for name in closed}))
        raise GateClosed(f"the gate is closed for {', '.join(closed)}: see {reports}")
    for topic in (table.topic for table in BRONZE):
        tables = [f"bronze.{topic}", f"silver.{topic}", *(table.name for table in LAYERS["gold"] if table.topic == topic)]
        found = {name: verdicts[name].last_batch for name in tables}
        if len(set(found.values())) > 1:
            text = ", ".join(f"{name} up to batch {batch}" for name, batch in found.items())
            raise GateClosed(f"the gates judged different batches ({text}): run silver, gold and their gates again")


def _refuse_other_silver(settings: Settings, verdicts: dict[str, Verdict]) -> None:
    """Gold must have been made of exactly the silver that is released beside it: each of its tables as it was judged."""
    judged = {name: verdict.version for name, verdict in verdicts.items()}
    wrong = [
        f"{table.name} at version {judged[table.name]} is of {source.name} at version {found}, but version {judged[source.name]} was judged"
        for source, followers in FOLLOWERS.items()
        for application in [control.following(settings, source)]
        for table in followers
        if (found := _other_silver(settings, source, judged[source.name], table, judged[table.name], application)) is not None
    ]
    if wrong:
        raise GateClosed(f"gold was made of other silver: {', '.join(wrong)}: run gate silver, gold and gate gold again")


def _other_silver(settings: Settings, source: Table, version: int, gold: Table, judged: int, application: str) -> int | None:
    """Of which version of a silver table a gold table is, where that does not hold the rows of `version`; None where it does.

    Its commits say so, under this `application`. One that changed no row is not judged again, so the newest one with the judged rows counts
    as well.
    """
    now = gold.open(settings)
    versions = [judged, now.version()] if hold_same_rows(settings, gold, judged, now.version()) else [judged]
    taken = [gold.open(settings, each).transaction_version(application) for each in versions]
    followed = [each for each in taken if each is not None]
    if any(hold_same_rows(settings, source, each, version) for each in followed):
        return None
    if not followed and control.count(source.open(settings, version=version)) == 0:  # no change that it could have taken
        return None
    return max(followed, default=0)


def _row(settings: Settings, number: int, table: Table, verdict: Verdict, runs: dict[str, dict[str, Any] | None]) -> dict[str, Any]:
    made = runs[table.topic] if table.layer == "silver" else None
    return {
        "release_id": number,
        "table": table.name,
        "version": verdict.version,
        "rows": control.count(table.open(settings, version=verdict.version)),
        "last_batch": verdict.last_batch if table.layer == "bronze" else None,
        "rules_version": made["rules_version"] if made else None,
    }
