"""What silver must hold when rows are judged once more: of the keys and batches that they touch. Pure.

`judged` are the coordinates of the rows that are judged: whatever silver holds of them already counts only where the row passes
now.
"""

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame, Window, functions as F

from expectations.wire_format import WireSchema
from spark_jobs.control.corrections import PLACE
from spark_jobs.lake.topic import ARRIVAL, Topic
from spark_jobs.silver import events, history, id_index
from spark_jobs.silver.judge import is_valid
from spark_jobs.silver.records import parse_records, type_records


def within(rows: DataFrame, places: DataFrame) -> DataFrame:
    """The rows that lie at these coordinates."""
    return rows.join(places, on=PLACE, how="left_semi").select(*rows.columns)


def without(rows: DataFrame, places: DataFrame) -> DataFrame:
    """The rows that lie elsewhere."""
    return rows.join(places, on=PLACE, how="left_anti").select(*rows.columns)


def changed_places(
    topic: Topic, judged: DataFrame, here: DataFrame, silver: DataFrame, duplicates: DataFrame, quarantine: DataFrame
) -> DataFrame:
    """The coordinates of judged events that silver does not hold as they are judged now, and of rows in `here` that are not judged.

    `judged` has the columns that `judge_events` gives; `here` are those rows of the silver table among which theirs must
    be (of the same times). A row is as it should be when it is in one table only: valid and the first of its key with this content,
    or valid and a duplicate of an earlier row of the silver table and rightly marked, or in quarantine with what it breaks.
    """
    content, columns = F.struct(*topic.content), [name for name in silver.columns if name not in PLACE]
    valid = judged.where(is_valid()).select(*PLACE, *columns)
    firsts = silver.select(topic.key, F.struct(*ARRIVAL).alias("_first"), content.alias("_first_content"))
    marked = valid.join(duplicates.drop("_batch").withColumnRenamed(topic.key, "_marked_key"), on=PLACE, how="inner")
    marked = marked.join(firsts, on=topic.key, how="left")
    points_there = reduce(and_, [F.col(f"first_{name}") == F.col("_first")[f"_{name}"] for name in ("topic", "partition", "offset")])
    is_marked_rightly = (
        (F.col("_marked_key") == F.col(topic.key))
        & points_there
        & (F.col("_first") < F.struct(*ARRIVAL))
        & (F.col("is_conflicting") == ~content.eqNullSafe(F.col("_first_content")))
    )
    in_duplicates = duplicates.select(*PLACE).join(
        marked.select(*PLACE, F.coalesce(is_marked_rightly, F.lit(False)).alias("_is_marked")), on=PLACE, how="left"
    )
    broken = ["key", "value", "broken_rules", "detail"]
    in_quarantine = quarantine.select(*PLACE, F.struct(*broken).alias("_quarantined"))
    now = judged.select(
        *PLACE,
        F.lit(True).alias("_is_judged"),
        F.when(is_valid(), F.struct(*columns)).alias("_wanted"),
        F.when(~is_valid(), F.struct(*broken)).alias("_broken"),
    )
    compared = now.join(here.select(*PLACE, F.struct(*columns).alias("_present")), on=PLACE, how="full_outer")
    compared = compared.join(in_duplicates.select(*PLACE, F.coalesce("_is_marked", F.lit(False)).alias("_is_marked")), on=PLACE, how="left")
    compared = compared.join(in_quarantine, on=PLACE, how="left")
    is_first = F.col("_present").eqNullSafe(F.col("_wanted")) & F.col("_wanted").isNotNull() & F.col("_is_marked").isNull()
    is_duplicate = F.col("_wanted").isNotNull() & F.col("_present").isNull() & F.coalesce("_is_marked", F.lit(False))
    is_out = F.col("_broken").isNotNull() & F.col("_present").isNull() & F.col("_is_marked").isNull()
    is_right = ((is_first | is_duplicate) & F.col("_quarantined").isNull()) | (is_out & F.col("_quarantined").eqNullSafe(F.col("_broken")))
    return compared.where(F.col("_is_judged").isNull() | ~is_right).select(*PLACE)


def touched_keys(topic: Topic, passed: DataFrame, judged: DataFrame, silver: DataFrame, duplicates: DataFrame) -> DataFrame:
    """The keys of which silver may have to change."""
    in_place = within(silver, judged).select(topic.key).union(within(duplicates, judged).select(topic.key))
    return passed.select(topic.key).union(in_place).distinct()


def marked_rows(
    topic: Topic, passed: DataFrame, judged: DataFrame, silver: DataFrame, typed_duplicates: DataFrame, keys: DataFrame
) -> DataFrame:
    """All valid rows of some keys, each with what `mark_duplicates` says: which one was the first, and whether it differs from it.

    `silver` and `typed_duplicates` are the valid rows so far, with the columns of the silver table; a row may be in both.
    """
    so_far = silver.unionByName(typed_duplicates).join(keys, on=topic.key, how="left_semi").dropDuplicates(PLACE)
    rows = without(so_far, judged).unionByName(passed.select(*silver.columns))
    return events.mark_duplicates(rows.withColumn("broken_rules", F.array()), silver.limit(0), topic)


def newest_by_batch(silver: DataFrame, others: DataFrame) -> DataFrame:
    """The largest event time among the valid rows of each batch (_batch, newest).

    `others` are the valid rows beside those of the silver table. A duplicate that is equal to its first may be missing: the
    first has the same time and came before it.
    """
    times = silver.select("_batch", "event_at").union(others.select("_batch", "event_at"))
    return times.groupBy("_batch").agg(F.max("event_at").alias("newest"))


def late_rows(silver: DataFrame, newest: DataFrame, since: int, lateness_seconds: int) -> DataFrame:
    """The rows of the silver table, from batch `since` on, that came after the watermark of their batch."""
    before = Window.orderBy("_batch").rowsBetween(Window.unboundedPreceding, -1)
    lateness = F.make_dt_interval(secs=F.lit(lateness_seconds))
    marks = newest.select("_batch", (F.max("newest").over(before) - lateness).alias("watermark_at"))
    return events.rows_behind(silver.where(F.col("_batch") >= since), marks)


def missing_entries(topic: Topic, first: DataFrame, index: DataFrame) -> DataFrame:
    """The entries of the index of ids that these rows of the silver table need and do not have."""
    needed = id_index.entries(first, topic)
    return needed.join(index, on=needed.columns, how="left_anti").withColumn("_is_gone", F.lit(False))


def classified_messages(topic: Topic, passed: DataFrame, valid: DataFrame, schemas: Sequence[WireSchema]) -> DataFrame:
    """All valid messages of some keys, and what becomes of each. `passed` are judged rows, `valid` bronze rows found so before."""
    typed = type_records(parse_records(valid, topic, schemas), topic)
    return history.with_outcomes(typed.unionByName(type_records(passed, topic)), topic)


def updated_quarantine(present: DataFrame, judged: DataFrame) -> DataFrame:
    """The rows of quarantine that break rules again: with what they break now, and the bytes that Kafka brought."""
    now = judged.where(~is_valid()).select(*PLACE, "broken_rules", "detail")
    return present.drop("broken_rules", "detail").join(now, on=PLACE, how="inner").select(*present.columns)
