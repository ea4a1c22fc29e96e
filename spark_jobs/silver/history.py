"""Histories of versions (SCD2): a function of all valid messages of a key, however they were batched. Pure."""

from pyspark.sql import DataFrame, Window, functions as F

from spark_jobs.lake.topic import ARRIVAL, Topic


def with_outcomes(messages: DataFrame, topic: Topic, *apart: str) -> DataFrame:
    """Add `outcome` to typed messages, all there are of their keys: version, superseded or no_change.

    Messages that differ in the columns `apart` belong to different histories.

    Per key and update time the last arrival stays, the others are superseded. In order of update time, neighbours that are
    equal in all other fields collapse into the earliest; a deletion of an unknown or deleted key makes no change.
    """
    same_time = Window.partitionBy(*apart, topic.key, "valid_from").orderBy(*(F.desc(name) for name in ARRIVAL))
    in_time = Window.partitionBy(*apart, topic.key, "_stays").orderBy("valid_from")
    content = F.struct(*topic.content)
    is_first_deletion = F.col("_previous").isNull() & F.col("is_deleted")
    return (
        messages.withColumn("_stays", F.row_number().over(same_time) == 1)
        .withColumn("_previous", F.lag(content).over(in_time))
        .withColumn("_is_equal", content.eqNullSafe(F.col("_previous")) | is_first_deletion)
        .withColumn("outcome", F.when(~F.col("_stays"), "superseded").when(F.col("_is_equal"), "no_change").otherwise("version"))
        .drop("_stays", "_previous", "_is_equal")
    )


def versions(classified: DataFrame, topic: Topic) -> DataFrame:
    """The history: each version is valid from its update time to that of the next; the last one is current."""
    in_time = Window.partitionBy(topic.key).orderBy("valid_from")
    return (
        classified.where("outcome = 'version'")
        .withColumn("valid_to", F.lead("valid_from").over(in_time))
        .withColumn("is_current", F.col("valid_to").isNull())
        .drop("outcome")
    )
