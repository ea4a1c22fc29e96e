"""The gates' verdicts as one type, the rows of control.quality_results: read and written here, with what an operator decided about each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
from deltalake import QueryBuilder

from spark_jobs import control
from spark_jobs.lake.tables import BY_NAME, DECISIONS, QUALITY_RESULTS, ensure_tables
from spark_jobs.runtime.settings import Settings

RELEASE_ANYWAY, ROLL_BACK, WAIT = "release anyway", "roll back", "wait"
CHOICES = (RELEASE_ANYWAY, ROLL_BACK, WAIT)
UNUSED = "unused answer"  # the layer in a decision that could not be carried out: it is about no gate
CRITICAL = "critical"  # the severity of an expectation that closes the gate; others are warnings

# For each table: the newest verdict that passed, those after it that did not, the newest that did not, and those of runs with a
# decision. The table of verdicts grows with every run; the others need not become Python objects.
_THAT_MATTER = """
with numbered as (
  select *, row_number() over (partition by "table", success order by _judged_at desc) as _number,
    max(case when success then _judged_at end) over (partition by "table") as _passed_at from verdicts
)
select * from numbered
where _number = 1 or (not success and (_passed_at is null or _judged_at > _passed_at)) or run_id in (select run_id from decisions)
"""


@dataclass(frozen=True)
class Decision:
    """What an operator decided about the closed gates of a run: a row of control.decisions."""

    decided_at: datetime
    choice: str
    layer: str
    who: str
    why: str
    run_id: str | None
    release_id: int
    generation: int

    def __str__(self) -> str:
        """One line."""
        return f"{self.choice}, by {self.who} at {self.decided_at:%Y-%m-%d %H:%M} UTC: {self.why}"


def without_row(found: str) -> str:
    """What a gate found, without the row that it names after the figure (`1; first: T4`): for those who may not see values."""
    return found.partition("; first: ")[0]


@dataclass(frozen=True)
class Finding:
    """An expectation that was not met: what was found, and what was expected; None in rows of an older version of the project."""

    expectation: str
    severity: str = CRITICAL
    found: str | None = None
    expected: str | None = None

    def __str__(self) -> str:
        """The expectation, with its severity where that is another than critical."""
        return self.expectation if self.is_critical else f"{self.expectation} ({self.severity})"

    @property
    def is_critical(self) -> bool:
        """Whether it closes the gate."""
        return self.severity == CRITICAL


@dataclass(frozen=True)
class Verdict:
    """What a gate said of one table at a version, over some bronze batches: a row of control.quality_results.

    last_batch 0: no batch ever came. `decision` is the newest one about a closed verdict. `cause` is run and time of the first of the
    closed verdicts in a row that judged the same and that nobody has decided about.
    """

    table: str
    layer: str
    run_id: str
    version: int
    success: bool
    evaluated: int
    findings: tuple[Finding, ...]
    report: str | None
    first_batch: int
    last_batch: int
    judged_at: datetime
    decision: Decision | None = None
    cause: tuple[str, datetime] | None = None

    @property
    def state(self) -> Literal["passed", "warned", "closed", "overruled"]:
        """Its outcome: overruled is closed, and released anyway by an operator; warned is passed, with warnings."""
        if self.success:
            return "warned" if self.findings else "passed"
        return "overruled" if self.decision and self.decision.choice == RELEASE_ANYWAY else "closed"

    @property
    def says(self) -> str:
        """The state in words."""
        return passed_words(len(self.findings)) if self.success else self.state

    @property
    def passed(self) -> bool:
        """Whether it lets its rows pass: the gate said so, or an operator decided to release anyway."""
        return self.state != "closed"

    @property
    def critical(self) -> tuple[Finding, ...]:
        """What closed the gate."""
        return tuple(finding for finding in self.findings if finding.is_critical)

    @property
    def judged(self) -> str:
        """What was judged, and what of it failed: two verdicts of the same are one question."""
        names = ", ".join(finding.expectation for finding in self.critical)
        return f"{self.table} version {self.version}, batches {self.first_batch} to {self.last_batch}: {names}"

    @property
    def topic(self) -> str:
        """The topic whose batches were judged."""
        return BY_NAME[self.table].topic if self.table in BY_NAME else ""

    @property
    def page(self) -> str | None:
        """Where the page Quality serves the report, below its own address."""
        return report_page(self.report)

    def row(self) -> dict[str, Any]:
        """The row of control.quality_results."""
        return {
            "run_id": self.run_id,
            "layer": self.layer,
            "table": self.table,
            "version": self.version,
            "suite": self.table,
            "success": self.success,
            "evaluated": self.evaluated,
            "failed": len(self.findings),
            "failed_expectations": [str(finding) for finding in self.findings],
            "report": self.report,
            "_first_batch": self.first_batch,
            "_last_batch": self.last_batch,
            "_judged_at": self.judged_at,
            "_found": [finding.found for finding in self.findings],
            "_expected": [finding.expected for finding in self.findings],
        }


def passed_words(warnings: int) -> str:
    """What a verdict that passed is called, on the page and in its report."""
    return f"passed, {warnings} warning{'s' if warnings > 1 else ''}" if warnings else "passed"


def report_page(report: str | None) -> str | None:
    """Where the page Quality serves a report, of its address as a file: what follows `data_docs/` in it."""
    _, mark, page = unquote(urlsplit(report or "").path).rpartition("/data_docs/")
    return f"data_docs/{quote(page)}" if mark else None


def read_verdict(row: Mapping[str, Any], decisions: Iterable[Decision] = ()) -> Verdict:
    """The verdict of a row of control.quality_results, with the decision about it out of `decisions`, newest first."""
    names = row["failed_expectations"] or ()
    found, expected = (row.get(column) or [None] * len(names) for column in ("_found", "_expected"))
    verdict = Verdict(
        table=row["table"],
        layer=row["layer"],
        run_id=row["run_id"],
        version=int(row["version"] or 0),
        success=bool(row["success"]),
        evaluated=int(row["evaluated"] or 0),
        findings=tuple(Finding(*_parted(name), *facts) for name, *facts in zip(names, found, expected, strict=True)),
        report=row["report"],
        first_batch=int(row["_first_batch"] or 0),
        last_batch=int(row["_last_batch"] or 0),
        judged_at=row["_judged_at"],
    )
    return replace(verdict, decision=_decision_about(verdict, decisions))


def append_under_lease(settings: Settings, verdicts: Sequence[Verdict]) -> None:
    """Record verdicts, in one commit; the caller holds the lease of control.quality_results."""
    control.append_under_lease(settings, QUALITY_RESULTS, [verdict.row() for verdict in verdicts])


def all_verdicts(settings: Settings) -> list[Verdict]:
    """Every verdict on record, in the order in which they were given, without decisions."""
    return sorted(map(read_verdict, control.read(settings, QUALITY_RESULTS).to_pylist()), key=lambda verdict: verdict.judged_at)


def newest_verdicts(settings: Settings) -> dict[str, Verdict]:
    """The newest verdict on each table, by its name."""
    return {name: verdicts[-1] for name, verdicts in verdicts_that_matter(settings).items()}


def last_passed(verdicts: Mapping[str, Iterable[Verdict]]) -> dict[str, Verdict]:
    """Of verdicts by table, in their order, each table's newest that passed."""
    passed = {name: [verdict for verdict in given if verdict.passed] for name, given in verdicts.items()}
    return {name: given[-1] for name, given in passed.items() if given}


def closed_verdicts(settings: Settings, *layers: str) -> list[Verdict]:
    """The newest verdicts on these layers' tables that did not pass."""
    return [verdict for verdict in newest_verdicts(settings).values() if verdict.layer in layers and not verdict.passed]


def read_decisions(settings: Settings) -> list[Decision]:
    """Every decision, newest first."""
    decisions = [Decision(**row) for row in control.read(settings, DECISIONS).to_pylist()]
    return sorted(decisions, key=lambda decision: decision.decided_at, reverse=True)


def append_decisions_under_lease(settings: Settings, decisions: Sequence[Decision]) -> None:
    """Record decisions, in one commit; the caller holds the lease of control.decisions."""
    control.append_under_lease(settings, DECISIONS, map(asdict, decisions))


def next_time(settings: Settings, now: datetime) -> datetime:
    """`now`, or just after the newest verdict and decision: they keep their order when a clock is set back."""
    times = [verdicts[-1].judged_at for verdicts in verdicts_that_matter(settings).values()]
    times += [decision.decided_at for decision in read_decisions(settings)]
    return control.later_than(times, now)


def verdicts_that_matter(settings: Settings) -> dict[str, list[Verdict]]:
    """Of each table the verdicts that may still hold, in the order in which they were given."""
    return with_causes(_read_rows(settings), read_decisions(settings))


def with_causes(rows: Iterable[Mapping[str, Any]], decisions: Sequence[Decision]) -> dict[str, list[Verdict]]:
    """The verdicts of rows of control.quality_results by table, in the order in which they were given, each with its cause."""
    tables: dict[str, list[Verdict]] = {}
    for row in sorted(rows, key=lambda row: row["_judged_at"]):
        verdict = read_verdict(row, decisions)
        before = tables.setdefault(verdict.table, [])
        is_same = before and not before[-1].passed and before[-1].decision is None and before[-1].judged == verdict.judged
        cause = before[-1].cause if is_same else (verdict.run_id, verdict.judged_at)
        before.append(replace(verdict, cause=None if verdict.passed else cause))
    return tables


def _decision_about(verdict: Verdict, decisions: Iterable[Decision]) -> Decision | None:
    """The decision about a closed verdict: of `decisions`, newest first, the first about its gate's run and after it.

    What was decided before a gate was run again does not count.
    """
    if verdict.success:
        return None
    gate = (verdict.layer, verdict.run_id)
    return next((each for each in decisions if (each.layer, each.run_id) == gate and each.decided_at > verdict.judged_at), None)


def _parted(name: str) -> tuple[str, str]:
    """Expectation and severity of a name in failed_expectations."""
    expectation, mark, severity = name.partition(" (")
    return (expectation, severity.removesuffix(")")) if mark else (name, CRITICAL)


def _read_rows(settings: Settings) -> list[dict[str, Any]]:
    if not QUALITY_RESULTS.exists(settings):
        return []
    ensure_tables(settings, [DECISIONS])
    builder = control.register(QueryBuilder(), "verdicts", QUALITY_RESULTS.open(settings), QUALITY_RESULTS)
    control.register(builder, "decisions", DECISIONS.open(settings), DECISIONS)
    rows: list[dict[str, Any]] = pa.table(builder.execute(_THAT_MATTER).read_all()).to_pylist()
    return rows
