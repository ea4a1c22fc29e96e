"""The rehearsal of a rule set: which stored rows it would refuse or accept, and when silver's gate would have closed for it.

Spark judges the bronze rows, since rules are Spark SQL; what it found lies in a temporary folder until the command ends.
"""

import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from expectations.row_rules import RuleSet, parse_rules
from expectations.suites import read_suite
from spark_jobs.control import rule_sets
from spark_jobs.lake.tables import LAYERS, Table
from spark_jobs.lake.topic import ARRIVAL
from spark_jobs.lake.topics import BY_TOPIC
from spark_jobs.releases.rehearsal import PastRun, conclude, find_runs, judge_runs
from spark_jobs.runtime.errors import SettingsError, first_line
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import print_masked
from spark_jobs.runtime.values import to_rows

ROWS_SHOWN = 20
_MEASURE = "quarantined_per_thousand"  # the one expectation of silver's suites that a rule set alone decides

_STORED = Template("create view stored as select * from raw_stored where _batch between $first and $last")
_ONLY_IN = Template(
    "create view $name as select l.* from $left l left anti join $right r "
    "on l._topic = r._topic and l._partition = r._partition and l._offset = r._offset"
)
_BY_RULE = Template("select rule, count(*) as n from (select unnest(broken_rules) as rule from $name) group by rule order by n desc, rule")
_BY_BATCH = Template("select _batch, count(*) as n from $name group by _batch order by _batch")
_ROWS = Template(
    "select concat(_topic, '/', _partition, '/', _offset, ' of batch ', _batch, ': ', array_to_string(broken_rules, ', ')) as line "
    "from $name order by _batch, _topic, _partition, _offset limit $most"
)


def run(settings: Settings, layer: str, file: Path, since: int) -> None:
    """Judge the bronze batches that silver took after a release by the rules in a file, and print what would be different.

    The file's name says the topic (`transactions.yaml`, `transactions-2.yaml`). Raises SettingsError for a file, layer or release that
    cannot be used, GateClosed when the share of quarantined rows would have closed silver's gate.
    """
    if layer != "silver":
        raise SettingsError(f"found rules for gate {layer}, expected gate silver: rules judge the rows that silver takes")
    rules = read_rule_file(file)
    table = next(table for table in LAYERS["silver"] if table.name == f"silver.{rules.topic}")
    runs = find_runs(settings, table, since)
    print_masked(f"{table.name} by the rules {rules.version!r} of {file}, after release {since}: {len(runs)} runs")
    if not runs:
        conclude([], 0)
        return
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as folder:
        refused = Path(folder) / "refused"
        _refuse(settings, rules, file, runs, refused)
        _compare(settings, BY_TOPIC[rules.topic].quarantine, runs, refused)
        suite = read_suite(table.name).about({_MEASURE})
        instead = {BY_TOPIC[rules.topic].quarantine.name: refused}
        by_batches = [replace(run, versions={}, is_newest=True) for run in runs]  # no table is needed as it was then
        conclude(judge_runs(settings, table, suite, by_batches, instead), len(runs))


def read_rule_file(file: Path) -> RuleSet:
    """The rule set in a file whose name begins with its topic; raises SettingsError when there is none."""
    topic = re.match(rf"({'|'.join(BY_TOPIC)})(?![A-Za-z_])", file.name)
    if topic is None:
        raise SettingsError(f"{file}: found rules of no known topic, expected a name such as transactions.yaml or transactions-2.yaml")
    try:
        return parse_rules(topic[1], file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{file}: {error}") from None


def _refuse(settings: Settings, rules: RuleSet, file: Path, runs: Sequence[PastRun], folder: Path) -> None:
    """Write, as a Delta table, the coordinates of the rows that the rules refuse, and the rules that they break."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    from spark_jobs.lake import sources
    from spark_jobs.runtime.session import start_session
    from spark_jobs.silver.judge import is_valid
    from spark_jobs.silver.records import judge_records

    spark = start_session(settings, "ledger rehearsal")
    topic = BY_TOPIC[rules.topic]
    within = F.col("_batch").between(runs[0].first_batch, runs[-1].last_batch)
    rows = sources.read_table(spark, settings, topic.bronze).where(within)
    rules = replace(rules, schemas=rule_sets.schemas(settings, topic.name))
    try:
        judged = judge_records(rows, topic, rules)
        refused = judged.where(~is_valid()).select("broken_rules", *ARRIVAL)
    except AnalysisException as error:
        raise SettingsError(f"{file}: found a rule that is no SQL over the fields: {first_line(error)}") from None
    refused.write.format("delta").save(str(folder))


def _compare(settings: Settings, quarantine: Table, runs: Sequence[PastRun], refused: Path) -> None:
    """Print the rows that only the rehearsed rules refuse, and those that only the stored quarantine has."""
    builder = QueryBuilder().register("rehearsed", DeltaTable(str(refused)))
    builder.register("raw_stored", quarantine.open(settings))
    builder.execute(_STORED.substitute(first=runs[0].first_batch, last=runs[-1].last_batch))
    builder.execute(_ONLY_IN.substitute(name="refused", left="rehearsed", right="stored"))
    builder.execute(_ONLY_IN.substitute(name="accepted", left="stored", right="rehearsed"))
    for name, heading in (("refused", "would be refused, and was accepted"), ("accepted", "would be accepted, and was refused")):
        by_batch = _ask(builder, _BY_BATCH.substitute(name=name))
        total = sum(row["n"] for row in by_batch)
        print_masked(f"  {total} rows {heading}")
        if total:
            by_rule = _ask(builder, _BY_RULE.substitute(name=name))
            print_masked("    by rule: " + ", ".join(f"{row['rule']} {row['n']}" for row in by_rule))
            more = f" and {len(by_batch) - ROWS_SHOWN} more batches" if len(by_batch) > ROWS_SHOWN else ""
            print_masked("    by batch: " + ", ".join(f"{row['_batch']}: {row['n']}" for row in by_batch[:ROWS_SHOWN]) + more)
            for row in _ask(builder, _ROWS.substitute(name=name, most=ROWS_SHOWN)):
                print_masked(f"    {row['line']}")
            print_masked(f"    and {total - ROWS_SHOWN} more rows" if total > ROWS_SHOWN else "    that is all of them")


def _ask(builder: QueryBuilder, sql: str) -> list[dict[str, Any]]:
    return to_rows(pa.table(builder.execute(sql).read_all()))
