"""The record of backfills, control.backfills: what was asked for, which steps are done, which one stopped halfway. Starts no JVM.

Each run of the DAG `backfill_days` asks for its own day before its turn comes. The run whose turn it is rebuilds with its day the
neighbouring ones that others have asked for, in one Spark application; these find that theirs is done.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from spark_jobs import control
from spark_jobs.lake import leases
from spark_jobs.lake.tables import BACKFILLS, BY_NAME, Table
from spark_jobs.lake.topic import Topic
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.times import to_text

# The parts of a backfill: all topics of versions together, under the name of the first two; and each topic of events, by its name.
DIMENSIONS = "customers and accounts"
TRANSACTIONS = "transactions"  # and gold
ROWS_A_STEP = 1_000_000
_FORGOTTEN_AFTER = timedelta(hours=6)  # what a run asked for, and did not get: it was cancelled


@dataclass(frozen=True)
class Backfill:
    """What a backfill rebuilds: the event times [start, end), which tables by name, and by which versions of the rules."""

    backfill_id: str
    start: datetime
    end: datetime
    tables: tuple[str, ...]
    rules: Mapping[str, str]

    def __str__(self) -> str:
        return f"backfill of {to_text(self.start)} to {to_text(self.end)}"

    def takes_in(self, start: datetime, end: datetime) -> bool:
        """Whether a range lies in this one."""
        return self.start <= start and end <= self.end

    @property
    def command(self) -> str:
        """The command that continues it."""
        return f"python -m spark_jobs.run backfill --start {to_text(self.start)} --end {to_text(self.end)} --tables {' '.join(self.tables)}"


@dataclass(frozen=True)
class Step:
    """A part of a backfill that readers see whole: of a topic of events those of [start, end), or all versions."""

    backfill: Backfill
    part: str
    start: datetime
    end: datetime

    def __str__(self) -> str:
        return f"{self.part} of {to_text(self.start)} to {to_text(self.end)}"


def part_of(topic: Topic) -> str:
    """The part of a backfill that rebuilds a topic."""
    return DIMENSIONS if topic.has_versions else topic.name


def find_or_start(
    settings: Settings, start: datetime, end: datetime, tables: tuple[str, ...], rules: Mapping[str, str], run_id: str
) -> Backfill:
    """The unfinished backfill that asks for just this, or a new one, which is recorded.

    For a run that has `asked` for it: one that others with the same wish have begun with it, or a new one with what they ask for beside it.
    """
    rows = _rows(settings)
    finished, asks = _finished(rows), _open_asks(rows, tables)
    has_asked = run_id in asks
    for row in reversed(rows):
        known = _backfill(row)
        is_same = (known.start, known.end) == (start, end)
        is_shared = has_asked and row["run_id"] in asks and known.takes_in(start, end)
        if row["state"] == "asked" or row["backfill_id"] in finished or (known.tables, known.rules) != (tables, rules):
            continue
        if is_same or is_shared:
            return known
    backfill = Backfill(uuid.uuid4().hex[:12], start, end, tables, rules)
    if has_asked:
        backfill = _with_neighbours(backfill, [_backfill(row) for row in asks.values()])
    _record(settings, backfill, run_id, "started")
    return backfill


def ask(settings: Settings, start: datetime, end: datetime, tables: Sequence[str], run_id: str) -> None:
    """Record that a run wants a range rebuilt: whichever run begins first next to it rebuilds it, too."""
    _record(settings, Backfill(uuid.uuid4().hex[:12], start, end, tuple(tables), {}), run_id, "asked")


def done_by(settings: Settings, run_id: str) -> str | None:
    """The other run that has rebuilt what a run asked for, since it did; None if none has."""
    rows = _rows(settings)
    own = [row for row in rows if row["state"] == "asked" and row["run_id"] == run_id]
    found = _began_after(own[-1], rows) if own else None
    return found["run_id"] if found and found["run_id"] != run_id else None


def steps_done(settings: Settings, backfill: Backfill) -> list[Step]:
    """The steps of a backfill that are done, in their order."""
    return [_step(row) for row in _rows(settings) if row["backfill_id"] == backfill.backfill_id and row["state"] == "done"]


def halfway(settings: Settings) -> Step | None:
    """The step that was begun and not done: the process that did it has died, if its leases are free."""
    rows = [row for row in _rows(settings) if row["state"] in ("begun", "done")]
    return _step(rows[-1]) if rows and rows[-1]["state"] == "begun" else None


def refuse_halfway(settings: Settings) -> None:
    """Raise LedgerError when a step stopped halfway: its tables are not to be judged. The caller holds their leases."""
    if step := halfway(settings):
        raise LedgerError(
            f"a {step.backfill} stopped halfway: found {step} begun and not done, expected all or none of it: "
            f"the next run of silver or gold ends it, or run it again: {step.backfill.command}"
        )


def begin(settings: Settings, step: Step, run_id: str, versions: Mapping[str, int], newest: datetime | None = None) -> None:
    """Record that the tables are about to change: their versions before, and the largest event time of all valid events after."""
    facts = {"part": step.part, "step_start": step.start, "step_end": step.end}
    _record(settings, step.backfill, run_id, "begun", **facts, _versions=json.dumps(versions), _newest_event_at=newest)


def begun(settings: Settings) -> tuple[dict[str, int], datetime | None] | None:
    """What was recorded when the step under way was begun: by the first process the versions, by the last the event time.

    The processes that died in it wrote some of its rows. None where nothing of it is written.
    """
    rows = [row for row in _rows(settings) if row["state"] in ("begun", "done")]
    done = max((number for number, row in enumerate(rows, start=1) if row["state"] == "done"), default=0)
    if not (under_way := rows[done:]):
        return None
    newest = next((row["_newest_event_at"] for row in reversed(under_way) if row["_newest_event_at"]), None)
    return json.loads(under_way[0]["_versions"] or "{}"), newest


def end(settings: Settings, step: Step, run_id: str, **facts: Any) -> None:
    """Record that a step is done: rows, changed, last_batch, _newest_event_at, and the versions of the tables that it changed."""
    versions = json.dumps(facts.pop("versions"))
    _record(settings, step.backfill, run_id, "done", part=step.part, step_start=step.start, step_end=step.end, _versions=versions, **facts)


def finish(settings: Settings, backfill: Backfill, run_id: str) -> None:
    """Record that all steps are done."""
    _record(settings, backfill, run_id, "finished")


def last_rebuild(settings: Settings, table: Table) -> dict[str, Any] | None:
    """Of the last step that changed a table: last_batch, _newest_event_at and the table's `version` after it; None without one."""
    for row in reversed(_rows(settings)):
        if row["state"] == "done" and table.name in (versions := json.loads(row["_versions"])):
            return {**row, "version": versions[table.name]}
    return None


def run_ids(settings: Settings) -> set[str]:
    """The runs that did the work of backfills."""
    return {row["run_id"] for row in _rows(settings)}


def changed_versions(settings: Settings) -> dict[str, int]:
    """For each table that a backfill ever changed, its version after the last one."""
    versions: dict[str, int] = {}
    for row in _rows(settings):
        if row["state"] == "done":
            versions |= json.loads(row["_versions"])
    return versions


def is_of_release(row: Mapping[str, Any], released: Mapping[str, int]) -> bool:
    """Whether the step of a row is part of a release that names these versions: a step that is done, and changed nothing since.

    Silver's index of ids, which steps change too, is in no release.
    """
    changed = json.loads(row["_versions"] or "{}")
    return row["state"] == "done" and all(version <= released.get(name, -1) for name, version in changed.items() if name in BY_NAME)


def _finished(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    return {row["backfill_id"] for row in rows if row["state"] == "finished"}


def _began_after(ask: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The beginning of a finished backfill, by a run that had asked, too, that took in what was asked for before it began."""
    askers, finished = {row["run_id"] for row in rows if row["state"] == "asked"}, _finished(rows)
    for row in rows:
        takes_it_in = row["tables"] == ask["tables"] and _backfill(row).takes_in(ask["range_start"], ask["range_end"])
        is_later = row["state"] == "started" and row["number"] > ask["number"]
        if is_later and takes_it_in and row["run_id"] in askers and row["backfill_id"] in finished:
            return row
    return None


def _open_asks(rows: Sequence[Mapping[str, Any]], tables: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """What runs ask for of just these tables, by run: the newest of each, unless it is done, or forgotten."""
    since = datetime.now(UTC) - _FORGOTTEN_AFTER
    asks = {row["run_id"]: row for row in rows if row["state"] == "asked" and row["tables"] == list(tables)}
    return {run: row for run, row in asks.items() if row["recorded_at"] > since and _began_after(row, rows) is None}


def _with_neighbours(backfill: Backfill, others: Sequence[Backfill]) -> Backfill:
    """A backfill with the ranges that touch it, and those that touch these."""
    touching = [other for other in others if other.start <= backfill.end and backfill.start <= other.end]
    start, end = (min(each.start for each in (backfill, *touching)), max(each.end for each in (backfill, *touching)))
    if (start, end) == (backfill.start, backfill.end):
        return backfill
    return _with_neighbours(replace(backfill, start=start, end=end), others)


def _rows(settings: Settings) -> list[dict[str, Any]]:
    return sorted(control.read(settings, BACKFILLS).to_pylist(), key=lambda row: row["number"])


def _record(settings: Settings, backfill: Backfill, run_id: str, state: str, **facts: Any) -> None:
    row = {
        "backfill_id": backfill.backfill_id,
        "run_id": run_id,
        "state": state,
        "range_start": backfill.start,
        "range_end": backfill.end,
        "tables": list(backfill.tables),
        "rules_versions": json.dumps(dict(backfill.rules), sort_keys=True),
        "recorded_at": datetime.now(UTC),
        **facts,
    }
    with leases.hold(settings, [BACKFILLS], owner=f"append to {BACKFILLS.name}"):
        number = max((each["number"] for each in _rows(settings)), default=0) + 1
        control.append_under_lease(settings, BACKFILLS, [row | {"number": number}])


def _backfill(row: Mapping[str, Any]) -> Backfill:
    return Backfill(row["backfill_id"], row["range_start"], row["range_end"], tuple(row["tables"]), json.loads(row["rules_versions"]))


def _step(row: Mapping[str, Any]) -> Step:
    return Step(_backfill(row), row["part"], row["step_start"], row["step_end"])
