"""What the pages take from their addresses; anything else is answered with 422, and with what was found and expected."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from fastapi import Depends, Query
from pydantic import AfterValidator, BeforeValidator

from include.quality_page import explained, quarantine
from spark_jobs.lake.tables import Table

LONGEST_SHOWN = 100  # of what was found


def _one_of(names: Iterable[str]) -> AfterValidator:
    return _like("|".join(map(re.escape, names)), f"one of {', '.join(names)}")


def _like(pattern: str, words: str) -> AfterValidator:
    """A text of a form; `words` say which."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(words)
        return text

    return AfterValidator(check)


PageNumber = Annotated[int, Query(ge=1, le=quarantine.MOST_PAGES)]
Batch = Annotated[int, BeforeValidator(lambda text: text or 0), Query(ge=0, le=2**62)]  # an empty field is no limit
ReleaseNumber = Annotated[int, BeforeValidator(lambda text: text or 0), Query(ge=0, le=2**62)]  # an empty field is no release: as it is now
Hours = Annotated[int, Query(ge=1, le=168)]
RuleName = Annotated[str, _like(r"([a-z][a-z0-9_]{0,99})?", "the name of a rule")]
SourceName = Annotated[str, _like(r"[\w.#:/ -]{0,200}", "a topic, or file:NAME")]
TableName = Annotated[str, _one_of(quarantine.TABLES)]
GoldName = Annotated[str, _one_of(explained.TABLES)]


def chosen_rows(
    table: TableName = "silver.transactions_quarantine",
    rule: RuleName = "",
    first_batch: Batch = 0,
    last_batch: Batch = 0,
    source: SourceName = "",
    chosen_for: TableName | None = None,
) -> tuple[Table, quarantine.Filter]:
    """A table and which of its rows. `last_batch` 0: up to the newest.

    Rule, batches and source are those of a table: chosen for another one (`chosen_for`), they do not count.
    """
    is_for_it = chosen_for in (None, table)
    chosen = quarantine.Filter(rule or None, first_batch, last_batch, source) if is_for_it else quarantine.Filter()
    return quarantine.TABLES[table], chosen


Chosen = Annotated[tuple[Table, quarantine.Filter], Depends(chosen_rows)]


def what_is_wrong(errors: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each part of an address that cannot be used, of pydantic's errors."""
    return [f"{error['loc'][-1]}: found {_found(error)}, expected {_expected(error)}" for error in errors]


def _found(error: Mapping[str, Any]) -> str:
    return "none" if error["type"] == "missing" else repr(str(error["input"])[:LONGEST_SHOWN])


def _expected(error: Mapping[str, Any]) -> str:
    facts = error.get("ctx", {})
    if error["type"] == "value_error":
        return str(facts["error"])
    limits = {"greater_than_equal": "at least {ge:,}", "less_than_equal": "at most {le:,}", "literal_error": "{expected}"}
    words = limits | {"int_parsing": "a whole number", "missing": "one"}
    return words.get(error["type"], "another value").format(**facts)
