"""A gate: judges profiles by their suites. Open only on a clear yes; whatever cannot be measured or judged closes it."""

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expectations.context import import_great_expectations, validate
from expectations.profile import Profile, Query, measure_table
from expectations.suites import FOLDER, Suite, SuiteError, read_suite

if TYPE_CHECKING:
    from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult

log = logging.getLogger(__name__)

CRITICAL = "critical"
_LONGEST_FIRST = 200
_AT_ONCE = 2  # tables that are measured side by side: some of their work is done by one core


@dataclass(frozen=True)
class Failure:
    """An expectation that was not met: what was found and what was expected, in words."""

    table: str
    expectation: str
    severity: str
    found: str
    expected: str
    description: str = ""

    @property
    def is_critical(self) -> bool:
        """Whether it closes the gate."""
        return self.severity == CRITICAL

    def __str__(self) -> str:
        """One line."""
        return f"{self.table} {self.expectation} ({self.severity}): found {self.found}, expected {self.expected}"


@dataclass(frozen=True)
class Judgement:
    """What a gate says of one table; `report` is the address of its page, None when there is none."""

    table: str
    evaluated: int
    failures: tuple[Failure, ...]
    report: str | None

    @property
    def passed(self) -> bool:
        """Whether at least one expectation was judged and no critical one failed."""
        return self.evaluated > 0 and not any(failure.is_critical for failure in self.failures)


def judge(
    folder: Path,
    layer: str,
    queries: Mapping[str, Query],
    run_id: str,
    now: datetime,
    suites: Path = FOLDER,
    unchanged: Collection[str] = (),
    keys: Mapping[str, Sequence[str]] | None = None,
) -> list[Judgement]:
    """Judge each table of `queries`, which answer SQL about it. Reports are written under `folder`.

    Of tables in `unchanged`, to which nothing new was written, only the expectations with `without_new_rows` are judged. A table in
    `keys` is judged by these where it has no suite.
    Raises nothing for bad data, bad suites or a failure of Great Expectations: they are judgements that do not pass.
    """
    begun, running = time.monotonic(), list[str]()

    def measure(table: str) -> tuple[Suite, Profile] | Judgement:
        running.append(table)
        log.debug("measuring %s", ", ".join(running))
        try:
            suite = read_suite(table, suites, (keys or {}).get(table, ()))
            suite = suite.without_new_rows() if table in unchanged else suite
            return suite, measure_table(suite, queries[table])
        except SuiteError as error:
            return refusal(table, "suite", _reason(error))
        finally:
            running.remove(table)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(measure, queries))
    measured = [each for each in found if not isinstance(each, Judgement)]
    judgements = [each for each in found if isinstance(each, Judgement)]
    log.info("gate %s: measuring %d tables took %.1f s", layer, len(queries), time.monotonic() - begun)
    judgements += judge_profiles(folder, layer, measured, queries, run_id, now)
    return sorted(judgements, key=lambda judgement: judgement.table)


def judge_profiles(
    folder: Path, layer: str, measured: Sequence[tuple[Suite, Profile]], queries: Mapping[str, Query], run_id: str, now: datetime
) -> list[Judgement]:
    """Judge measured tables in one run of Great Expectations. What failed names the first row, where its suite says how to find it."""
    if not measured:
        return []
    try:
        log.debug("starting Great Expectations")
        begun = time.monotonic()
        import_great_expectations()
        imported = time.monotonic()
        log.debug("waiting for Great Expectations")
        results = validate(folder, layer, measured, run_id, now)
        log.info("gate %s: Great Expectations took %.1f s, and %.1f s to start", layer, time.monotonic() - imported, imported - begun)
        judgements = [_judgement(suite, profile, *results[suite.table]) for suite, profile in measured]
        return [_locate(judgement, suite, queries[suite.table]) for judgement, (suite, _) in zip(judgements, measured, strict=True)]
    except Exception as error:  # in doubt the gate is closed, and says why
        log.exception("Great Expectations failed")
        return [refusal(suite.table, "great_expectations", _reason(error)) for suite, _ in measured]


def refusal(table: str, name: str, found: str, expected: str = "no error") -> Judgement:
    """The judgement of a table that could not be judged: it does not pass, and says why."""
    return Judgement(table, 0, (Failure(table, name, CRITICAL, " ".join(found.split()), expected),), None)


def _judgement(suite: Suite, profile: Profile, result: "ExpectationSuiteValidationResult", report: str) -> Judgement:
    failures = [_failure(profile, each) for each in result.results if each.success is not True]
    if len(result.results) != len(suite.expectations):  # GX logs an expectation that it cannot use, and continues without it
        found, expected = (f"{count} results" for count in (len(result.results), len(suite.expectations)))
        failures.append(Failure(suite.table, "suite", CRITICAL, found, expected))
    order = [expectation["kwargs"]["column"] for expectation in suite.expectations]
    failures.sort(key=lambda failure: (not failure.is_critical, order.index(failure.expectation) if failure.expectation in order else -1))
    return Judgement(suite.table, len(result.results), tuple(failures), report)


def _failure(profile: Profile, result: Any) -> Failure:
    config = result.expectation_config
    name = str(config.kwargs["column"])
    found = profile.values.get(name, profile.errors.get(name, "no value"))
    severity = str(getattr(config.severity, "value", config.severity or CRITICAL))
    if name not in profile.values:
        severity = CRITICAL  # nobody knows how bad it is
    return Failure(profile.table, name, severity, " ".join(str(found).split()), _bounds(config.kwargs), config.description or "")


def _bounds(kwargs: Mapping[str, Any]) -> str:
    least, most = (kwargs.get(name) for name in ("min_value", "max_value"))
    limits = [f"at least {least:,.15g}" if least is not None else "", f"at most {most:,.15g}" if most is not None else ""]
    return " and ".join(filter(None, limits)) or ", ".join(f"{name} {value}" for name, value in kwargs.items() if name != "column")


def _locate(judgement: Judgement, suite: Suite, query: Query) -> Judgement:
    """The judgement with the first offending row after what was found."""
    firsts = {measure.name: measure.first for measure in suite.measures if measure.first}
    failures = (
        replace(failure, found=f"{failure.found}; first: {_first(query, firsts[failure.expectation])}")
        if failure.expectation in firsts
        else failure
        for failure in judgement.failures
    )
    return replace(judgement, failures=tuple(failures))


def _first(query: Query, sql: str) -> str:
    try:
        answer = query(sql)
        text = answer.columns[0][0].as_py() if answer.num_rows else None
        return " ".join(str(text).split())[:_LONGEST_FIRST] if text is not None else "none is left to name"
    except Exception as error:  # the verdict holds without it
        log.warning("the first offending row cannot be found: %s", error)
        log.debug("", exc_info=True)
        return f"cannot be named ({type(error).__name__})"


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
