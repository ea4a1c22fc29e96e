"""gold.enriched_transactions: every transaction with its customer as of the event time. Pure."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.lake.tables import ENRICHED_TRANSACTIONS


def enrich(transactions: DataFrame, customers: DataFrame) -> DataFrame:
    """Join silver.transactions with the version of silver.customers that is valid at `event_at` (temporal join).

    A version holds from valid_from, included, to valid_to, excluded. customer_status is `matched`, `unknown` (no version at
    that time) or `deleted`; the other customer columns are null unless it is matched. Every transaction comes out once.
    """
    c = customers.select(F.col("customer_id").alias("_customer_id"), "full_name", "city", "state", "valid_from", "valid_to", "is_deleted")
    is_same = F.col("customer_id") == F.col("_customer_id")
    status = F.when(F.col("_customer_id").isNull(), "unknown").when(F.col("is_deleted"), "deleted").otherwise("matched")
    joined = transactions.join(c, on=is_same & is_valid_then(), how="left").withColumn("customer_status", status)
    customer = {
        "customer_full_name": mask_name(F.col("full_name")),
        "customer_city": F.col("city"),
        "customer_state": F.col("state"),
        "customer_version_from": F.col("valid_from"),
    }
    is_matched = F.col("customer_status") == "matched"
    return joined.withColumns({name: F.when(is_matched, value) for name, value in customer.items()}).select(*ENRICHED_TRANSACTIONS.columns)


def is_valid_then() -> Column:
    """Whether a version holds at `event_at`: from valid_from, included, to valid_to, excluded, if it has one."""
    return (F.col("event_at") >= F.col("valid_from")) & (F.col("valid_to").isNull() | (F.col("event_at") < F.col("valid_to")))


def mask_name(name: Column) -> Column:
    """A name of which the first letter of each word stays and the rest are stars; words are split at blanks."""
    return F.regexp_replace(name, r"(?<=[^ ])[^ ]", "*")
