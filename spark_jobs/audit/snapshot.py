"""What is audited: one version of every table, and from the control tables what silver and gold have read. Starts no JVM."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from deltalake import DeltaTable

from spark_jobs import control
from spark_jobs.control import backfills
from spark_jobs.control.verdicts import ROLL_BACK
from spark_jobs.lake.tables import BACKFILLS, BATCHES, BRONZE, CORRECTIONS, DECISIONS, FOLLOWERS, GOLD, REDRIVES, SILVER, Table
from spark_jobs.lake.topics import TOPICS
from spark_jobs.lake.versions import rows_since
from spark_jobs.releases import archive, retention
from spark_jobs.releases.releases import Release, find_release
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings


@dataclass(frozen=True)
class Pinned:
    """One version of one table, in the folder where it lies."""

    path: str
    version: int


@dataclass(frozen=True)
class Batches:
    """Bronze batches up to `last`, from where the row before this one ends: by which rules silver judged them first, and when."""

    last: int
    rules: str
    at: datetime


@dataclass(frozen=True)
class Step:
    """A step of a backfill: it judged the rows of [start, end) again, those of each topic by these rules."""

    start: datetime
    end: datetime
    rules: dict[str, str]
    at: datetime


@dataclass(frozen=True)
class Snapshot:
    """What is audited. `release` is None for the tables as they are now.

    `tables`: every table of bronze and silver, of gold those that are there, and the control tables of corrections and re-drives.
    `batches`: by topic. `read`: of silver's tables the versions that gold was made of; none where gold never ran.
    `redrives_upto`: by silver table, the version that the last re-drive in question gave it (None: all count).
    `withdrawn`: times (after, up to) whose re-drives a roll-back has undone.
    """

    release: Release | None
    tables: dict[str, Pinned]
    batches: dict[str, tuple[Batches, ...]]
    steps: tuple[Step, ...]
    read: dict[str, int]
    redrives_upto: dict[str, int] | None
    withdrawn: tuple[tuple[datetime, datetime], ...]

    def last_batch(self, topic: str) -> int:
        """The last bronze batch of a topic that counts; 0 when there is none."""
        return self.batches[topic][-1].last if self.batches[topic] else 0

    @property
    def upto(self) -> datetime | None:
        """After this time, what happened does not count; None: all does."""
        return self.release.released_at if self.release else None


def of_now(settings: Settings) -> Snapshot:
    """The tables as they are now. The caller holds the leases of silver and gold during this call only.

    Raises LedgerError where one of their jobs stopped halfway, so that its tables cannot agree.
    """
    if not control.is_rolled_back(settings):
        raise LedgerError("a roll-back was decided and is not carried out, expected it to be: run silver, which does that first")
    backfills.refuse_halfway(settings)
    read = control.versions_read_by_gold(settings)
    wanted = (*BRONZE, *SILVER, *(GOLD if read else ()), REDRIVES, CORRECTIONS)
    found = {table: table.open(settings) for table in wanted if table.exists(settings)}
    if missing := [table.name for table in wanted if table not in found]:
        raise LedgerError(
            f"found no {', '.join(missing)} in {settings.warehouse}, expected every table: run silver and gold, which create them"
        )
    _refuse_halfway(settings, found, read)
    tables = {table.name: Pinned(str(table.path(settings)), delta.version()) for table, delta in found.items()}
    batches = {table.topic: tuple(_batches(settings, table)) for table in BRONZE}
    withdrawn = tuple(_withdrawn(settings, None))
    return Snapshot(None, tables, batches, tuple(_steps(settings, None, withdrawn)), read, None, withdrawn)


def of_release(settings: Settings, number: int) -> Snapshot:
    """The tables as a release names them. Raises SettingsError for an unknown or expired release."""
    try:
        release = retention.find_offered(settings, number)
        opened = {name: archive.open_table(settings, release, name) for name in release.versions}
    except LedgerError as error:
        raise SettingsError(f"--as-of: {error}") from None
    tables = {name: Pinned(delta.table_uri, delta.version()) for name, delta in opened.items()}
    for table in (REDRIVES, CORRECTIONS):
        tables[table.name] = Pinned(str(table.path(settings)), table.open(settings).version())
    batches = {table.topic: tuple(_batches(settings, table, release.last_batches.get(table.name, 0))) for table in BRONZE}
    withdrawn = tuple(_withdrawn(settings, release.released_at))
    read = {table.name: release.versions[table.name] for table in FOLLOWERS}
    return Snapshot(release, tables, batches, tuple(_steps(settings, release, withdrawn)), read, release.versions, withdrawn)


def has_run(settings: Settings) -> bool:
    """Whether silver has ever taken a batch."""
    return BATCHES.exists(settings) and any(_batches(settings, table) for table in BRONZE)


def is_read(settings: Settings, snapshot: Snapshot, table: Table) -> bool:
    """Whether gold has read exactly these rows of a table of silver, by its log."""
    if snapshot.release:
        return True  # no other silver is released beside gold
    folder = table.path(settings)
    return rows_since(folder, snapshot.tables[table.name].version) == rows_since(folder, snapshot.read[table.name])


def _refuse_halfway(settings: Settings, found: dict[Table, DeltaTable], read: dict[str, int]) -> None:
    """Raise LedgerError where a table was brought further than the record of its job says: that job died before it was done."""
    application = control.application(settings, "silver")
    for table in SILVER:
        done = control.last_batch(settings, "silver", f"silver.{table.topic}")
        if (found[table].transaction_version(application) or 0) > done:
            raise LedgerError(
                f"silver stopped halfway: {table.name} has batches after {done}, expected all of its tables to have them: run silver again"
            )
    for followed, followers in FOLLOWERS.items() if read else ():
        name = control.following(settings, followed)
        for table in followers:
            taken = found[table].transaction_version(name) or 0
            if rows_since(followed.path(settings), taken) > read[followed.name]:
                raise LedgerError(
                    f"gold stopped halfway: {table.name} follows version {taken} of {followed.name}, "
                    f"expected version {read[followed.name]} in all tables: run gold again"
                )


def _batches(settings: Settings, bronze: Table, upto: int | None = None) -> list[Batches]:
    rows = control.batches(settings, "silver", f"silver.{bronze.topic}")
    taken = [row for row in rows if upto is None or row["first_batch"] <= upto]
    return [Batches(min(row["last_batch"], upto or row["last_batch"]), row["rules_version"], row["finished_at"]) for row in taken]


def _withdrawn(settings: Settings, upto: datetime | None) -> Iterator[tuple[datetime, datetime]]:
    """From the release that a roll-back returned to until it was decided. What tells of re-drives without any change may have stayed."""
    for row in control.read(settings, DECISIONS).to_pylist():
        if row["choice"] == ROLL_BACK and (upto is None or row["decided_at"] <= upto):
            first = find_release(settings, row["release_id"]).released_at if row["release_id"] else datetime.min.replace(tzinfo=UTC)
            yield first, row["decided_at"]


def _steps(settings: Settings, release: Release | None, withdrawn: tuple[tuple[datetime, datetime], ...]) -> Iterator[Step]:
    """The steps of backfills that count, in the order in which they were done."""
    for row in sorted(control.read(settings, BACKFILLS).to_pylist(), key=lambda row: row["number"]):
        at = row["recorded_at"]
        is_later = release is not None and (at > release.released_at or not backfills.is_of_release(row, release.versions))
        if row["state"] == "done" and not is_later and not any(after < at <= upto for after, upto in withdrawn):
            yield Step(row["step_start"], row["step_end"], _rules(row), at)


def _rules(row: dict[str, Any]) -> dict[str, str]:
    """By topic the rules by which a step judged; only of those that it was asked for."""
    of_part = {topic.name for topic in TOPICS if backfills.part_of(topic) == row["part"]}
    return {
        topic: version
        for topic, version in json.loads(row["rules_versions"]).items()
        if f"silver.{topic}" in row["tables"] and topic in of_part
    }
