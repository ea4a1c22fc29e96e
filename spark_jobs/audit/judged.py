"""Every bronze row judged again: by the rules, and with the correction, by which it was judged last.

That is the set of its batch, until a backfill of its time or a re-drive judged it again. A correction counts for rows that a re-drive,
or a backfill, has judged after it was given.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise

from pyspark.sql import DataFrame, SparkSession, functions as F

from expectations.wire_format import WireSchema
from spark_jobs.audit.queries import ARRIVAL, query, text_of
from spark_jobs.audit.snapshot import Pinned, Snapshot
from spark_jobs.control.rule_sets import recorded, schemas
from spark_jobs.lake.kept import kept
from spark_jobs.lake.topic import Topic
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.times import to_micros
from spark_jobs.silver.parse import parse_fields

_FEW = 1_000_000  # re-driven records that are sent to every task
_LONGEST = 200  # characters of a value in `detail`

# The last re-drive of each record, and the newest correction that there was then.
_AGAIN = """
    with last as (
        select $place, max_by(rules_version, redriven_at) as rules, max(redriven_at) as at
        from {redrives} where `table` = 'silver.$topic' and $counts group by $place),
    given as (
        select last.*, c.value, c.corrected_at
        from last left join {corrections} as c
            on last._topic = c._topic and last._partition = c._partition and last._offset = c._offset and c.corrected_at <= last.at)
    select $place, any_value(rules) as rules_again, max_by(value, corrected_at) as corrected from given group by $place"""
_EFFECTIVE = """
    select key, value as brought, coalesce(corrected, value) as value, _timestamp, $arrival, rules_again,
        cast(key as string) as _key, coalesce(corrected, value) is null as is_deletion
    from {bronze} left join {again} using ($place) where _batch <= {last}"""


def read(spark: SparkSession, pinned: Pinned) -> DataFrame:
    """A table as it was pinned."""
    return spark.read.format("delta").option("versionAsOf", pinned.version).load(pinned.path)


def judged_rows(spark: SparkSession, settings: Settings, snapshot: Snapshot, declared: Topic) -> DataFrame:
    """Every bronze row of a topic up to the last batch that counts, with `broken_rules` and `_batch`, `_topic`, `_partition`, `_offset`.

    A valid row (it breaks none) has the columns of silver, of dimensions valid_from and is_deleted included. Of the others these are
    null, and they have key and value as Kafka brought them, and detail. Times are UTC. No row is dropped.
    Raises LedgerError where a rule set is not recorded by which some row was judged, or the topic has no query.
    """
    topic = declared.name
    again = query(
        spark,
        _AGAIN,
        {"topic": topic, "counts": _counts(snapshot, topic)},
        redrives=read(spark, snapshot.tables["control.redrives"]),
        corrections=read(spark, snapshot.tables["control.corrections"]),
    ).transform(kept)
    bronze = read(spark, snapshot.tables[f"bronze.{topic}"])
    counts = {row["rules_again"]: row["count"] for row in again.groupBy("rules_again").count().collect()}
    few = F.broadcast(again) if sum(counts.values()) <= _FEW else again
    rows = query(spark, _EFFECTIVE, bronze=bronze, again=few, last=snapshot.last_batch(topic))
    known = schemas(settings, topic)
    parsed = parse_fields(rows, declared.texts, declared.numbers, known, declared.names).withColumn("_schema", F.expr(_schema_of(known)))
    rows = query(spark, text_of("topics", topic), parsed=parsed)
    versions = counts.keys() | {each.rules for each in snapshot.batches[topic]}
    versions |= {step.rules[topic] for step in snapshot.steps if topic in step.rules}
    by_version = {version: _verdict(settings, declared, version) for version in sorted(versions)}
    none = "when false then null"
    rows = rows.withColumn("_rules", F.expr(_rules_of(snapshot, topic)))
    broken = [f"when _rules = {_literal(version)} then {broken}" for version, (broken, _) in by_version.items()]
    rows = rows.withColumn("broken_rules", F.expr(f"cast(case {' '.join(broken) or none} end as array<string>)"))
    details = [f"when _rules = {_literal(version)} then {detail}" for version, (_, detail) in by_version.items()]
    rows = rows.withColumn("_detail", F.expr(f"cast(case {' '.join(details) or none} end as string)"))
    is_valid = F.size("broken_rules") == 0
    of_broken = {"key": "key", "value": "brought", "detail": "_detail"}
    return rows.select(
        *(F.when(is_valid, F.col(f"_typed.{name}")).alias(name) for name in rows.select("_typed.*").columns),
        *(F.when(~is_valid, F.col(column)).alias(name) for name, column in of_broken.items()),
        "broken_rules",
        *ARRIVAL,
    )


def _counts(snapshot: Snapshot, topic: str) -> str:
    """Which rows of control.redrives count."""
    conditions = [f"not ({_moment(after)} < redriven_at and redriven_at <= {_moment(upto)})" for after, upto in snapshot.withdrawn]
    if snapshot.redrives_upto is not None:
        conditions.append(f"_silver_version <= {snapshot.redrives_upto[f'silver.{topic}']}")
    if snapshot.upto is not None:
        conditions.append(f"redriven_at <= {_moment(snapshot.upto)}")
    return " and ".join(conditions) or "true"


def _rules_of(snapshot: Snapshot, topic: str) -> str:
    """The version of the rules by which a row was judged last, in SQL.

    A re-drive records every row that it judges. A backfill records those that were ever corrected or re-driven, and of the others the
    ranges of time: of the batches that silver had taken by then.
    """
    batches = snapshot.batches[topic]
    if not batches:
        return "cast(null as string)"
    steps = []
    for step in reversed([each for each in snapshot.steps if topic in each.rules]):
        last = max((each.last for each in batches if each.at <= step.at), default=0)
        within = f"_at >= {_moment(step.start)} and _at < {_moment(step.end)} and _batch <= {last}"
        steps.append(f"when {within} then {_literal(step.rules[topic])}")
    if len({each.rules for each in batches} | {each.rules[topic] for each in snapshot.steps if topic in each.rules}) == 1:
        steps = []  # they are the same everywhere
    ends = [one for one, other in pairwise(batches) if one.rules != other.rules]
    first = [f"when _batch <= {each.last} then {_literal(each.rules)}" for each in ends]
    of_batch = f"case {' '.join(first)} else {_literal(batches[-1].rules)} end" if first else _literal(batches[-1].rules)
    return f"coalesce(rules_again, case {' '.join(steps)} else {of_batch} end)" if steps else f"coalesce(rules_again, {of_batch})"


def _verdict(settings: Settings, topic: Topic, version: str) -> tuple[str, str]:
    """Of a recorded rule set: the names of the rules that a row breaks, and what was found of each, in SQL."""
    rules = recorded(settings, topic.name, version)
    parseable, *others = rules.rules
    is_read = f"_schema <= {len(rules.schemas)}"  # else its schema came to be known later
    names = [f"if(coalesce({rule.holds}, false), null, {_literal(rule.name)})" for rule in others]
    broken = f"""if({is_read} and coalesce({parseable.holds}, false), cast(array_compact(array({", ".join(names)})) as array<string>),
        array({_literal(parseable.name)}))"""
    found_by_rule = {_literal(rule.name): _found(rule.field, topic.names) for rule in (parseable, *others)}
    found = [f"if(array_contains(broken_rules, {name}), concat({name}, ': found ', {text}), null)" for name, text in found_by_rule.items()]
    unknown = f"array_except(json_object_keys(_text), array({', '.join(map(_literal, topic.names))}))"
    has_more = f"{is_read} and is_json_object and size({unknown}) > 0"
    extra = f"if({has_more}, concat('unknown fields: ', left(concat_ws(', ', {unknown}), {_LONGEST})), null)"
    return broken, f"if(size(broken_rules) > 0, concat_ws('; ', {', '.join(found)}, {extra}), null)"


def _schema_of(known: Sequence[WireSchema]) -> str:
    """The number of the schema by which a value was read, in SQL; 0 for one without a header, or whose schema nobody knows."""
    numbers = [f"when {schema.id} then {number}" for number, schema in enumerate(known, start=1)]
    named = "cast(conv(hex(substring(value, 2, 4)), 16, 10) as bigint)"
    return f"if(substring(value, 1, 1) = x'00', case {named} {' '.join(numbers)} else 0 end, 0)" if numbers else "0"


def _found(field: str, fields: Iterable[str]) -> str:
    if field in fields:
        return f"coalesce(concat({field}.kind, ' ', left({field}.text, {_LONGEST})), {field}.kind, 'nothing')"
    return f"coalesce(concat(length({field}), ' bytes of {field}'), 'no {field}')"


def _moment(time: datetime) -> str:
    return f"timestamp_micros({to_micros(time)})"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
