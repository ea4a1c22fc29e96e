"""gold.account_days: per account and day, whether the balance moved by what was booked. Pure."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.gold.totals import account_balances


def account_days(transactions: DataFrame) -> DataFrame:
    """Each account's days of some silver rows, without opening and difference.

    `closing` is the balance of the day's last row by (event_at, arrival). A day without transactions has no row.
    """
    of_day = account_balances(transactions.withColumn("day", F.col("event_on")), ["account_id", "day"])
    return of_day.withColumnRenamed("balance", "closing").select("account_id", "day", "closing", "credits", "debits", "transactions")


def with_openings(days: DataFrame) -> DataFrame:
    """gold.account_days of all days of some accounts.

    `opening` is the closing of the account's day before that has transactions, null on its first. `difference` is
    closing - (opening + credits - debits): 0 where the day balances, null where there is no opening.
    """
    opening = F.lag("closing").over(Window.partitionBy("account_id").orderBy("day"))
    difference = (F.col("closing") - (F.col("opening") + F.col("credits") - F.col("debits"))).cast("decimal(38,2)")
    return (
        days.withColumn("opening", opening)
        .withColumn("difference", difference)
        .select("account_id", "day", "opening", "closing", "credits", "debits", "transactions", "difference")
    )
