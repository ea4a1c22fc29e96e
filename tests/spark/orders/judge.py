"""How gates judge in these tests: by the measures and limits of the suites, without Great Expectations and its reports."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from expectations.gate import Failure, Judgement
from expectations.profile import Query, measure_table
from expectations.suites import Suite, read_suite


@dataclass
class Judge:
    """Takes the place of `expectations.gate.judge`; while `is_closed` no table passes."""

    is_closed: bool = False

    def __call__(self, _: Path, __: str, queries: Mapping[str, Query], *___: object, **____: object) -> list[Judgement]:
        found = []
        for table, query in queries.items():
            suite = read_suite(table)
            planted = [Failure(table, "planted", "critical", "1", "0")] if self.is_closed else []
            found.append(Judgement(table, len(suite.expectations), (*_failures(suite, query), *planted), None))
        return found


def _failures(suite: Suite, query: Query) -> list[Failure]:
    profile = measure_table(suite, query)
    failures = []
    for expectation in suite.expectations:
        limits, name = expectation["kwargs"], expectation["kwargs"]["column"]
        value, least, most = profile.values.get(name), limits.get("min_value"), limits.get("max_value")
        if value is None or (least is not None and value < least) or (most is not None and value > most):
            failures.append(Failure(suite.table, name, expectation["severity"], str(profile.errors.get(name, value)), f"{least} to {most}"))
    return failures
