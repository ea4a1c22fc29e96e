"""`python -m include.docs.generate [--check]`: make rules.md and tables.md from what is declared.

With `--check` nothing is written: exit 1, with one line a page, when a page is not what would be made.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from expectations.row_rules import read_rules
from spark_jobs.lake.schema import SCHEMA_VERSION
from spark_jobs.lake.tables import BRONZE, CONTROL, LAYERS, LIVE, SILVER_INDEXES, Table
from spark_jobs.runtime.settings import ROOT

FOLDER = ROOT / "include/docs"
MADE = "<!-- Made by `make format` (python -m include.docs.generate) from {source}: change that, not this page. -->"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or compare them; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m include.docs.generate", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a page is not current")
    check = parser.parse_args(arguments).check
    stale = {name: text for name, text in pages().items() if read(FOLDER / name) != text}
    for name, text in stale.items():
        if not check:
            (FOLDER / name).write_text(text)
        print(f"include/docs/{name}: " + ("differs from what is declared: run make format" if check else "written"))
    return 1 if check and stale else 0


def read(page: Path) -> str | None:
    """The text of a page; None where there is none."""
    return page.read_text() if page.exists() else None


def pages() -> Mapping[str, str]:
    """File name -> what the page must hold."""
    makers: dict[str, Callable[[], Iterable[str]]] = {"rules.md": rules_page, "tables.md": tables_page}
    return {name: "\n".join(make()) + "\n" for name, make in makers.items()}


def rules_page() -> Iterable[str]:
    """Every row rule of every topic."""
    yield "# Row rules"
    yield ""
    yield MADE.format(source="expectations/rules/*.yaml")
    yield ""
    yield "A row that breaks a rule goes to quarantine with the names of all the rules it breaks. A value that breaks `parseable` is judged"
    yield "by no other rule; otherwise all are judged, and a missing value breaks its rule unless the rule says that it may be absent."
    yield ""
    yield "`critical` means that: the row is kept out of silver. There is no other severity, because silver has no place for a row's"
    yield "warnings. Fields that a topic does not have break no rule. Where a row breaks one, `detail` names them too; of a valid row"
    yield "they stay in bronze, under its coordinates."
    yield ""
    yield "Every batch is judged by the rules of its time (`rules_version` in `control.batches`; `control.rule_sets` keeps every text)."
    yield "Only a re-drive or a backfill judges it by newer ones. A file that changed under a version that was used already is refused."
    for topic in (source.topic for source in BRONZE):
        rules = read_rules(topic)
        yield from ("", f"## {topic}", "", f"Version {rules.version}. Quarantine: `silver.{topic}_quarantine`.", "")
        yield from table("rule", "field", "holds when", "severity", "predicate (Spark SQL over parsed fields)")
        for rule in rules.rules:
            yield row(f"`{rule.name}`", f"`{rule.field}`", rule.description, rule.severity, f"`{rule.holds}`")


def tables_page() -> Iterable[str]:
    """Every Delta table with its columns."""
    yield "# Tables"
    yield ""
    yield MADE.format(source="spark_jobs/lake/tables.py")
    yield ""
    yield f"The warehouse has a schema version, {SCHEMA_VERSION} at present: the number in the file `$LEDGER_WAREHOUSE/schema_version`,"
    yield "which every change of a table's columns raises. A job refuses a warehouse that has a newer one than it knows (exit code 1)."
    yield "To the tables of an older warehouse, which has a smaller number or no such file, every job first adds the columns that they"
    yield "lack, each under the table's lease; they are null in the rows that were there. Another difference (a type, a column that"
    yield "is not declared, the partitions) is refused with all differences in one line, and nothing is changed. `explain`, `export`,"
    yield "`make sql` and the page *Quality* add nothing: columns that a control table lacks are null there."
    yield ""
    yield "Delta tables at `$LEDGER_WAREHOUSE/<layer>/<table>`. Times are UTC. `_topic`, `_partition` and `_offset` name a Kafka record,"
    yield "`_batch` the bronze micro-batch that brought it."
    for layer, tables in {
        **LAYERS,
        "silver": (*LAYERS["silver"], *SILVER_INDEXES),
        "gold": (*LAYERS["gold"], *LIVE),
        "control": CONTROL,
    }.items():
        yield from ("", f"## {layer}")
        for each in tables:
            yield from ("", f"### {each.name}", "")
            yield from facts(each)
            yield from table("column", "type")
            for column, kind in columns(each):
                yield row(f"`{column}`", f"`{kind}`")


def facts(each: Table) -> Iterable[str]:
    """What is declared of a table beside its columns, as one line."""
    told = {"Unique": ", ".join(f"`{key}`" for key in each.keys), "Partitioned by": ", ".join(f"`{name}`" for name in each.partitioned_by)}
    told["Properties"] = ", ".join(f"`{name}={value}`" for name, value in each.properties.items())
    if known := [f"{name}: {text}." for name, text in told.items() if text]:
        yield from (" ".join(known), "")


def columns(each: Table) -> Iterable[tuple[str, str]]:
    """Name and type, in SQL's words, of each column."""
    for column in json.loads(each.delta_schema().to_json())["fields"]:
        yield column["name"], words(column["type"])


def words(kind: str | Mapping[str, Any]) -> str:
    """A type of Delta's schema in SQL's words."""
    if isinstance(kind, str):
        return {"long": "bigint", "integer": "int"}.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{words(kind['elementType'])}>"
    parts = (f"{part['name']}: {words(part['type'])}" for part in kind["fields"])
    return f"struct<{', '.join(parts)}>"


def table(*heads: str) -> Iterable[str]:
    """The first two lines of a Markdown table."""
    return (row(*heads), "|" + "---|" * len(heads))


def row(*cells: str) -> str:
    """A line of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.exit(main())
