"""Suites: what is expected of each table, one Great Expectations JSON file a table in suites/.

The expectations of every topic's tables are written once in suites/common: of `bronze`, `events`, `versions`, `duplicates`, `late` and
`quarantine`. The file of a topic's silver table says in its `meta` what the topic is: `kind` (`events` or `versions`) and `key`, the
column. The file of any of its tables may be absent; what it has is expected, too, and takes the place of what speaks of the same measure.

An expectation speaks of a measure: `kwargs.column` names it, `meta` says how to measure it, in DataFusion SQL:

- `meta.sql`: an aggregate over the rows that are judged (`count(*) filter (where amount < 0)`), or
- `meta.query`: a select of one value, where other tables or groups are needed. It may name `written` (the rows that are judged),
  any table as `silver_transactions` (up to the last judged batch), its judged batches as `written_silver_transactions`, its rows near
  these as `silver_transactions_near_1_hours` or `gold_account_days_near_0_days`, `control_batches`, `control_holes`, and `judged` (one
  row: first_batch, last_batch, judged_at, freshness_seconds): SQL has no clock of its own.

Of a gold table without batches, `written` holds the rows of the files that came since a gate let the table through: new rows, and others
that were written again with them. Where there are none, or the log does not tell which these are, it holds all. Of both, those near are
`written_gold_debit_credit_pairs_near_1_hours`.

Sums over all of a gold table are asked of what changed: `new_gold_daily_totals` has the rows of its files that came since then, and
`gone_gold_daily_totals` those of files that went, so that the one less the other is what `new_silver_transactions` adds, the rows of
silver's files that came. Where these files are not known, are many, or are there no more, or where rows of silver went, too, all rows are
new, of gold and of silver, and none is gone.

A row is near if its time (or some of its span) lies in the hour (day) of a judged row of silver, or at most so many hours (days) beside it.
These are the same hours (days) for every table, and rows of some others may be among them. Where rows of any time are judged, every row
is near. So a query about near rows, or about what changed, costs as much as what is new, and not as the history.
Of a table by `day`, `gold_account_days_near_31_days_of_account_id` has no others than those near judged rows of the same account (some
are farther away, by at most 63 days).

Of bronze, `bronze_transactions_at_offsets` has the rows between the first and the last judged offset of each partition, whichever batch
brought them. Of silver, `silver_transactions_of_firsts` has the rows at the offsets that the judged duplicates name as those of the first
rows, and a few others. Both are found in whatever history without reading it.

Two more words in `meta` are optional. `first` is a select of one text that names the first row that should not be, in words; it is
asked only when the expectation failed, and never names a person (ids, coordinates and amounts only). `without_new_rows: true` has
the expectation judged also when nothing new was written; its measure must be 0 as long as all is well.

In suites/common, `{topic}` and `{key}` stand for those of the topic, and `{rules}` for the names of its row rules, as a list of SQL
texts (expectations/rules).

A measure is a whole number, mostly a count of rows that should not be. Money is compared inside SQL, where decimals are exact:
Great Expectations compares doubles. A text may be a list of lines. An expectation without `sql` and `query` speaks of a measure that
another one of its suite defines. `severity` `critical` closes the gate; `warning` and `info` are reported only.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from expectations.row_rules import read_rules

FOLDER = Path(__file__).parent / "suites"
_BESIDE = ("quarantine", "duplicates", "late")  # tables that lie beside a silver table
_AT_MOST = "expect_column_max_to_be_between"
_MISSING_KEYS = Template("count(*) filter (where $missing)")
_REPEATED_KEYS = Template("select count(*) from (select $keys from $table group by $keys having count(*) > 1)")


class SuiteError(ValueError):
    """A suite cannot be used."""


@dataclass(frozen=True)
class Measure:
    """A whole number about a table: an aggregate over the judged rows, or a query of its own."""

    name: str
    sql: str
    is_query: bool
    first: str | None = None


@dataclass(frozen=True)
class Suite:
    """The expectations of a table, as Great Expectations writes them, and the measures they speak of."""

    table: str
    expectations: tuple[dict[str, Any], ...]
    measures: tuple[Measure, ...]

    def without_new_rows(self) -> "Suite":
        """What is expected also when nothing new was written; mostly nothing."""
        return self.about({each["kwargs"]["column"] for each in self.expectations if (each.get("meta") or {}).get("without_new_rows")})

    def about(self, names: Collection[str]) -> "Suite":
        """The expectations that speak of some measures only."""
        expectations = tuple(each for each in self.expectations if each["kwargs"]["column"] in names)
        return Suite(self.table, expectations, tuple(measure for measure in self.measures if measure.name in names))


def read_suite(table: str, folder: Path = FOLDER, keys: Sequence[str] = ()) -> Suite:
    """The suite of a table; raises SuiteError where it is missing, empty or cannot be read.

    Of a table that is no topic's, and whose `keys` are given, a suite that is missing is `suite_of_keys`.
    """
    file = folder / f"{table}.json"
    try:
        common = _common(table, folder)
        if keys and not common and not file.exists():
            return suite_of_keys(table, keys)
        suite = _suite(table, common) if common and not file.exists() else read_suite_file(file, folder)
    except (OSError, ValueError, KeyError) as error:
        raise error if isinstance(error, SuiteError) else SuiteError(f"{folder}: {error}") from None
    if suite.table != table:
        raise SuiteError(f"{file}: found suite {suite.table!r}, expected {table!r}")
    return suite


def suite_of_keys(table: str, keys: Sequence[str]) -> Suite:
    """What is expected of every table with keys: they are there, and none occurs twice."""
    words = {"table": table.replace(".", "_"), "keys": ", ".join(keys), "missing": " or ".join(f"{key} is null" for key in keys)}
    expected = {
        "missing_keys": ("Keys are there.", {"sql": _MISSING_KEYS.substitute(words)}),
        "repeated_keys": ("No key occurs twice.", {"query": _REPEATED_KEYS.substitute(words)}),
    }
    expectations = tuple(
        {"type": _AT_MOST, "kwargs": {"column": name, "max_value": 0}, "severity": "critical", "description": text, "meta": meta}
        for name, (text, meta) in expected.items()
    )
    return Suite(table, expectations, _read_measures(expectations))


def read_suite_file(file: Path, folder: Path = FOLDER) -> Suite:
    """The suite in a file, of whatever table, with what is expected of every such table; raises SuiteError where it cannot be used."""
    try:
        content = json.loads(file.read_text())
        name, own = content["name"], content["expectations"]
        measured = {each["kwargs"]["column"] for each in own}
        common = _common(name, folder) if isinstance(name, str) else []
        suite = _suite(name, [*(each for each in common if each["kwargs"]["column"] not in measured), *own])
    except SuiteError as error:
        raise SuiteError(f"{file}: {error}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SuiteError(f"{file} cannot be used ({type(error).__name__}: {error}), expected a suite of expectations") from None
    if not isinstance(name, str) or not suite.expectations:
        raise SuiteError(f"{file}: found suite {name!r} with {len(suite.expectations)} expectations, expected a name and at least one")
    return suite


def _suite(table: str, expectations: Sequence[dict[str, Any]]) -> Suite:
    return Suite(table, tuple(expectations), _read_measures(tuple(expectations)))


def _common(table: str, folder: Path) -> list[dict[str, Any]]:
    """What is expected of every table that a topic has in this place; nothing of a table that is no topic's."""
    for file in folder.glob("silver.*.json"):
        meta, topic = json.loads(file.read_text()).get("meta") or {}, file.stem.removeprefix("silver.")
        places = {f"silver.{topic}_{part}": part for part in _BESIDE} | {f"bronze.{topic}": "bronze", f"silver.{topic}": meta.get("kind")}
        if meta.get("kind") and table in places:
            text = (FOLDER / "common" / f"{places[table]}.json").read_text()
            words = {"topic": topic, "key": meta["key"]}
            if "{rules}" in text:
                words["rules"] = ", ".join(f"'{rule.name}'" for rule in read_rules(topic).rules)
            for word, value in words.items():
                text = text.replace(f"{{{word}}}", value)
            found: list[dict[str, Any]] = json.loads(text)["expectations"]
            return found
    return []


def _read_measures(expectations: tuple[Mapping[str, Any], ...]) -> tuple[Measure, ...]:
    measures: dict[str, Measure] = {}
    used: set[str] = set()
    for expectation in expectations:
        name, meta = expectation["kwargs"]["column"], expectation.get("meta") or {}
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise SuiteError(f"found measure {name!r}, expected a name in snake_case")
        used.add(name)
        texts = [(kind, meta[kind]) for kind in ("sql", "query") if meta.get(kind)]
        if not texts:
            continue
        if len(texts) > 1 or name in measures:
            raise SuiteError(f"measure {name} is defined more than once, expected once")
        kind, text = texts[0]
        measures[name] = Measure(name, _joined(text), kind == "query", _joined(meta["first"]) if meta.get("first") else None)
    if undefined := used - measures.keys():
        raise SuiteError(f"no meta.sql or meta.query for {', '.join(sorted(undefined))}, expected one for every measure")
    return tuple(measures.values())


def _joined(text: str | Sequence[str]) -> str:
    return text if isinstance(text, str) else "\n".join(text)
