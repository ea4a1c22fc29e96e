"""Bronze rows of a topic as it declares them: its JSON fields, and the columns that silver makes of them. Pure."""

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, functions as F

from expectations.row_rules import RuleSet
from expectations.wire_format import WireSchema
from spark_jobs.lake.topic import ARRIVAL, Field, Topic
from spark_jobs.runtime.text import quoted
from spark_jobs.silver.judge import IS_VALID, detail, is_valid, judge
from spark_jobs.silver.parse import parse_fields, time_of


def parse_records(
    bronze: DataFrame,
    topic: Topic,
    schemas: Sequence[WireSchema],
    order: Sequence[str] = (),
    parse: Callable[..., DataFrame] = parse_fields,
) -> DataFrame:
    """Bronze rows with the parsed fields of their topic, read by these schemas, `_key`, `is_deletion` and `_at` beside them.

    `order`: which names most values have, in their order; by itself as the topic declares them. `_at` is the time of a record (UTC), of
    a deletion its Kafka timestamp; null where there is none to be read.
    """
    keyed = bronze.withColumn("_key", F.col("key").cast("string")).withColumn("is_deletion", F.col("value").isNull())
    at = time_of(topic.kind.time)
    if topic.has_versions:
        at = f"case when is_deletion then _timestamp else {at} end"
    return parse(keyed, topic.texts, topic.numbers, schemas, order or topic.names).withColumn("_at", F.expr(at))


def judge_records(bronze: DataFrame, topic: Topic, rules: RuleSet) -> DataFrame:
    """Bronze rows with what `parse_records` reads beside them, `broken_rules`, and the `detail` of those that break some."""
    return judge_parsed(parse_records(bronze, topic, rules.schemas), topic, rules)


def judge_parsed(parsed: DataFrame, topic: Topic, rules: RuleSet) -> DataFrame:
    """`judge_records` of rows that are parsed already."""
    return judge(parsed, rules).withColumn("detail", detail(rules, topic.names))


def outcome_columns(judged: DataFrame, topic: Topic, *others: str) -> DataFrame:
    """Judged rows with the columns of `typed` where they are valid, else with key, value and detail; and with some other columns."""
    return judged.selectExpr(
        *(f"case when {IS_VALID} then {text} end as {name}" for name, text in typed(topic).items()),
        *(f"case when not {IS_VALID} then {name} end as {name}" for name in ("key", "value", "detail")),
        "broken_rules",
        *ARRIVAL,
        *others,
    )


def valid_records(bronze: DataFrame, topic: Topic, rules: RuleSet) -> DataFrame:
    """The bronze rows that keep all rules, as `type_records` gives them. The others do not come out."""
    return type_records(judge_records(bronze, topic, rules).where(is_valid()), topic)


def quarantined(judged: DataFrame, topic: Topic) -> DataFrame:
    """The rows that break a rule, as the quarantine table has them."""
    return judged.where(~is_valid()).selectExpr(*quoted(topic.quarantine.columns))


def type_records(parsed: DataFrame, topic: Topic) -> DataFrame:
    """Parsed rows that are known to be valid, with the columns of `typed` and their arrival. No rule is asked; no row is dropped."""
    return parsed.selectExpr(*(f"{text} as {name}" for name, text in typed(topic).items()), *ARRIVAL)


def typed(topic: Topic) -> dict[str, str]:
    """The columns of a topic's silver table by name, in SQL, from the parsed fields of a valid row; not those that follow from other rows.

    Of a deletion all are null but the key, valid_from and is_deleted.
    """
    values = {field.column: _value(field) for field in topic.values}
    if not topic.has_versions:
        values |= {"event_at": "_at", "event_on": "to_date(_at)"}
        return {name: values[name] for name in topic.silver.columns if name in values}
    values = {name: f"case when not is_deletion then {value} end" for name, value in values.items()}
    return values | {topic.key: "_key", "valid_from": "_at", "is_deleted": "is_deletion"}


def _value(field: Field) -> str:
    text = f"`{field.name}`.text"
    if field.type == "timestamp":
        return time_of(field.name)
    if field.type != "string":
        return f"try_cast({text} as {field.type})"
    return f"nullif({text}, '')" if field.empty_is_null else text
