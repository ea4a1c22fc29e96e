"""Silver transactions: typed, judged, the first of each id, and which rows came late. Pure: frames in, frames out."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession, Window, functions as F

from expectations.row_rules import RuleSet, read_rules
from spark_jobs.lake.tables import ARRIVAL, SILVER_TRANSACTIONS
from spark_jobs.silver.judge import detail, is_valid, judge
from spark_jobs.silver.parse import parse_fields, time_of

TEXTS = ["transactionId", "accountId", "customerId", "eventTimeFormatted", "type", "operation"]
NUMBERS = ["eventTime", "amount", "balance"]
CONTENT = ["account_id", "customer_id", "event_at", "type", "operation", "amount", "balance"]


def judge_transactions(bronze: DataFrame, rules: RuleSet) -> DataFrame:
    """Every bronze row, judged: with the columns of silver.transactions if it is valid, else with key, value and detail.

    event_at is UTC; operation is null when empty. No row is dropped. Fields that the topic does not have are named in the detail
    of a row that breaks a rule; a valid row has no detail, and its unknown fields stay in bronze, under its coordinates.
    """
    return judge_parsed(parse_transactions(bronze), rules)


def judge_by_present_rules(bronze: DataFrame) -> DataFrame:
    """Every bronze row with the columns of silver.transactions, and `_is_valid`; where that is false they are null."""
    judged = judge_transactions(bronze, read_rules("transactions"))
    return judged.select(*SILVER_TRANSACTIONS.columns, is_valid().alias("_is_valid"))


def parse_transactions(bronze: DataFrame) -> DataFrame:
    """Bronze rows with the fields of the topic beside them, and `_at`: their event time, null where there is none to be read."""
    return parse_fields(bronze, TEXTS, NUMBERS).withColumn("_at", _typed()["event_at"])


def judge_parsed(parsed: DataFrame, rules: RuleSet, *others: str) -> DataFrame:
    """`judge_transactions` of rows that are parsed already, with some other columns of theirs."""
    broken = {"key": F.col("key"), "value": F.col("value"), "detail": detail(rules, [*TEXTS, *NUMBERS])}
    return judge(parsed, rules).select(
        *(F.when(is_valid(), column).alias(name) for name, column in _typed().items()),
        *(F.when(~is_valid(), column).alias(name) for name, column in broken.items()),
        "broken_rules",
        *ARRIVAL,
        *others,
    )


def type_transactions(bronze: DataFrame) -> DataFrame:
    """Bronze rows that are known to be valid, with the columns of silver.transactions. No rule is asked; no row is dropped."""
    return parse_fields(bronze, TEXTS, NUMBERS).select(*(column.alias(name) for name, column in _typed().items()), *ARRIVAL)


def mark_duplicates(judged: DataFrame, known: DataFrame) -> DataFrame:
    """Say of every valid row which one was the first of its id by arrival.

    Adds is_first, first_topic, first_partition, first_offset and is_conflicting (some content differs from the first's).
    `known` are the rows of silver.transactions from earlier batches; rows of the same batches must not be among them.
    Of rows that are not valid, is_first is false and the rest null.
    """
    content, place = F.struct(*CONTENT), F.struct("_topic", "_partition", "_offset")
    group = F.when(is_valid(), F.struct(F.col("transaction_id"), F.lit(-1).alias("n"))).otherwise(
        F.struct(F.concat_ws("/", "_topic", "_partition").alias("transaction_id"), F.col("_offset").alias("n"))
    )
    by_id = Window.partitionBy("_group").orderBy(*ARRIVAL)
    before = known.select("transaction_id", place.alias("_known_place"), content.alias("_known_content"))
    first_place = F.coalesce("_known_place", F.first(place).over(by_id))
    first_content = F.coalesce("_known_content", F.first(content).over(by_id))
    return (
        judged.withColumn("_group", group)
        .join(before, on="transaction_id", how="left")
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
    """The rows of silver.transactions whose event time is before the watermark of their batch, with how late they are."""
    marks = spark.createDataFrame(watermarks, "_batch bigint, watermark_at timestamp")
    return rows_behind(first, F.broadcast(marks))


def rows_behind(first: DataFrame, marks: DataFrame) -> DataFrame:
    """`late_rows`, with the watermarks as a frame: _batch, watermark_at. A batch with none has no late rows."""
    late = first.join(marks, on="_batch", how="inner").where("event_at < watermark_at")
    seconds = (F.unix_micros("watermark_at") - F.unix_micros("event_at")).cast("decimal(38,6)") / F.lit(1_000_000).cast("decimal(38,0)")
    return late.withColumn("late_by_seconds", seconds.cast("decimal(18,3)"))


def _typed() -> dict[str, Column]:
    """The columns of silver.transactions by name, from the parsed fields of a valid row."""
    event_at = time_of("eventTime")
    return {
        "transaction_id": F.col("transactionId.text"),
        "account_id": F.col("accountId.text"),
        "customer_id": F.col("customerId.text"),
        "event_at": event_at,
        "event_on": F.to_date(event_at),
        "type": F.col("type.text"),
        "operation": F.nullif(F.col("operation.text"), F.lit("")),
        "amount": F.col("amount.text").try_cast("decimal(18,2)"),
        "balance": F.col("balance.text").try_cast("decimal(18,2)"),
    }
