"""What silver must hold when rows of quarantine have become valid: of the ids, keys and batches that they touch. Pure.

`judged` are the coordinates of the rows that are judged again: whatever silver holds of them already, put there by a run that
died, counts only where the row passes now.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.silver import history, known, transactions
from spark_jobs.silver.corrections import PLACE
from spark_jobs.silver.judge import is_valid


def within(rows: DataFrame, places: DataFrame) -> DataFrame:
    """The rows that lie at these coordinates."""
    return rows.join(places, on=PLACE, how="left_semi").select(*rows.columns)


def without(rows: DataFrame, places: DataFrame) -> DataFrame:
    """The rows that lie elsewhere."""
    return rows.join(places, on=PLACE, how="left_anti").select(*rows.columns)


def touched_ids(passed: DataFrame, judged: DataFrame, silver: DataFrame, duplicates: DataFrame) -> DataFrame:
    """The transaction ids of which silver may have to change."""
    in_place = within(silver, judged).select("transaction_id").union(within(duplicates, judged).select("transaction_id"))
    return passed.select("transaction_id").union(in_place).distinct()


def marked_rows(passed: DataFrame, judged: DataFrame, silver: DataFrame, typed_duplicates: DataFrame, ids: DataFrame) -> DataFrame:
    """All valid rows of some ids, each with what `mark_duplicates` says: which one was the first, and whether it differs from it.

    `silver` and `typed_duplicates` are the valid rows so far, with the columns of silver.transactions; a row may be in both.
    """
    so_far = silver.unionByName(typed_duplicates).join(ids, on="transaction_id", how="left_semi").dropDuplicates(PLACE)
    rows = without(so_far, judged).unionByName(passed.select(*silver.columns))
    return transactions.mark_duplicates(rows.withColumn("broken_rules", F.array()), silver.limit(0))


def late_rows(silver: DataFrame, others: DataFrame, since: int, lateness_seconds: int) -> DataFrame:
    """The rows of silver.transactions, from batch `since` on, that came after the watermark of their batch.

    `others` are the valid rows beside them. A duplicate that is equal to its first may be missing: the first has the same
    time and came before it.
    """
    times = silver.select("_batch", "event_at").union(others.select("_batch", "event_at"))
    before = Window.orderBy("_batch").rowsBetween(Window.unboundedPreceding, -1)
    lateness = F.make_dt_interval(secs=F.lit(lateness_seconds))
    newest = times.groupBy("_batch").agg(F.max("event_at").alias("newest"))
    marks = newest.select("_batch", (F.max("newest").over(before) - lateness).alias("watermark_at"))
    return transactions.rows_behind(silver.where(F.col("_batch") >= since), marks)


def missing_entries(first: DataFrame, index: DataFrame) -> DataFrame:
    """The entries of silver.transaction_ids that these rows of silver.transactions need and do not have."""
    needed = known.entries(first)
    return needed.join(index, on=needed.columns, how="left_anti").withColumn("_is_gone", F.lit(False))


def touched_keys(passed: DataFrame, judged: DataFrame, silver: DataFrame, dimension: history.Dimension) -> DataFrame:
    """The keys, as bronze has them (column `key`), of which the history may have to change.

    A judged row of which silver holds no version has changed nothing yet.
    """
    return passed.select("key").union(within(silver, judged).select(F.col(dimension.key).cast("binary"))).distinct()


def classified_messages(passed: DataFrame, valid: DataFrame, dimension: history.Dimension) -> DataFrame:
    """All valid messages of some keys, and what becomes of each. `passed` are judged rows, `valid` bronze rows found so before."""
    typed = history.typed_messages(history.parse_messages(valid, dimension), dimension)
    return history.with_outcomes(typed.unionByName(history.typed_messages(passed, dimension)), dimension)


def updated_quarantine(present: DataFrame, judged: DataFrame) -> DataFrame:
    """The rows of quarantine that break rules again: with what they break now, and the bytes that Kafka brought."""
    now = judged.where(~is_valid()).select(*PLACE, "broken_rules", "detail")
    return present.drop("broken_rules", "detail").join(now, on=PLACE, how="inner").select(*present.columns)
