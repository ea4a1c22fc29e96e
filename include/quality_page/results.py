"""What was found of each expectation of a table, passed or not, run by run: as Great Expectations keeps it beside its reports."""

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from include.quality_page import charts
from include.quality_page.words import NOTHING, grouped, moment, number
from spark_jobs.control.verdicts import CRITICAL, Finding, Verdict
from spark_jobs.runtime.errors import first_line
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)

RUNS = 30  # of a trend

_Key = tuple[str, str, str]  # measure, severity, expected: of one measure more than one thing may be expected


@dataclass(frozen=True)
class Result:
    """One expectation: its sentence, what the newest run found, and what each of the last runs found, oldest on the left."""

    name: str
    severity: str
    sentence: str
    found: str
    expected: str
    passed: bool
    trend: charts.Chart

    @property
    def state(self) -> str:
        """passed, warned or closed."""
        return "passed" if self.passed else "closed" if self.severity == CRITICAL else "warned"


def results_of(settings: Settings, verdicts: list[Verdict]) -> list[Result]:
    """The expectations of a table's newest verdict, those that failed first; `verdicts` newest first.

    Of a verdict whose report has expired, only those that failed are known.
    """
    if not verdicts:
        return []
    newest, *before = verdicts[:RUNS]
    now = {_key(each): each for each in _read(settings, newest)}
    points: dict[_Key, list[tuple[Verdict, float, bool]]] = {}
    for verdict in reversed(verdicts[:RUNS]):
        for each in _read(settings, verdict) if verdict is not newest or before else now.values():
            value = each["result"].get("observed_value")
            if isinstance(value, int | float):
                points.setdefault(_key(each), []).append((verdict, value, bool(each["success"])))
    findings = {(finding.expectation, finding.severity): finding for finding in newest.findings}
    found = [_result(key, each, findings.pop(key[:2], None), points.get(key, [])) for key, each in now.items()]
    found += [_unmeasured(finding) for finding in findings.values()]
    return sorted(found, key=lambda result: (result.passed, result.severity != CRITICAL))


def unmet(settings: Settings, verdict: Verdict) -> list[Result]:
    """The expectations of a verdict that were not met."""
    return [each for each in results_of(settings, [verdict]) if not each.passed]


def _result(key: _Key, each: dict[str, Any], finding: Finding | None, points: list[tuple[Verdict, float, bool]]) -> Result:
    name, severity, expected = key
    observed = each["result"].get("observed_value")
    found = grouped(finding.found) if finding and finding.found else number(observed) if isinstance(observed, int | float) else NOTHING
    passed = bool(each["success"]) and finding is None
    return Result(
        name,
        severity,
        each["expectation_config"].get("description") or "",
        found,
        expected,
        passed,
        _trend(points, "bad" if severity == CRITICAL else "warn"),
    )


def _unmeasured(finding: Finding) -> Result:
    """What a verdict says of an expectation that no result is kept of."""
    found, expected = finding.found or NOTHING, finding.expected or NOTHING
    return Result(finding.expectation, finding.severity, "", found, expected, passed=False, trend=_trend([], ""))


def _trend(points: Iterable[tuple[Verdict, float, bool]], failed: str) -> charts.Chart:
    points = list(points)
    says = [f"{moment(verdict.judged_at)} UTC: {number(value)}" for verdict, value, _ in points]
    return charts.spark([value for _, value, _ in points], says, ["one" if passed else failed for _, _, passed in points])


def _key(each: dict[str, Any]) -> _Key:
    config = each["expectation_config"]
    least, most = (config["kwargs"].get(name) for name in ("min_value", "max_value"))
    limits = [f"at least {least:,.15g}" if least is not None else "", f"at most {most:,.15g}" if most is not None else ""]
    return str(config["kwargs"].get("column")), str(config.get("severity") or CRITICAL), " and ".join(filter(None, limits))


def _read(settings: Settings, verdict: Verdict) -> list[dict[str, Any]]:
    """The results that are kept beside a verdict's report; none where they have expired or cannot be read."""
    page = unquote(verdict.page or "").removeprefix("data_docs/validations/")
    folder = (settings.quality / "gx/validations").resolve()
    file = Path(folder, page).with_suffix(".json").resolve() if page.endswith(".html") else folder
    try:
        if not file.is_relative_to(folder) or not file.is_file():
            return []
        found = json.loads(file.read_text(encoding="utf-8"))["results"]
        whole = [each for each in found if isinstance(each["result"], dict) and each["expectation_config"]["kwargs"]]
        return [each for each in whole if _key(each) and isinstance(each["success"], bool)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        log.warning("%s cannot be read: %s", file, first_line(error))
        return []
