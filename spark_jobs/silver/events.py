"""Events: typed, judged, the first of each key, and which rows came late. Pure: frames in, frames out."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession, Window, functions as F

from expectations.row_rules import RuleSet
from spark_jobs.lake.topic import ARRIVAL, Topic
from spark_jobs.silver import records
from spark_jobs.silver.judge import is_valid, keeps_all
from spark_jobs.silver.parse import parse_ordinary
from spark_jobs.silver.records import parse_records


def judge_events(bronze: DataFrame, topic: Topic, rules: RuleSet, order: Sequence[str] = ()) -> DataFrame:
    """Every bronze row, judged: with the columns of the silver table if it is valid, else with key, value and detail.

    event_at is UTC. No row is dropped. Fields that the topic does not have are named in the detail of a row that breaks a rule; a valid
    row has no detail, and its unknown fields stay in bronze, under its coordinates. `order` is that of `parse_records`.
    """
    return judge_parsed(parse_records(bronze, topic, rules.schemas, order), topic, rules)


def judge_ordinary(bronze: DataFrame, topic: Topic, rules: RuleSet, order: Sequence[str] = ()) -> DataFrame:
    """`judge_events` of the rows of ordinary shape that keep all rules, in about half of the time.

    The others come out with key, value and _timestamp, and with null in place of broken_rules.
    """
    parsed = parse_records(bronze, topic, rules.schemas, order, parse_ordinary).withColumn("_is_valid", keeps_all(rules))
    return parsed.selectExpr(
        *(f"case when _is_valid then {text} end as {name}" for name, text in records.typed(topic).items()),
        *(f"case when not _is_valid then {name} end as {name}" for name in ("key", "value", "_timestamp")),
        "cast(null as string) as detail",
        "case when _is_valid then cast(array() as array<string>) end as broken_rules",
        *ARRIVAL,
    )


def judge_whole(bronze: DataFrame, topic: Topic, rules: RuleSet) -> DataFrame:
    """Every bronze row with the columns of the silver table, and `_is_valid`; where that is false they are null."""
    judged = judge_events(bronze, topic, rules)
    return judged.select(*topic.silver.columns, is_valid().alias("_is_valid"))


def judge_parsed(parsed: DataFrame, topic: Topic, rules: RuleSet, *others: str) -> DataFrame:
    """`judge_events` of rows that are parsed already, with some other columns of theirs."""
    return records.outcome_columns(records.judge_parsed(parsed, topic, rules), topic, *others)


def mark_duplicates(judged: DataFrame, known: DataFrame, topic: Topic) -> DataFrame:
    """Say of every valid row which one was the first of its key by arrival.

    Adds is_first, first_topic, first_partition, first_offset and is_conflicting (some content differs from the first's).
    `known` are the rows of the silver table from earlier batches; rows of the same batches must not be among them.
    Of rows that are not valid, is_first is false and the rest null.
    """
    content, place = F.struct(*topic.content), F.struct("_topic", "_partition", "_offset")
    group = F.when(is_valid(), F.struct(F.col(topic.key).alias("key"), F.lit(-1).alias("n"))).otherwise(
        F.struct(F.concat_ws("/", "_topic", "_partition").alias("key"), F.col("_offset").alias("n"))
    )
    by_key = Window.partitionBy("_group").orderBy(*ARRIVAL)
    before = known.select(topic.key, place.alias("_known_place"), content.alias("_known_content"))
    first_place = F.coalesce("_known_place", F.first(place).over(by_key))
    first_content = F.coalesce("_known_content", F.first(content).over(by_key))
    return (
        judged.withColumn("_group", group)
        .join(before, on=topic.key, how="left")
        .withColumn("_first", F.when(is_valid(), first_place))
        .withColumn("is_conflicting", F.when(is_valid(), ~content.eqNullSafe(first_content)))
        .withColumn("is_first", F.coalesce(F.col("_first") == place, F.lit(False)))
        .withColumns({f"first_{name}": F.col("_first")[f"_{name}"] for name in ("topic", "partition", "offset")})
        .drop("_group", "_first", "_known_place", "_known_content")
    )


def batch_watermarks(
    newest: Iterable[tuple[int, datetime | None]], before: datetime | None, lateness_seconds: int
) -> list[tuple[int, datetime]]:
    """The watermark of each batch: the largest event time among valid rows of earlier batches, less the allowed lateness.

    `newest` is each batch's own largest event time; `before` that of all batches before these. A batch without any
    valid row before it has no watermark and is not in the result.
    """
    watermarks = []
    for batch, largest in sorted(newest, key=lambda pair: pair[0]):
        if before is not None:
            watermarks.append((batch, before - timedelta(seconds=lateness_seconds)))
        before = max((at for at in (before, largest) if at is not None), default=None)
    return watermarks


def late_rows(first: DataFrame, watermarks: list[tuple[int, datetime]], spark: SparkSession) -> DataFrame:
    """The rows of the silver table whose event time is before the watermark of their batch, with how late they are."""
    marks = spark.createDataFrame(watermarks, "_batch bigint, watermark_at timestamp")
    return rows_behind(first, F.broadcast(marks))


def rows_behind(first: DataFrame, marks: DataFrame) -> DataFrame:
    """`late_rows`, with the watermarks as a frame: _batch, watermark_at. A batch with none has no late rows."""
    late = first.join(marks, on="_batch", how="inner").where("event_at < watermark_at")
    seconds = (F.unix_micros("watermark_at") - F.unix_micros("event_at")).cast("decimal(38,6)") / F.lit(1_000_000).cast("decimal(38,0)")
    return late.withColumn("late_by_seconds", seconds.cast("decimal(18,3)"))
