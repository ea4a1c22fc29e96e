"""Profiles: what the measures of a suite come to. All plain measures of a table are taken in one scan."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import Template

import pyarrow as pa

from expectations.suites import Measure, Suite

log = logging.getLogger(__name__)

Query = Callable[[str], pa.Table]
_SCAN = Template("select $columns from written")


@dataclass(frozen=True)
class Profile:
    """The measures of one table: values by name, and why others have none."""

    table: str
    values: dict[str, int]
    errors: dict[str, str]


def measure_table(suite: Suite, query: Query) -> Profile:
    """Take every measure of a suite. `query` answers SQL; its errors are kept with the measure and do not end the others."""
    plain = [measure for measure in suite.measures if not measure.is_query]
    values, errors = _take(plain, query, _select(plain)) if plain else ({}, {})
    if plain and not values and len(plain) > 1:  # one broken measure must not hide what the others say
        for measure in plain:
            _merge(_take([measure], query, _select([measure])), values, errors)
    for measure in suite.measures:
        if measure.is_query:
            _merge(_take([measure], query, measure.sql), values, errors)
    return Profile(suite.table, values, errors)


def _merge(taken: tuple[dict[str, int], dict[str, str]], values: dict[str, int], errors: dict[str, str]) -> None:
    for name in (*taken[0], *taken[1]):
        errors.pop(name, None)
    values.update(taken[0])
    errors.update(taken[1])


def _select(measures: Sequence[Measure]) -> str:
    columns = ", ".join(f'({measure.sql}) as "{measure.name}"' for measure in measures)
    return _SCAN.substitute(columns=columns)


def _take(measures: Sequence[Measure], query: Query, sql: str) -> tuple[dict[str, int], dict[str, str]]:
    """Values and errors of measures, which are the columns of one query, in order."""
    try:
        answer = query(sql)
    except Exception as error:  # any failure to measure is an answer: it closes the gate
        log.warning("%s cannot be measured: %s", ", ".join(m.name for m in measures), error)
        log.debug("", exc_info=True)
        return {}, {measure.name: f"{type(error).__name__}: {error}" for measure in measures}
    if (answer.num_rows, answer.num_columns) != (1, len(measures)):
        found = f"{answer.num_rows} rows of {answer.num_columns} columns, expected 1 row of {len(measures)}"
        return {}, {measure.name: found for measure in measures}
    values: dict[str, int] = {}
    errors: dict[str, str] = {}
    for measure, column in zip(measures, answer.columns, strict=True):
        value = column[0].as_py()
        if pa.types.is_integer(column.type) and value is not None:
            values[measure.name] = value
        else:
            errors[measure.name] = f"found {value!r} ({column.type}), expected a whole number"
    return values, errors
