"""gold.large_credits: the credits of more than LEDGER_LARGE_CREDIT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.gold.declaration import Cell, GoldTable
from spark_jobs.gold.strategies import Rows
from spark_jobs.lake.silver_tables import COORDINATES
from spark_jobs.runtime.late_spark import F
from spark_jobs.runtime.text import quoted

if TYPE_CHECKING:
    from decimal import Decimal

    from pyspark.sql import DataFrame


def large_credits(transactions: DataFrame, over: Decimal) -> DataFrame:
    """gold.large_credits of some silver rows: the credits of more than an amount."""
    is_large = (F.col("type") == "Credit") & (F.col("amount") > F.lit(over))
    return transactions.where(is_large).selectExpr(*quoted(TABLE.columns))


TABLE = GoldTable(
    "gold.large_credits",
    f"""transaction_id string, event_at timestamp, account_id string, customer_id string, amount decimal(18,2),
    balance decimal(18,2), {COORDINATES}""",
    keys=("transaction_id",),
    time_column="event_at",
    merge_keys=("transaction_id", "event_at"),
    deletion_vectors=True,
    strategy=Rows(lambda rows, inputs: large_credits(rows, inputs.large_credit)),
    cell=Cell(rows="event_at = $event_at and transaction_id = $transaction_id", made="select * from rows where type = 'Credit'"),
)
