"""Gold of a range of event times, rebuilt from silver: for backfills, and to repair rows that no change of silver accounts for."""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from threading import Lock

from pyspark.sql import SparkSession

from spark_jobs import control
from spark_jobs.gold import held, job
from spark_jobs.gold.declaration import GoldTable
from spark_jobs.gold.ranges import Range
from spark_jobs.lake import side_by_side, sinks, sources, tables
from spark_jobs.lake.layout import SMALL_PAGES
from spark_jobs.lake.tables import Table
from spark_jobs.lake.txn import Txn
from spark_jobs.runtime.settings import Settings

APPLICATION = "gold backfill"


def rebuild_gold(
    spark: SparkSession, settings: Settings, start: datetime, end: datetime, only: Collection[str], on_write: Callable[[], None]
) -> dict[Table, int]:
    """Rebuild the parts of gold's tables that rows of [start, end) have a share in; returns the rows changed, by table.

    Gold must have followed silver to its present versions; the caller holds the leases of both. A part is a window, all that is
    known of a customer or an account, or what a transaction is in. Rows of gold in this range without a row of silver are removed.
    `only` names the tables; `on_write` is called before each write. May be repeated.
    """
    head = tables.SILVER_TRANSACTIONS.open(settings).version()
    silver = sources.read_table(spark, settings, tables.SILVER_TRANSACTIONS, version=head)
    region, source = Range(start, end, silver), held.Source(tables.SILVER_TRANSACTIONS, head)
    application = control.application(settings, APPLICATION)
    changed, first_write = dict[Table, int](), Lock()

    def rebuild(table: GoldTable, session: SparkSession) -> None:
        own = replace(region, silver=side_by_side.within(session, region.silver))
        given = held.inputs(session, settings, source, is_small=False)
        difference = sinks.changes_of(table, *table.strategy.parts(table, own, given))
        if count := difference.count():
            changed[table] = count
            with first_write:
                on_write()
            number = (sinks.applied(settings, table, application) or 0) + 1
            sinks.merge_changes(difference, settings, table, Txn(application, number))

    with sinks.configured(spark, SMALL_PAGES):
        job.in_waves(spark, [table for table in tables.GOLD if table.name in only], rebuild, is_small=False)
    return changed
