"""What stands of the gates' verdicts: of every table the newest one, and what a person decided about a closed one."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from spark_jobs import control
from spark_jobs.lake.tables import DECISIONS, QUALITY_RESULTS, ensure_tables
from spark_jobs.runtime.settings import Settings

RELEASE_ANYWAY, ROLL_BACK, WAIT = "release anyway", "roll back", "wait"
CHOICES = (RELEASE_ANYWAY, ROLL_BACK, WAIT)

_THAT_MATTER = """
with numbered as (select *, row_number() over (partition by "table", success order by _judged_at desc) as _number from verdicts)
select * from numbered where _number = 1 or run_id in (select run_id from decisions)
"""


def newest_verdicts(settings: Settings) -> dict[str, dict[str, Any]]:
    """The newest row of control.quality_results of each table, by its name.

    Two keys are added: `decision`, the newest row of control.decisions about this verdict (None without one), and `passed`: the
    gate said so, or a person decided to release anyway.
    """
    return {name: rows[-1] for name, rows in verdicts_that_matter(settings).items()}


def last_passed(verdicts: Mapping[str, Iterable[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Of verdicts by table, in their order, each table's newest that passed."""
    passed = {name: [row for row in rows if row["passed"]] for name, rows in verdicts.items()}
    return {name: rows[-1] for name, rows in passed.items() if rows}


def closed_verdicts(settings: Settings, *layers: str) -> list[dict[str, Any]]:
    """The newest verdicts of these layers' tables that did not pass, with the decision about each, if there is one."""
    return [row for row in newest_verdicts(settings).values() if row["layer"] in layers and not row["passed"]]


def next_moment(settings: Settings, now: datetime) -> datetime:
    """`now`, or the moment after the newest verdict and decision: they keep their order when a clock is set back."""
    moments: list[datetime] = [rows[-1]["_judged_at"] for rows in verdicts_that_matter(settings).values()]
    moments += [row["decided_at"] for row in control.read(settings, DECISIONS).to_pylist()]
    return control.later_than(moments, now)


def verdicts_that_matter(settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """Of each table the verdicts that may still stand, in the order in which they were given, with the keys of `newest_verdicts`."""
    decisions = sorted(control.read(settings, DECISIONS).to_pylist(), key=lambda row: row["decided_at"], reverse=True)
    tables: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(_read_verdicts(settings), key=lambda row: row["_judged_at"]):
        decision = decision_about(row, decisions)
        passed = bool(row["success"]) or (decision is not None and decision["choice"] == RELEASE_ANYWAY)
        tables.setdefault(row["table"], []).append(row | {"decision": decision, "passed": passed})
    return tables


def decision_about(verdict: Mapping[str, Any], decisions: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The decision about a closed verdict: of `decisions`, newest first, the first about its gate's run and after it.

    A gate that was run again is judged again, so what was decided before does not count.
    """
    if verdict["success"]:
        return None
    gate = (verdict["layer"], verdict["run_id"])
    about = (each for each in decisions if (each["layer"], each["run_id"]) == gate and each["decided_at"] > verdict["_judged_at"])
    return next(about, None)


def _read_verdicts(settings: Settings) -> list[dict[str, Any]]:
    """Of each table the newest verdict that passed, the newest that did not, and those of runs that were decided about.

    The table of verdicts grows with every run; the others need not become Python objects.
    """
    verdicts, decisions = (str(table.path(settings)) for table in (QUALITY_RESULTS, DECISIONS))
    if not DeltaTable.is_deltatable(verdicts):
        return []
    ensure_tables(settings, [DECISIONS])
    builder = control.register(QueryBuilder(), "verdicts", DeltaTable(verdicts), QUALITY_RESULTS)
    control.register(builder, "decisions", DeltaTable(decisions), DECISIONS)
    rows: list[dict[str, Any]] = pa.table(builder.execute(_THAT_MATTER).read_all()).to_pylist()
    return rows
