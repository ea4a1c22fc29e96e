"""Which versions of a table hold the same rows, with only maintenance between them, and the way back to one. Without Spark."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import starmap
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from spark_jobs.lake import snapshots
from spark_jobs.lake.tables import Table, ensure_tables
from spark_jobs.lake.txn import Txn, commit_properties
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings

# Operations that move rows or say something about the table, and neither add, change nor remove a row.
MAINTENANCE = frozenset({"OPTIMIZE", "REORG", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "VACUUM START", "VACUUM END"})
_KNOWN = MAINTENANCE | {"WRITE", "MERGE", "CREATE TABLE"}
# What the metrics of a merge count, by Spark and by delta-rs.
_CHANGES = (
    *("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"),
    *("num_target_rows_inserted", "num_target_rows_updated", "num_target_rows_deleted"),
)
_FILES = ('{"add":', '{"remove":', '{"cdc":')  # what a commit without rows has none of: one that says how far a job has come


def hold_same_rows(settings: Settings, table: Table, one: int, other: int) -> bool:
    """Whether two versions of a table hold the same rows, as far as the log still says; in doubt they do not."""
    first, last = sorted((one, other))
    return all(is_maintenance(table.path(settings), version) for version in range(first + 1, last + 1))


def is_maintenance(path: Path, version: int) -> bool:
    """Whether the commit of a version left all rows as they were; no where it is gone from the log."""
    lines = _commit(path, version)
    return bool(lines) and (_parse_commit_info(lines).get("operation") in MAINTENANCE or not any(line.startswith(_FILES) for line in lines))


def has_changes_from(path: Path, version: int) -> bool:
    """Whether a commit of the table at `path`, from a version on, may have added, changed or removed a row."""
    return any(True for _ in _changes_from(path, version))


def is_changed_by_others(path: Path, after: int, application: str) -> bool:
    """Whether commits after a version of the table at `path` changed rows that are not of this application; in doubt they did."""
    return any(_commit_info(path, number).get("application") != application for number in _changes_from(path, after + 1))


def is_from_before(path: Path, version: int, moment: datetime) -> bool:
    """Whether the commit of a version of the table at `path` was made at a moment or before; in doubt not.

    The version may be another one of the same number: of a table that was removed and made again.
    """
    made_at = _commit_info(path, version).get("timestamp")
    return isinstance(made_at, int) and made_at <= moment.timestamp() * 1000


def _changes_from(path: Path, version: int) -> Iterator[int]:
    """The versions of the table at `path`, from one on, whose commits may have added, changed or removed a row."""
    return (number for number in range(version, snapshots.open_table(path).version() + 1) if not is_maintenance(path, number))


@dataclass(frozen=True)
class FileChanges:
    """Data files, relative to a table's folder, that came to it and that went.

    What the former hold and the latter do not is what changed. `gone` is None where rows were marked as removed in files that stay, or had
    been in one that went.
    """

    came: list[str]
    gone: list[str] | None


def file_changes(path: Path, after: int, upto: int) -> FileChanges | None:
    """The files that hold each row which came to the table at `path` after a version, up to another, and those that held what went.

    They may hold other rows, too, which are in both. Files that both came and went are in neither, nor are those that were only joined.
    None where the log does not tell: commits are gone, rows of a file that came were moved or marked as removed, the table was set back,
    or has not come to the first version.
    """
    if upto < after:
        return None
    came: dict[str, None] = {}
    gone: dict[str, None] = {}
    seen: set[str] = set()
    is_marked = False
    for version in range(after + 1, upto + 1):
        lines = _commit(path, version)
        operation = _parse_commit_info(lines).get("operation")
        actions = [json.loads(line) for line in lines if line.startswith(_FILES)]
        added = [action["add"] for action in actions if "add" in action]
        removed = {unquote(action["remove"]["path"]) for action in actions if "remove" in action}
        marked = {unquote(add["path"]) for add in added if add.get("deletionVector")}
        if not lines or operation not in _KNOWN or seen & marked or (operation in MAINTENANCE and seen & removed):
            return None
        if operation in MAINTENANCE:
            continue
        is_marked |= bool(marked) or any(action["remove"].get("deletionVector") for action in actions if "remove" in action)
        new = {unquote(add["path"]) for add in added} - marked
        gone |= dict.fromkeys(sorted(removed - seen))
        seen |= new
        came = dict.fromkeys(sorted((came.keys() | new) - removed))
    return FileChanges([*came], None if is_marked else [*gone])


def set_back(
    settings: Settings, table: Table, version: int | None, name: str, mark: Txn, positions: Mapping[str, int], facts: Mapping[str, Any]
) -> None:
    """Bring a table's rows back to a version, or (None) remove all, in one commit; it is skipped where it was done before, by its `mark`.

    The commit says `positions`, how far each application counts as having come, and `facts` in its userMetadata. `name` is what is done,
    for the kill points. The caller holds the table's lease. Raises LedgerError, and writes nothing, where the table has not come to that
    version.
    """
    delta = table.open_to_write(settings)
    if (delta.transaction_version(mark.application) or 0) >= mark.version:
        return
    if version is not None and version > delta.version():
        raise LedgerError(
            f"{delta.table_uri}: found version {delta.version()}, expected version {version} to go back to: the table was restored from "
            "an older copy; restore tables and control tables of one time"
        )
    kill_point(f"before {name} of {table.name}")
    commit = commit_properties(settings, table, facts, [*starmap(Txn, positions.items()), mark])
    if version is None:
        delta.delete(commit_properties=commit)
    elif version < delta.version():
        delta.restore(version, commit_properties=commit)
    else:
        delta.create_write_transaction([], "append", delta.schema(), list(table.partitioned_by), commit_properties=commit)
    ensure_tables(settings, [table], has_lease=True)  # it has the columns of that version
    kill_point(f"after {name} of {table.name}")


def rows_since(path: Path, version: int) -> int:
    """The version that brought the rows which a version of the table at `path` holds.

    Maintenance brings none, and a roll-back those of the version to which it returned. Versions of which it gives the same hold the
    same rows.
    """
    while version > 0:
        if (restored := _commit_info(path, version).get("rolled_back_to")) is not None:
            version = int(restored)
        elif is_maintenance(path, version):
            version -= 1
        else:
            break
    return version


def rows_written(path: Path, after: int, applications: Collection[str]) -> int | None:
    """How many rows the merges of some applications added, changed or removed after a version of the table at `path`; None without any.

    A commit that is no longer in the log counts as one without metrics.
    """
    commits = (_commit_info(path, version) for version in range(after + 1, snapshots.open_table(path).version() + 1))
    own = [commit.get("operationMetrics", {}) for commit in commits if not commit or commit.get("application") in applications]
    return sum(int(metrics.get(what, 0)) for metrics in own for what in _CHANGES) if own else None


def _commit(path: Path, version: int) -> list[str]:
    try:
        return snapshots.commit_file(path, version).read_text().splitlines()
    except FileNotFoundError:
        return []


def _commit_info(path: Path, version: int) -> dict[str, Any]:
    """What the commit of a version says of itself, what its writer put into userMetadata included; nothing where it is not there."""
    return _parse_commit_info(_commit(path, version))


def _parse_commit_info(lines: Iterable[str]) -> dict[str, Any]:
    info: dict[str, Any] = next((json.loads(line)["commitInfo"] for line in lines if '"commitInfo"' in line), {})
    try:
        return {**json.loads(info.get("userMetadata") or "{}"), **info}
    except (ValueError, TypeError):
        return info
