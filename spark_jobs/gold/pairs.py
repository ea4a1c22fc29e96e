"""gold.debit_credit_pairs: a debit and a credit of one customer, the debit at most an hour before the credit. Pure."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

BEFORE_HOURS = 1


def pair(debits_from: DataFrame, credits_from: DataFrame) -> DataFrame:
    """Every pair of a debit of the first frame and a credit of the second, both silver rows (interval join).

    debit_at lies between credit_at - 1 h and credit_at, both ends included.
    """
    debit_rows = debits_from.where("type = 'Debit'").select(
        F.col("transaction_id").alias("debit_id"), "customer_id", F.col("event_at").alias("debit_at")
    )
    credit_rows = credits_from.where("type = 'Credit'").select(
        F.col("transaction_id").alias("credit_id"), F.col("customer_id").alias("_customer_id"), F.col("event_at").alias("credit_at")
    )
    is_same = F.col("customer_id") == F.col("_customer_id")
    is_close = F.col("debit_at").between(F.col("credit_at") - F.expr(f"interval {BEFORE_HOURS} hours"), F.col("credit_at"))
    joined = debit_rows.join(credit_rows, on=is_same & is_close, how="inner")
    return joined.select("debit_id", "credit_id", "customer_id", "debit_at", "credit_at")


def pairs_with(new: DataFrame, transactions: DataFrame) -> DataFrame:
    """The pairs of which one side at least is new; `transactions` are the silver rows within an hour of one, themselves included."""
    return pair(new, transactions).unionByName(pair(transactions, new)).distinct()
