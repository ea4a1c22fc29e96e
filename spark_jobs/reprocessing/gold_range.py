"""Gold of a range of event times, made anew from silver: for backfills, and to mend rows that no change of silver accounts for."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import reduce

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs import control
from spark_jobs.gold import account_days, districts, enrichment, pairs, sessions, totals, windows
from spark_jobs.lake import sinks, sources, tables
from spark_jobs.lake.layout import SMALL_PAGES
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.settings import Settings

APPLICATION = "gold backfill"

Pure = Callable[[DataFrame], DataFrame]
Parts = tuple[DataFrame, DataFrame]  # of one table, for the range: as they are, and as they should be


def rebuild_gold(
    spark: SparkSession, settings: Settings, start: datetime, end: datetime, only: Collection[str], on_write: Callable[[], None]
) -> dict[Table, int]:
    """Make anew the parts of gold's tables that rows of [start, end) have a share in; returns the rows changed, by table.

    Gold must have followed silver to its present versions; the caller holds the leases of both. A part is a window, all that is
    known of a customer or an account, or what a transaction is in. Rows of gold in this range that stand for no row of silver go.
    `only` names the tables; `on_write` is called before each write. May be repeated.
    """
    head = DeltaTable(str(tables.SILVER_TRANSACTIONS.path(settings))).version()
    rebuild = _Rebuild(spark, settings, start, end, head)
    application = control.application(settings, APPLICATION)
    changed = {}
    for table, parts in rebuild.parts().items():
        if table.name not in only:
            continue
        difference = sinks.changes_of(table, *parts())
        if count := difference.count():
            changed[table] = count
            on_write()
            number = (sinks.applied(settings, table, application) or 0) + 1
            with sinks.configured(spark, SMALL_PAGES):
                sinks.merge_changes(difference, settings, table, application, number)
    return changed


@dataclass(frozen=True)
class _Rebuild:
    """One range; silver.transactions as it is at a version."""

    spark: SparkSession
    settings: Settings
    start: datetime
    end: datetime
    version: int

    def parts(self) -> dict[Table, Callable[[], Parts]]:
        """How each table's parts are found, in the order in which they are to be written."""
        return {
            tables.DAILY_TOTALS: lambda: self.of_windows(tables.DAILY_TOTALS, windows.daily_totals, 0),
            tables.SLIDING_TOTALS: lambda: self.of_windows(tables.SLIDING_TOTALS, windows.sliding_totals, 1),
            tables.CUMULATIVE_TOTALS: lambda: self.of_windows(tables.CUMULATIVE_TOTALS, windows.cumulative_totals, 0),
            tables.CUSTOMER_ACTIVITY: lambda: self.of_keys(tables.CUSTOMER_ACTIVITY, "customer_id", totals.customer_activity),
            tables.ACCOUNT_BALANCES: lambda: self.of_keys(tables.ACCOUNT_BALANCES, "account_id", totals.account_balances),
            tables.CUSTOMER_SESSIONS: lambda: self.of_keys(tables.CUSTOMER_SESSIONS, "customer_id", sessions.customer_sessions),
            tables.WEEKLY_TOP_CUSTOMERS: lambda: self.of_windows(tables.WEEKLY_TOP_CUSTOMERS, windows.weekly_top_customers, 6),
            tables.LARGE_CREDITS: self.large_credits,
            tables.ENRICHED_TRANSACTIONS: self.enriched,
            tables.DEBIT_CREDIT_PAIRS: self.pairs,
            tables.DISTRICT_MINUTES: self.minutes,
            tables.DEBIT_SHARE: lambda: (self.read(tables.DEBIT_SHARE), windows.debit_share(self.read(tables.DAILY_TOTALS))),
            tables.ACCOUNT_DAYS: lambda: self.of_keys(
                tables.ACCOUNT_DAYS, "account_id", lambda rows: account_days.with_openings(account_days.account_days(rows))
            ),
        }

    def read(self, table: Table) -> DataFrame:
        return sources.read_table(self.spark, self.settings, table)

    def silver(self) -> DataFrame:
        return sources.read_table(self.spark, self.settings, tables.SILVER_TRANSACTIONS, version=self.version)

    def around(self, days: int) -> DataFrame:
        """The silver rows of the days of the range, and of so many days before and after."""
        return self.silver().where(self.on_days("event_on", days))

    def on_days(self, day: str, around: int) -> Column:
        """Whether a day is one of the range, or at most so many days beside it. In literals, so that Delta skips files."""
        first, last, more = self.start.date(), (self.end - timedelta(microseconds=1)).date(), timedelta(days=around)
        return F.col(day).between(F.lit(max(first, date.min + more) - more), F.lit(min(last, date.max - more) + more))

    def rows(self) -> DataFrame:
        """The silver rows of the range."""
        return self.within(self.around(0), "event_at")

    def within(self, rows: DataFrame, *times: str) -> DataFrame:
        """The rows of which one of these times lies in the range."""
        return rows.where(reduce(lambda one, other: one | other, (sources.between(time, self.start, self.end) for time in times)))

    def of_windows(self, table: Table, make: Pure, days: int) -> Parts:
        """The windows that hold a part of the range; rows of one window are at most so many days from a day of the range."""

        def overlapping(rows: DataFrame) -> DataFrame:
            return rows.where((F.col("window_end") > sources.moment(self.start)) & (F.col("window_start") < sources.moment(self.end)))

        return overlapping(self.read(table)), overlapping(make(self.around(days)))

    def of_keys(self, table: Table, key: str, make: Pure) -> Parts:
        """All rows of the customers or accounts that have a row of silver, or of this table, in the range."""
        present = self.read(table)
        here = present.where(self.on_days("day", 0)) if table.time_column == "day" else self.within(present, table.time_column or "")
        touched = self.rows().select(key).union(here.select(key)).distinct().localCheckpoint()
        wanted = make(self.silver().join(touched, on=key, how="left_semi"))
        return present.join(touched, on=key, how="left_semi"), wanted

    def large_credits(self) -> Parts:
        return self.within(self.read(tables.LARGE_CREDITS), "event_at"), totals.large_credits(self.rows(), self.settings.large_credit)

    def enriched(self) -> Parts:
        return self.within(self.read(tables.ENRICHED_TRANSACTIONS), "event_at"), enrichment.enrich(
            self.rows(), self.read(tables.SILVER_CUSTOMERS)
        )

    def pairs(self) -> Parts:
        return self.within(self.read(tables.DEBIT_CREDIT_PAIRS), "debit_at", "credit_at"), pairs.pairs_with(self.rows(), self.around(1))

    def minutes(self) -> Parts:
        """The minutes of the range, and those after it whose mean its rows are in."""
        first, mean = F.date_trunc("minute", sources.moment(self.start)), F.expr(f"interval {districts.MINUTES - 1} minutes")

        def touched(rows: DataFrame) -> DataFrame:
            return rows.where((F.col("minute") >= first) & (F.col("minute") < sources.moment(self.end) + mean))

        wanted = districts.district_minutes(self.around(1), self.read(tables.SILVER_ACCOUNTS))
        return touched(self.read(tables.DISTRICT_MINUTES)), touched(wanted)
