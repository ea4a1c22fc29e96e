"""gold.account_days: per account and day, whether the balance moved by what was booked.

closing = opening + credits - debits. opening = closing of the account's day before that has transactions, null on its first;
difference = closing - (opening + credits - debits).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.gold.declaration import Cell, GoldTable
from spark_jobs.gold.strategies import Inputs, Keys, Parts, Region
from spark_jobs.gold.sums import BOOKED, last_of
from spark_jobs.gold.tables.account_balances import account_balances
from spark_jobs.lake.kept import in_memory
from spark_jobs.lake.ranges import Where, is_among
from spark_jobs.runtime.late_spark import F, Window
from spark_jobs.runtime.text import quoted

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import Column, DataFrame

NEAR = 31  # days; where an account has a day in most months, those next to a day are found among so many
_NEARER = 7  # where most accounts have a day in each week, so many rows fit into memory
_EACH = {"account_id": "account_id", "day": "event_on"}
_SUMS = BOOKED | {"closing": last_of("balance")}


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
    return days.withColumn("opening", opening).withColumn("difference", _difference()).selectExpr(*quoted(TABLE.columns))


def amended(present: DataFrame, rebuilt: DataFrame) -> DataFrame:
    """Of gold.account_days what rebuilt days change: these days, and of each account the day after each of them.

    `present` are rows of the table, `rebuilt` those of `account_days`. Beside the table's columns: `_was`, the row as it is (null: there is
    none), `_is_rebuilt`, and `_before` and `_after`, the account's days next to it among all these rows. The rows are right only where no
    day of the account is missing between them; a day that was there keeps its opening where none is before it.
    """
    was = F.struct(*TABLE.columns)
    rows = present.withColumns({"_was": was, "_is_rebuilt": F.lit(False)}).unionByName(
        rebuilt.withColumn("_is_rebuilt", F.lit(True)), allowMissingColumns=True
    )
    in_time = Window.partitionBy("account_id").orderBy("day", "_is_rebuilt")  # a rebuilt day comes right after what it replaces
    last, last_but_one = (F.lag(F.struct("day", "closing", "_is_rebuilt", "_was"), back).over(in_time) for back in (1, 2))
    is_replacing = F.coalesce(F.col("_last.day") == F.col("day"), F.lit(False))
    before = F.when(is_replacing, F.col("_last_but_one")).otherwise(F.col("_last"))
    return (
        rows.withColumns({"_last": last, "_last_but_one": last_but_one, "_after": F.lead("day").over(in_time)})
        .where(F.col("_is_rebuilt") | F.col("_last._is_rebuilt"))
        .withColumns({"_was": F.when(is_replacing, F.col("_last._was")).otherwise(F.col("_was")), "_before": before})
        .where(F.col("_is_rebuilt") | (F.coalesce(F.col("_after") > F.col("day"), F.lit(True))))
        .withColumns({"opening": F.coalesce("_before.closing", "_was.opening"), "_before": F.col("_before.day")})
        .withColumn("difference", _difference())
        .selectExpr(*quoted(TABLE.columns), "_was", "_is_rebuilt", "_before", "_after")
    )


def may_lack_neighbours(near: int, first: date, last: date) -> Column:
    """Whether days may be missing beside an `amended` rebuilt one: no neighbour so near, though the table may have days further away.

    Before a day that was there none is missing: its opening is known.
    """

    def is_far(days: Column) -> Column:
        return F.coalesce(days > near, F.lit(True))

    before, after = F.date_diff("day", "_before"), F.date_diff("_after", "day")
    is_inside = F.date_sub("day", near) > F.lit(first), F.date_add("day", near) < F.lit(last)
    lacks_before = F.col("_was").isNull() & is_far(before) & is_inside[0]
    return F.col("_is_rebuilt") & (lacks_before | (is_far(after) & is_inside[1]))


def _difference() -> Column:
    return (F.col("closing") - (F.col("opening") + F.col("credits") - F.col("debits"))).cast("decimal(38,2)")


def days_around(region: Region, inputs: Inputs) -> tuple[DataFrame, int]:
    """Rows of gold.account_days of the accounts and the days of a region, and of days so near: nearer, where memory cannot hold as many.

    Rows of other accounts may be among them.
    """
    for near in (NEAR, _NEARER):
        if (few := inputs.few(TABLE, region.on_days("day", near, key="account_id"))) is not None:
            return few, near
    return region.among(inputs.table(TABLE).where(region.on_days("day", NEAR).sql), region.rows.select("account_id").distinct()), NEAR


def with_added(region: Region, inputs: Inputs) -> Parts:
    """The days of new rows, rebuilt, and of each account the day after each of them, which gets a new opening.

    Neighbours are looked for among the days around; of accounts that have none there all days are read.
    """
    touched = region.rows.select("account_id", F.col("event_on").alias("day")).distinct()
    days_of = region.on_days("event_on", 0, key="account_id")
    if (found := inputs.groups(TABLE, _EACH, _SUMS, days_of, None)) is not None:
        rebuilt = inputs.hold(region.among(found, touched))
    else:
        rebuilt = inputs.hold(account_days(region.among(inputs.silver(days_of).withColumn("day", F.col("event_on")), touched)))
    present, near = days_around(region, inputs)
    found = inputs.hold(amended(present, rebuilt))
    lacking = found.where(may_lack_neighbours(near, *inputs.span(TABLE))).select("account_id").distinct().toArrow()
    if lacking.num_rows:
        isolated = in_memory(found.sparkSession, lacking)
        days = inputs.read(TABLE, Where(is_wanted=is_among("account_id", lacking["account_id"])))
        of_isolated = amended(*(rows.join(isolated, on="account_id", how="left_semi") for rows in (days, rebuilt)))
        found = found.join(isolated, on="account_id", how="left_anti").unionByName(inputs.hold(of_isolated))
    return found.where("_was is not null").select("_was.*"), found.selectExpr(*quoted(TABLE.columns))


TABLE = GoldTable(
    "gold.account_days",
    """account_id string, day date, opening decimal(18,2), closing decimal(18,2), credits decimal(38,2), debits decimal(38,2),
    transactions bigint, difference decimal(38,2)""",
    keys=("account_id", "day"),
    time_column="day",
    deletion_vectors=True,
    texts={
        "opening": "Closing of the account's day before that has transactions; null on its first",
        "closing": "Balance after the last transaction of the day",
        "difference": "closing - (opening + credits - debits)",
    },
    strategy=Keys(lambda rows: with_openings(account_days(rows)), "account_id", added=with_added),
    cell=Cell(
        rows="event_on = $day and account_id = $account_id",
        made="select o.opening, l.closing, s.credits, s.debits, s.transactions, "
        "l.closing - (o.opening + s.credits - s.debits) as difference from newest l cross join sums s cross join opened o",
        steps={
            "newest": "select balance as closing from rows order by $newest_first limit 1",
            "sums": "select count(*) as transactions, $booked from rows",
            "before": "select balance from silver where event_on < $day and account_id = $account_id order by $newest_first limit 1",
            "opened": "select max(balance) as opening from before",
        },
        note="its opening is the closing of the account's day before",
    ),
)
