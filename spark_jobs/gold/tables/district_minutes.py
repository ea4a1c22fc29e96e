"""gold.district_minutes: transactions per minute and district, and their mean over five minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.gold.declaration import Cell, GoldTable
from spark_jobs.gold.strategies import Inputs, Parts, Region, Windows
from spark_jobs.gold.sums import is_valid_then, total
from spark_jobs.lake.silver_tables import SILVER_ACCOUNTS, SILVER_TRANSACTIONS
from spark_jobs.runtime.late_spark import F, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MINUTES = 5
UNKNOWN_DISTRICT = -1
_NEAR_HOURS = 2 * MINUTES / 60  # between a row and the minutes that count in an average in which it has a part


def minute_of(event_at: str) -> Column:
    """The minute that holds a time."""
    return F.date_trunc("minute", F.col(event_at))


def district_minutes(transactions: DataFrame, accounts: DataFrame) -> DataFrame:
    """The table of some silver rows. Rows of the 4 minutes before must be among them for `average_5m` to be right.

    The district is that of the account's version at event_at (from valid_from, included, to valid_to, excluded), -1 where
    there is none. average_5m is the mean of `transactions` over the minute and the 4 before it; absent minutes count 0.
    """
    return with_averages(sums(transactions, accounts))


def sums(transactions: DataFrame, accounts: DataFrame) -> DataFrame:
    """The table of some silver rows, without average_5m."""
    a = accounts.select(F.col("account_id").alias("_account_id"), "district_id", "valid_from", "valid_to")
    is_same = F.col("account_id") == F.col("_account_id")
    located = transactions.join(a, on=is_same & is_valid_then(), how="left").withColumn(
        "district_id", F.coalesce("district_id", F.lit(UNKNOWN_DISTRICT))
    )
    return located.groupBy(minute_of("event_at").alias("minute"), "district_id").agg(
        F.count("*").alias("transactions"), total("amount").alias("amount")
    )


def with_averages(minutes: DataFrame) -> DataFrame:
    """The table, of the sums of minutes: all of a minute and the 4 before it must be among them for its `average_5m` to be right."""
    five = Window.partitionBy("district_id").orderBy(F.unix_seconds("minute")).rangeBetween(-60 * (MINUTES - 1), 0)
    average = (F.sum("transactions").over(five).cast("decimal(18,1)") / F.lit(MINUTES)).cast("decimal(18,1)")
    return minutes.withColumn("average_5m", average)


def minutes_of(event_at: str) -> Column:
    """The minutes that a time has a part in: its own and the 4 after it, each in a row of its own."""
    minute = minute_of(event_at)
    return F.explode(F.sequence(minute, minute + F.expr(f"interval {MINUTES - 1} minutes"), F.expr("interval 1 minute")))


def with_added(region: Region, inputs: Inputs) -> Parts:
    """The minutes that new rows have a part in: their sums are added to those that are there, so no other row of silver is read."""
    added = inputs.hold(sums(region.rows, inputs.read(SILVER_ACCOUNTS)))
    present = inputs.read(TABLE, region.near("minute", _NEAR_HOURS))
    both = present.select(added.columns).unionByName(added).groupBy("minute", "district_id")
    together = both.agg(F.sum("transactions").alias("transactions"), total("amount").alias("amount"))
    touched = added.select(minutes_of("minute").alias("minute")).distinct()
    return region.among(present, touched), region.among(with_averages(together), touched)


TABLE = GoldTable(
    "gold.district_minutes",
    "minute timestamp, district_id int, transactions bigint, amount decimal(38,2), average_5m decimal(18,1)",
    keys=("minute", "district_id"),
    time_column="minute",
    deletion_vectors=True,
    follows=(SILVER_TRANSACTIONS, SILVER_ACCOUNTS),
    is_temporal=True,
    texts={
        "minute": "Start of the minute",
        "district_id": "District of the account as of the event time; -1 if there is none",
        "amount": "Sum of the amounts",
        "average_5m": "Mean of `transactions` over this and the 4 minutes before; absent minutes count 0",
    },
    strategy=Windows(
        lambda rows, inputs: district_minutes(rows, inputs.read(SILVER_ACCOUNTS)),
        minutes_of,
        hours=_NEAR_HOURS,
        column="minute",
        span=(f"-{MINUTES - 1} minutes", "1 minute"),
        added=with_added,
    ),
    cell=Cell(
        rows="event_at >= $minute - interval '4 minutes' and event_at < $minute + interval '1 minute'",
        made="select m.transactions, m.amount, cast(f.transactions as decimal(18,1)) / 5 as average_5m from minute m cross join five f",
        steps={
            "located": "select r.*, coalesce(v.district_id, -1) as district_id from rows r "
            "left join versions v on r.account_id = v.account_id and $valid_then",
            "rows": "select * from located where district_id = $district_id",
            "minute": "select $count_and_sum from rows where event_at >= $minute",
            "five": "select count(*) as transactions from rows",
        },
        dimension=SILVER_ACCOUNTS,
        aside="event_at < $minute",
        note="of accounts in its district then; those of the 4 minutes before count in average_5m only",
    ),
)
