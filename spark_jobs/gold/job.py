"""The gold job: one availableNow pass over what changed in silver, for every gold table.

It follows silver's change feeds. How far a gold table follows is the silver version kept in its own commits, so a run may die
anywhere and be repeated.
"""

import json
import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs import control, sinks, sources, tables
from spark_jobs.gold import amend, totals, windows
from spark_jobs.gold.changes import Change, Changes, hold_changes, on_days
from spark_jobs.settings import Settings
from spark_jobs.tables import Table

log = logging.getLogger(__name__)

JOB = "gold"
FOLLOWED = (tables.SILVER_TRANSACTIONS, tables.SILVER_CUSTOMERS, tables.SILVER_ACCOUNTS)


@dataclass(frozen=True)
class Sum:
    """A table that adds up: what new rows contribute, and how a contribution changes a row that exists."""

    table: Table
    contribution: Callable[[DataFrame], DataFrame]
    addition: dict[str, str]


SUMS = (
    Sum(tables.DAILY_TOTALS, windows.daily_totals, windows.ADD_TOTALS),
    Sum(tables.SLIDING_TOTALS, windows.sliding_totals, windows.ADD_TOTALS),
    Sum(tables.CUMULATIVE_TOTALS, windows.cumulative_totals, windows.ADD_TOTALS),
    Sum(tables.CUSTOMER_ACTIVITY, totals.customer_activity, totals.ADD_ACTIVITY),
    Sum(tables.ACCOUNT_BALANCES, totals.account_balances, totals.ADD_BALANCES),
)


def run(spark: SparkSession, settings: Settings, run_id: str) -> None:
    """Bring every gold table up to silver, which stands still while this runs, and record how far in control.batches."""
    follow_dimension(spark, settings, tables.SILVER_CUSTOMERS, tables.ENRICHED_TRANSACTIONS, amend.enriched)
    follow_dimension(spark, settings, tables.SILVER_ACCOUNTS, tables.DISTRICT_MINUTES, amend.minutes_of)
    follow_transactions(spark, settings)
    _record(settings, run_id)


def follow_transactions(spark: SparkSession, settings: Settings) -> None:
    """Bring every table up to silver.transactions: new rows are added to the sums, all else is amended."""
    application = control.application(settings, JOB)
    amendments = amend.amendments(settings.large_credit)
    sums = {each.table: each for each in SUMS}

    def take(feed: DataFrame) -> int | None:
        if (changes := hold_changes(feed)) is None:
            return None
        read = _reader(feed.sparkSession, settings, changes)
        for table, amendment in amendments.items():
            change = changes.after(sinks.applied(settings, table, application) or 0)
            if table in sums and not change.is_in_place:
                rows, addition = sums[table].contribution(change.rows), sums[table].addition
                sinks.merge_rows(rows, settings, table, application=application, upto=changes.last, on=table.keys, matched=addition)
            else:
                _amend(change, read, settings, table, amendment, application, changes.last)
        return changes.last

    _follow(spark, settings, tables.SILVER_TRANSACTIONS, tuple(amendments), application, take)


def follow_dimension(spark: SparkSession, settings: Settings, dimension: Table, table: Table, amendment: amend.Amendment) -> None:
    """Amend a table for the transactions of customers or accounts whose history changed."""
    gold = control.application(settings, JOB)
    application = f"{gold} {dimension.name}"
    key = dimension.keys[0]

    def take(feed: DataFrame) -> int | None:
        last: int | None = feed.agg(F.max("_commit_version")).collect()[0][0]
        if last is not None:
            read = _reader(feed.sparkSession, settings)
            rows = read(tables.SILVER_TRANSACTIONS).join(feed.select(key).distinct(), on=key, how="left_semi")
            if sinks.applied(settings, table, gold) is None:
                rows = rows.limit(0)  # the table will be made of the histories as they are now
            _amend(Change(rows, rows, is_in_place=False), read, settings, table, amendment, application, last)
        return last

    _follow(spark, settings, dimension, (table,), application, take)


def _reader(spark: SparkSession, settings: Settings, changes: Changes | None = None) -> amend.Reader:
    """Tables as they are now; silver.transactions as the changes left it, which may be before the commits of a later run of silver."""

    def read(table: Table, around: int | None = None) -> DataFrame:
        if changes is None or table != tables.SILVER_TRANSACTIONS:
            return sources.read_table(spark, settings, table)
        rows = sources.read_table(spark, settings, table, version=changes.last)
        return rows if around is None else rows.where(on_days(changes.days, around))

    return read


def _amend(
    change: Change, read: amend.Reader, settings: Settings, table: Table, amendment: amend.Amendment, application: str, upto: int
) -> None:
    present, wanted = amendment(change, read)
    changed = sinks.difference(present.select(*table.columns), wanted.select(*table.columns), on=table.keys)
    sinks.merge_changes(changed, settings, table, application, upto)


def _follow(
    spark: SparkSession,
    settings: Settings,
    source: Table,
    targets: tuple[Table, ...],
    application: str,
    take: Callable[[DataFrame], int | None],
) -> None:
    """Run `take` on what happened to a silver table since the target that is furthest behind. It returns the last version in it."""
    done = min(sinks.applied(settings, table, application) or 0 for table in targets)
    head = DeltaTable(str(source.path(settings))).version()
    if done >= head:
        log.info("%s: nothing new for gold since version %d", source.name, done)
        return

    def process(feed: DataFrame, _: int) -> None:
        if (last := take(feed)) is not None:
            log.info("%s: gold follows up to version %d", source.name, last)

    feed = sources.stream_changes(spark, settings, source, after_version=done)
    query = feed.writeStream.queryName(f"gold of {source.name}").foreachBatch(process)
    # The tables' own commits say where to start; an older checkpoint would hide from a new gold table what the others have taken.
    checkpoint = settings.checkpoints / JOB / source.name
    shutil.rmtree(checkpoint, ignore_errors=True)
    sources.wait_for([query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()])


def _record(settings: Settings, run_id: str) -> None:
    """Note in control.batches, in one commit: the bronze batches that gold answers for, and the silver versions that it read.

    input: silver's rows of these batches; output: all rows of the gold table.
    """
    silver = control.batches(settings, "silver", tables.SILVER_TRANSACTIONS.name)
    done, last = control.last_batch(settings, JOB, tables.GOLD[0].name), max((row["last_batch"] for row in silver), default=0)
    versions = {table.name: DeltaTable(str(table.path(settings))).version() for table in FOLLOWED}
    common = {
        "run_id": run_id,
        "job": JOB,
        "first_batch": min(done + 1, last),
        "last_batch": last,
        "input": sum(row["output"] for row in silver if row["first_batch"] > done),
        "finished_at": datetime.now(UTC),
        "_read_versions": json.dumps(versions),
    }
    rows = [common | {"table": table.name, "output": DeltaTable(str(table.path(settings))).count()} for table in tables.GOLD]
    # Both only rise; a batch of nothing but bad rows changes no version.
    control.append(settings, tables.BATCHES, rows, once=(control.application(settings, JOB), sum(versions.values()) + last))
