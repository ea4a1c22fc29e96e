"""Gold of a range of event times, rebuilt from silver: for backfills, and to repair rows that no change of silver accounts for."""

from collections.abc import Callable, Collection
from datetime import datetime
from threading import Lock

from pyspark.sql import SparkSession

from spark_jobs import control
from spark_jobs.gold import inputs, job
from spark_jobs.gold.declaration import GoldTable
from spark_jobs.gold.ranges import Range
from spark_jobs.lake import few_rows, sinks, tables
from spark_jobs.lake.layout import SMALL_PAGES
from spark_jobs.lake.tables import Table
from spark_jobs.lake.txn import Txn, applied
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.times import midnight

APPLICATION = "gold backfill"
# In memory a row takes about ten times what it takes in a file. By the size of files alone, Spark would send a million rows to each task:
# more than its heap has room for, because it does not count them.
_MANY = {"spark.sql.sources.fileCompressionFactor": "10"}


def rebuild_gold(
    spark: SparkSession,
    settings: Settings,
    start: datetime,
    end: datetime,
    only: Collection[str],
    on_write: Callable[[], None],
    *,
    are_few: bool,
) -> dict[Table, int]:
    """Rebuild the parts of gold's tables that rows of [start, end) have a share in; returns the rows changed, by table.

    Gold must have followed silver to its present versions; the caller holds the leases of both. A part is a window, a session, all that
    is known of a customer or an account, or what a transaction is in. Rows of gold in this range without a row of silver are removed.
    `only` names the tables; those that do not depend on one another are rebuilt side by side. `on_write` is called before each write,
    one call at a time. `are_few`: what the range touches of most tables fits into memory. May be repeated. Raises LedgerError as
    `run_each` does.
    """
    head = tables.SILVER_TRANSACTIONS.open(settings).version()
    source, application = inputs.Source(tables.SILVER_TRANSACTIONS, head), control.application(settings, APPLICATION)
    first, last = few_rows.span(settings, tables.SILVER_TRANSACTIONS, "event_on")
    is_all = start <= midnight(first) and last < end.date()
    changed, one_at_a_time = dict[Table, int](), Lock()

    def rebuild(table: GoldTable, session: SparkSession) -> None:
        given = inputs.open_inputs(session, settings, source, touches_few=are_few)
        difference = sinks.changes_of(table, *table.strategy.parts(table, Range(start, end, given.silver, is_all), given))
        if count := difference.count():
            with one_at_a_time:
                changed[table] = count
                on_write()
            number = (applied(settings, table, application) or 0) + 1
            sinks.merge_changes(difference, settings, table, Txn(application, number))

    with sinks.configured(spark, SMALL_PAGES | ({} if are_few else _MANY)):
        job.in_waves(spark, [table for table in job.tables_in_order() if table.name in only], rebuild, is_small=False)
    return changed
