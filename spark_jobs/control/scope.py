"""What a layer's job wrote and no gate has passed yet: its batches, and the versions that hold them.

Reads Delta without Spark. Tables that one job writes together from one bronze table (all of gold; silver.transactions with its
duplicates, late rows and quarantine) are judged together, over the same batches.
"""

import json
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_jobs import control
from spark_jobs.control import backfills, rebuilt
from spark_jobs.control.judged_rows import Written
from spark_jobs.control.verdicts import Verdict, last_passed, verdicts_that_matter
from spark_jobs.lake.tables import BATCHES, LAYERS, REDRIVES, SILVER_TRANSACTIONS, Table
from spark_jobs.lake.versions import hold_same_rows, is_changed_by_others, is_from_before
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings

_HISTORY_STEP = 200
_REWRITES = ("DELETE", "UPDATE", "MERGE", "RESTORE", "TRUNCATE")


def find_written(settings: Settings, layer: str) -> tuple[list[Written], list[Verdict]]:
    """What is to be judged now, and the verdicts that still hold because nothing was written since.

    Call it while no job writes the layer (bronze excepted: its older versions do not change).
    Raises LedgerError when the layer's job never ran, or stopped halfway so that its tables do not agree.
    """
    _check_exists(settings, layer)
    given = verdicts_that_matter(settings)
    judged, passed = {name: rows[-1] for name, rows in given.items()}, last_passed(given)
    follower = control.following(settings, SILVER_TRANSACTIONS)  # what gold does because a history changed may change rows of any time
    to_judge: list[Written] = []
    unchanged: list[Verdict] = []
    for source in dict.fromkeys(table.topic for table in LAYERS[layer]):
        tables = [table for table in LAYERS[layer] if table.topic == source]
        last = _last_batch(settings, layer, tables)
        versions = {table: _version(settings, table, last) for table in tables}
        verdicts = [judged[table.name] for table in tables if table.name in judged]
        if len(verdicts) == len(tables) and all(_still_holds(settings, verdict, layer, last, versions) for verdict in verdicts):
            unchanged.extend(verdicts)
            continue
        if layer != "bronze":
            _check_complete(settings, versions, last)
        before = [passed[table.name] for table in tables if table.name in passed]
        first = min((verdict.last_batch for verdict in before), default=0) + 1 if len(before) == len(tables) else 1
        records = None
        if first > last or _is_amended(settings, layer, before):  # changed, and not only by new batches
            if layer == "silver" and first > last:  # by a backfill alone: what it rebuilt; else all of it
                known = {verdict.table: verdict.version for verdict in before}
                records = rebuilt.find(settings, tables, known, {table.name: version for table, version in versions.items()})
            first = 1
        has_passed = layer == "gold" and first > 1
        for table, version in versions.items():
            is_near = has_passed and not is_changed_by_others(table.path(settings), passed[table.name].version, follower)
            let_through = _let_through(settings, table, passed[table.name], first) if has_passed else None
            to_judge.append(Written(table, version, first, last, records, at_any_time=not is_near, passed=let_through))
    return to_judge, unchanged


def _let_through(settings: Settings, table: Table, verdict: Verdict, first: int) -> int | None:
    """The version that a verdict let through, without rows of batches from `first` on.

    None where it has some, because another table did not pass then, or where the table may have been made again since.
    """
    is_usable = verdict.last_batch < first and is_from_before(table.path(settings), verdict.version, verdict.judged_at)
    return verdict.version if is_usable else None


def newest_batch(settings: Settings, table: Table) -> int:
    """The last batch that brought rows to a table, from its statistics; 0 when it has none or does not exist.

    A batch of records that bronze had already brings none.
    """
    return _newest_batch(table.open(settings)) if table.exists(settings) else 0


def unread_bronze(settings: Settings) -> list[Table]:
    """The bronze tables that have batches which silver has not processed."""
    read = control.silver_batches(settings)
    return [table for table in LAYERS["bronze"] if newest_batch(settings, table) > read[table.topic]]


def unfinished_bronze(settings: Settings) -> list[Table]:
    """The bronze tables of which silver holds rows of a batch that no finished run recorded."""

    read = control.silver_batches(settings)
    unfinished = {table.topic for table in LAYERS["silver"] if newest_batch(settings, table) > read[table.topic]}
    return [bronze for bronze in LAYERS["bronze"] if bronze.topic in unfinished]


def version_after(settings: Settings, table: Table, last_batch: int, since: datetime | None = None) -> int | None:
    """The version of a bronze table from which on its commits bring batches after `last_batch`; None where only all will do.

    So it is, too, where one of these commits may be older than `since`.
    """
    if last_batch == 0:
        return None
    delta = table.open(settings)
    version = version_upto(delta, last_batch)
    if version == delta.version() or (since is not None and _committed_at(delta, version) < since):
        return None
    return version + 1


def is_rewritten(settings: Settings, table: Table, last_batch: int) -> bool:
    """Whether rows of a bronze table were removed or changed after this batch came, so its commits no longer add up to its rows."""
    delta = table.open(settings)
    since = version_upto(delta, last_batch) if last_batch else 0
    return since < delta.version() and any(commit["operation"] in _REWRITES for commit in delta.history(delta.version() - since))


def version_upto(table: DeltaTable, last_batch: int) -> int:
    """The newest version of a bronze table that holds no batch after `last_batch`; the newest where the log names none.

    Bronze commits name their batch in userMetadata; other commits (compaction) belong to the batch before them.
    """
    version, limit, head = table.version(), _HISTORY_STEP, table.version()
    while True:
        commits = table.history(limit)
        for commit in commits:
            batch = _batch_of(commit)
            if batch is not None and batch <= last_batch:
                return version
            if batch is not None:
                version = int(commit["version"]) - 1
        if len(commits) < limit:
            return version if version >= 0 and _holds_no_more(table, version, last_batch) else head
        version, limit = head, limit * 10


def _batch_of(commit: dict[str, Any]) -> int | None:
    try:
        return int(json.loads(commit["userMetadata"])["batch"])
    except (KeyError, TypeError, ValueError):
        return None


def _holds_no_more(table: DeltaTable, version: int, last_batch: int) -> bool:
    """Whether a version can be read and has no batch after the last; compaction may have named none of those that it joined."""
    try:
        return _newest_batch(DeltaTable(table.table_uri, version=version)) <= last_batch
    except DeltaError:
        return False


def _committed_at(table: DeltaTable, version: int) -> datetime:
    return datetime.fromtimestamp(table.history(table.version() - version + 1)[-1]["timestamp"] / 1000, UTC)


def _newest_batch(table: DeltaTable) -> int:
    files = pa.table(table.get_add_actions(flatten=True))
    return max((batch for batch in files.column("max._batch").to_pylist() if batch is not None), default=0) if files.num_rows else 0


def _version(settings: Settings, table: Table, last_batch: int) -> int:
    delta = table.open(settings)
    return version_upto(delta, last_batch) if table.layer == "bronze" else delta.version()


def _last_batch(settings: Settings, layer: str, tables: Iterable[Table]) -> int:
    """The last bronze batch that the layer's job finished; for bronze, the last one that silver read."""
    if layer != "gold":
        return control.silver_batch(settings, next(iter(tables)).topic)
    found = control.last_batches(settings, "gold")
    lasts = {table.name: found.get(table.name, 0) for table in tables}
    if len(set(lasts.values())) > 1:
        each = ", ".join(f"{name} at batch {last}" for name, last in lasts.items())
        raise LedgerError(f"gold stopped halfway: found {each}, expected the same batch: run gold again")
    last, silver = max(lasts.values()), control.silver_batch(settings, "transactions")
    if last == 0 and silver > 0:
        raise LedgerError(
            f"gold never finished a run: found none in control.batches, expected one up to batch {silver}, which silver has taken: "
            "run python -m spark_jobs.run gold first"
        )
    return last


def _is_amended(settings: Settings, layer: str, passed: Collection[Verdict]) -> bool:
    """Whether a re-drive or a backfill has changed rows of older batches since these verdicts, which passed."""
    if layer == "bronze" or not passed:
        return False
    known = {verdict.table: verdict.version for verdict in passed}
    if layer == "gold":
        known |= control.versions_read_by_gold(settings, upto=min(verdict.judged_at for verdict in passed))
    newest = list(backfills.changed_versions(settings).items())
    if REDRIVES.exists(settings):
        sql = 'select "table", max(_silver_version) as version from t group by "table"'
        newest += [(row["table"], row["version"]) for row in control.query(REDRIVES.open(settings), sql, REDRIVES).to_pylist()]
    return any(version > known[name] for name, version in newest if name in known)


def _still_holds(settings: Settings, verdict: Verdict, layer: str, last: int, versions: dict[Table, int]) -> bool:
    if not verdict.passed or verdict.last_batch != last:
        return False
    own = ((table, version) for table, version in versions.items() if table.name == verdict.table)
    return layer == "bronze" or any(hold_same_rows(settings, table, verdict.version, version) for table, version in own)


def _check_exists(settings: Settings, layer: str) -> None:
    job = "gold" if layer == "gold" else "silver"
    wanted = dict.fromkeys((*LAYERS[layer], *LAYERS[job], BATCHES))
    missing = [table.name for table in wanted if not table.exists(settings)]
    if missing:
        raise LedgerError(
            f"nothing to judge in {layer}: found no {', '.join(missing)} in {settings.warehouse}, "
            f"expected what {job} writes: run python -m spark_jobs.run {job} first"
        )


def _check_complete(settings: Settings, versions: dict[Table, int], last: int) -> None:
    """A job that died between two tables leaves rows of a batch that no run finished: only that job can repair it."""
    for table, version in versions.items():
        if "_batch" not in table.columns:
            continue
        found = control.value(table.open(settings, version=version), "select max(_batch) from t") or 0
        if found > last:
            raise LedgerError(
                f"{table.layer} stopped halfway: {table.name} has rows of batch {found}, expected none after {last}, "
                f"the last one that a finished run recorded: run {table.layer} again"
            )
