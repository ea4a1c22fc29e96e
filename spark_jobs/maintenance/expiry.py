"""The records of runs that expire with the releases: verdicts with their reports, releases, audits; and what killed processes left.

They stay a day longer than LEDGER_RELEASE_DAYS, and longer if something still refers to them; but of the reports of verdicts that passed
only one an hour stays after a day. The other control tables keep their rows, because the audit and roll-backs need them.
"""

import logging
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Any

from expectations.context import remove_reports
from spark_jobs import control
from spark_jobs.lake.retention import MARGIN_DAYS
from spark_jobs.lake.tables import AUDITS, DECISIONS, QUALITY_RESULTS, RELEASES, Table
from spark_jobs.releases import archive, retention
from spark_jobs.releases.releases import read_releases
from spark_jobs.runtime import scratch
from spark_jobs.runtime.atomic_files import remove_drafts
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

Row = dict[str, Any]


def oldest(settings: Settings, now: datetime) -> datetime:
    """The time before which a record has expired, unless something refers to it."""
    return now - timedelta(days=settings.release_days + MARGIN_DAYS)


def remove_rows(settings: Settings, table: Table, now: datetime) -> int:
    """Remove the expired rows of a control table in one commit; returns how many. The caller holds the table's lease."""
    if table not in _EXPIRING:
        return 0
    time, find_needed = _EXPIRING[table]
    rows, limit = control.read(settings, table), oldest(settings, now)
    is_needed = find_needed(settings, rows.filter(rows[time].is_valid()).to_pylist(), now)
    kept = [row for row in rows.to_pylist() if row[time] is None or row[time] >= limit or is_needed(row)]
    expired: int = rows.num_rows - len(kept)
    if expired:
        control.replace_under_lease(settings, table, kept)
        log.info("%s: %d rows had expired, %d stay", table.name, expired, len(kept))
    return expired


def remove_expired_reports(settings: Settings, now: datetime) -> int:
    """Remove the reports of gates that are older than a day, and that nobody will ask for; returns how many files went.

    A pipeline that is always busy leaves 90,000 files a day. Of the verdicts on record those keep their reports of which an expectation
    failed, if only with a warning, and those of archived releases; of the others the last of each table and hour.
    """
    rows = [row for row in control.read(settings, QUALITY_RESULTS).to_pylist() if row["report"]]
    rows.sort(key=lambda row: row["_judged_at"])
    last = {(row["table"], f"{row['_judged_at']:%Y%m%d%H}", row["success"]): row["report"] for row in rows}
    archived = _versions_of(settings, archive.archived(settings))
    named = {row["report"] for row in rows if row["failed"] or (row["table"], row["version"]) in archived}
    files, size = remove_reports(settings.quality, named.union(last.values()), now - timedelta(days=1))
    if files:
        log.info("reports of gates: %d files (%.1f MB) had expired", files, size / 2**20)
    return files


def remove_leftovers(settings: Settings, now: datetime) -> int:
    """Remove what killed processes left: what Spark held on the disk, and drafts of files that are a day old; returns how many."""
    limit = (now - timedelta(days=1)).timestamp()
    removed = scratch.sweep(settings) + remove_drafts(settings.run_folder, limit)
    if removed:
        log.info("%d files and folders of killed processes removed", removed)
    return removed


def _versions_of(settings: Settings, numbers: Collection[int]) -> set[tuple[str, int]]:
    """Each table with its version in one of these releases."""
    if not (wanted := set(numbers)):
        return set()
    found = read_releases(settings, f"release_id between {min(wanted)} and {max(wanted)}")
    return {pair for release in found if release.release_id in wanted for pair in release.versions.items()}


def _find_verdicts(settings: Settings, rows: list[Row], now: datetime) -> Callable[[Row], bool]:
    """Needed are the newest of each table that passed and that did not, those of offered releases, and those a person decided about."""
    released = _versions_of(settings, retention.offered(settings, now))
    decided = {row["run_id"] for row in control.read(settings, DECISIONS).to_pylist()}
    newest: dict[tuple[str, bool], datetime] = {}
    for row in rows:
        key = row["table"], row["success"]
        newest[key] = max(newest.get(key, row["_judged_at"]), row["_judged_at"])

    def is_needed(row: Row) -> bool:
        is_newest = row["_judged_at"] == newest[row["table"], row["success"]]
        return is_newest or row["run_id"] in decided or (row["table"], row["version"]) in released

    return is_needed


def _find_releases(settings: Settings, _rows: list[Row], now: datetime) -> Callable[[Row], bool]:
    """Needed are those that readers are offered, and those to which a person rolled back: an audit asks when they were published."""
    needed = set(retention.offered(settings, now))
    needed |= {row["release_id"] for row in control.read(settings, DECISIONS).to_pylist()}
    return lambda row: row["release_id"] in needed


def _find_audits(_settings: Settings, rows: list[Row], _now: datetime) -> Callable[[Row], bool]:
    """Needed is the newest."""
    newest = max((row["audited_at"] for row in rows), default=None)
    return lambda row: row["audited_at"] == newest


# Of each table the column that says how old a row is, and who says which rows stay however old they are.
_EXPIRING: dict[Table, tuple[str, Callable[[Settings, list[Row], datetime], Callable[[Row], bool]]]] = {
    QUALITY_RESULTS: ("_judged_at", _find_verdicts),
    RELEASES: ("released_at", _find_releases),
    AUDITS: ("audited_at", _find_audits),
}
