"""The records of runs that expire with the releases: verdicts with their reports, releases, audits.

They stay a day longer than LEDGER_RELEASE_DAYS, and longer where something still refers to them. The other control tables keep their
rows, because exactness rests on them.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from expectations.context import remove_reports
from spark_jobs import control, retention
from spark_jobs.lifetimes import MARGIN_DAYS
from spark_jobs.settings import Settings
from spark_jobs.tables import AUDITS, DECISIONS, QUALITY_RESULTS, RELEASES, Table

log = logging.getLogger(__name__)

Row = dict[str, Any]


def oldest(settings: Settings, now: datetime) -> datetime:
    """The moment before which a record has expired, unless something refers to it."""
    return now - timedelta(days=settings.release_days + MARGIN_DAYS)


def remove_rows(settings: Settings, table: Table, now: datetime) -> int:
    """Remove the expired rows of a control table in one commit; returns how many. The caller holds the table's lease."""
    if table not in _KEEPERS:
        return 0
    rows = control.read(settings, table)
    is_kept = _KEEPERS[table](settings, rows.to_pylist(), now)
    kept = [row for row in rows.to_pylist() if is_kept(row)]
    expired = rows.num_rows - len(kept)
    if expired:
        control.replace_held(settings, table, kept)
        log.info("%s: %d rows had expired, %d stay", table.name, expired, len(kept))
    return expired


def remove_expired_reports(settings: Settings, now: datetime) -> int:
    """Remove the reports of gates that are old and that no verdict names; returns how many files went."""
    named = {row["report"] for row in control.read(settings, QUALITY_RESULTS).to_pylist() if row["report"]}
    files, size = remove_reports(settings.quality, named, oldest(settings, now))
    if files:
        log.info("reports of gates: %d files (%.1f MB) had expired", files, size / 2**20)
    return files


def _keep_verdicts(settings: Settings, rows: list[Row], now: datetime) -> Callable[[Row], bool]:
    """Kept are the newest of each table that passed and that did not, those of offered releases, and those that a person decided about."""
    limit = oldest(settings, now)
    released = {pair for release in retention.offered(settings, now) for pair in release.versions.items()}
    decided = {row["run_id"] for row in control.read(settings, DECISIONS).to_pylist()}
    newest: dict[tuple[str, bool], datetime] = {}
    for row in rows:
        key = row["table"], row["success"]
        newest[key] = max(newest.get(key, row["_judged_at"]), row["_judged_at"])

    def is_kept(row: Row) -> bool:
        is_newest = row["_judged_at"] == newest[row["table"], row["success"]]
        return row["_judged_at"] >= limit or is_newest or row["run_id"] in decided or (row["table"], row["version"]) in released

    return is_kept


def _keep_releases(settings: Settings, rows: list[Row], now: datetime) -> Callable[[Row], bool]:
    """Kept are those that readers are offered, and those to which a person rolled back: an audit asks when they were published."""
    limit = oldest(settings, now)
    needed = {release.release_id for release in retention.offered(settings, now)}
    needed |= {row["release_id"] for row in control.read(settings, DECISIONS).to_pylist()}
    return lambda row: row["released_at"] >= limit or row["release_id"] in needed


def _keep_audits(settings: Settings, rows: list[Row], now: datetime) -> Callable[[Row], bool]:
    """Kept is the newest."""
    limit, newest = oldest(settings, now), max((row["audited_at"] for row in rows), default=None)
    return lambda row: row["audited_at"] >= limit or row["audited_at"] == newest


_KEEPERS: dict[Table, Callable[[Settings, list[Row], datetime], Callable[[Row], bool]]] = {
    QUALITY_RESULTS: _keep_verdicts,
    RELEASES: _keep_releases,
    AUDITS: _keep_audits,
}
