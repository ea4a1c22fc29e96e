"""gold.enriched_transactions: every transaction with its customer as of the event time. A temporal join."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spark_jobs.gold.declaration import Cell, GoldTable, Row
from spark_jobs.gold.strategies import Rows
from spark_jobs.gold.sums import is_valid_then
from spark_jobs.lake.functions import TO_BE_MASKED
from spark_jobs.lake.silver_tables import COORDINATES, SILVER_CUSTOMERS, SILVER_TRANSACTIONS, TRANSACTION
from spark_jobs.runtime.late_spark import F
from spark_jobs.runtime.text import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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
    return joined.withColumns({name: F.when(is_matched, value) for name, value in customer.items()}).selectExpr(*quoted(TABLE.columns))


def mask_name(name: Column) -> Column:
    """A name of which the first letter of each word stays and the rest are stars; words are split at blanks."""
    return F.regexp_replace(name, TO_BE_MASKED, "*")


def mask_text(name: str | None) -> str | None:
    """`mask_name` in Python, for `explain`."""
    return None if name is None else re.sub(TO_BE_MASKED, "*", name)


def _masked(made: Row) -> Row:
    return made | {"customer_full_name": mask_text(made["customer_full_name"])}


TABLE = GoldTable(
    "gold.enriched_transactions",
    f"""{TRANSACTION}, customer_full_name string, customer_city string, customer_state string, customer_version_from timestamp,
    customer_status string, {COORDINATES}""",
    keys=("transaction_id",),
    time_column="event_at",
    merge_keys=("transaction_id", "event_at"),
    deletion_vectors=True,
    follows=(SILVER_TRANSACTIONS, SILVER_CUSTOMERS),
    is_temporal=True,
    texts={
        "customer_full_name": "Name as of `event_at`, masked: of each word the first letter; null unless matched",
        "customer_city": "City as of `event_at`; null unless matched",
        "customer_state": "State as of `event_at`; null unless matched",
        "customer_version_from": "`valid_from` of the version that was valid at `event_at`; null unless matched",
        "customer_status": "`matched`, `unknown` (no version at `event_at`) or `deleted`",
    },
    strategy=Rows(lambda rows, inputs: enrich(rows, inputs.read(SILVER_CUSTOMERS))),
    cell=Cell(
        rows="event_at = $event_at and transaction_id = $transaction_id",
        made="select r.*, case when not v.is_deleted then v.full_name end as customer_full_name, "
        "case when not v.is_deleted then v.city end as customer_city, case when not v.is_deleted then v.state end as customer_state, "
        "case when not v.is_deleted then v.valid_from end as customer_version_from, "
        "case when v.customer_id is null then 'unknown' when v.is_deleted then 'deleted' else 'matched' end as customer_status "
        "from rows r left join versions v on r.customer_id = v.customer_id and $valid_then",
        dimension=SILVER_CUSTOMERS,
        finish=_masked,
    ),
)
