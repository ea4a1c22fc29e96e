"""The gold job: one availableNow pass over what silver has gained, for every gold table.

It follows silver's change feeds. How far a gold table follows is the silver version kept in its own commits, so a run may die
anywhere and be repeated.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs import control, sinks, sources, tables
from spark_jobs.errors import LedgerError
from spark_jobs.gold import amend, totals, windows
from spark_jobs.settings import Settings
from spark_jobs.tables import Table

log = logging.getLogger(__name__)

APPLICATION = "gold"
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
    """Add what silver.transactions gained to the sums, and amend the tables that are more than sums."""
    amendments = {
        tables.CUSTOMER_SESSIONS: amend.sessions_of,
        tables.WEEKLY_TOP_CUSTOMERS: amend.weeks_of,
        tables.LARGE_CREDITS: amend.large_credits(settings.large_credit),
        tables.ENRICHED_TRANSACTIONS: amend.enriched,
        tables.DEBIT_CREDIT_PAIRS: amend.pairs_of,
        tables.DISTRICT_MINUTES: amend.minutes_of,
        tables.DEBIT_SHARE: amend.debit_share,  # reads daily_totals, which are up to date by then
    }

    def take(changes: DataFrame, last: int) -> None:
        rows = _inserted(changes).localCheckpoint()
        for each in SUMS:
            contribution = each.contribution(_not_applied(rows, settings, each.table))
            sinks.merge_rows(
                contribution, settings, each.table, application=APPLICATION, upto=last, on=each.table.keys, matched=each.addition
            )
        for table, amendment in amendments.items():
            _amend(_not_applied(rows, settings, table), settings, table, amendment, APPLICATION, last)

    targets = (*(each.table for each in SUMS), *amendments)
    _follow(spark, settings, tables.SILVER_TRANSACTIONS, targets, APPLICATION, take)


def follow_dimension(spark: SparkSession, settings: Settings, dimension: Table, table: Table, amendment: amend.Amendment) -> None:
    """Amend a table for the transactions of customers or accounts whose history changed, if it has any rows yet."""
    application = f"{APPLICATION} {dimension.name}"
    key = dimension.keys[0]

    def take(changes: DataFrame, last: int) -> None:
        if sinks.applied(settings, table, APPLICATION) is None:
            return
        silver = sources.read_table(changes.sparkSession, settings, tables.SILVER_TRANSACTIONS)
        rows = silver.join(changes.select(key).distinct(), on=key, how="left_semi")
        _amend(rows, settings, table, amendment, application, last)

    _follow(spark, settings, dimension, (table,), application, take)


def _amend(rows: DataFrame, settings: Settings, table: Table, amendment: amend.Amendment, application: str, upto: int) -> None:
    def read(other: Table) -> DataFrame:
        return sources.read_table(rows.sparkSession, settings, other)

    present, wanted = amendment(rows, read)
    changed = sinks.difference(present.select(*table.columns), wanted.select(*table.columns), on=table.keys)
    sinks.merge_rows(changed, settings, table, application=application, upto=upto, on=table.keys, deletes_where="s._is_gone")


def _follow(
    spark: SparkSession,
    settings: Settings,
    source: Table,
    targets: tuple[Table, ...],
    application: str,
    take: Callable[[DataFrame, int], None],
) -> None:
    """Run `take(changes, last version)` on what a silver table gained since the target that is furthest behind."""
    done = min(sinks.applied(settings, table, application) or 0 for table in targets)
    head = DeltaTable(str(source.path(settings))).version()
    if done >= head:
        log.info("%s: nothing new for gold since version %d", source.name, done)
        return

    def process(changes: DataFrame, _: int) -> None:
        last = changes.agg(F.max("_commit_version")).first()
        if last is not None and last[0] is not None:
            take(changes, last[0])
            log.info("%s: gold follows up to version %d", source.name, last[0])

    changes = sources.stream_changes(spark, settings, source, after_version=done)
    query = changes.writeStream.queryName(f"gold of {source.name}").foreachBatch(process)
    checkpoint = settings.checkpoints / "gold" / source.name
    sources.wait_for([query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()])


def _inserted(changes: DataFrame) -> DataFrame:
    """The rows that came; raises LedgerError when silver rows were changed or removed, which sums cannot follow."""
    if other := changes.where("_change_type <> 'insert'").select("_commit_version").first():
        raise LedgerError(
            f"silver.transactions: version {other[0]} changes rows in place, expected rows to be added only: "
            "remove the gold tables and their checkpoints, and run gold again"
        )
    return changes


def _not_applied(rows: DataFrame, settings: Settings, table: Table) -> DataFrame:
    return rows.where(F.col("_commit_version") > (sinks.applied(settings, table, APPLICATION) or 0))


def _record(settings: Settings, run_id: str) -> None:
    """Note in control.batches, in one commit: the bronze batches that gold answers for, and the silver versions that it read.

    input: silver's rows of these batches; output: all rows of the gold table.
    """
    silver = control.batches(settings, "silver", tables.SILVER_TRANSACTIONS.name)
    done, last = control.last_batch(settings, APPLICATION, tables.GOLD[0].name), max((row["last_batch"] for row in silver), default=0)
    versions = {table.name: DeltaTable(str(table.path(settings))).version() for table in FOLLOWED}
    common = {
        "run_id": run_id,
        "job": APPLICATION,
        "first_batch": min(done + 1, last),
        "last_batch": last,
        "input": sum(row["output"] for row in silver if row["first_batch"] > done),
        "finished_at": datetime.now(UTC),
        "_read_versions": json.dumps(versions),
    }
    rows = [common | {"table": table.name, "output": DeltaTable(str(table.path(settings))).count()} for table in tables.GOLD]
    control.append(settings, tables.BATCHES, rows, once=(APPLICATION, sum(versions.values())))
