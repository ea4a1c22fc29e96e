"""The gold job: one availableNow pass over what silver has gained, for every gold table.

It follows silver's change feeds. How far a gold table follows is the silver version kept in its own commits, so a run may die
anywhere and be repeated.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs import control, sinks, sources, tables
from spark_jobs.errors import LedgerError
from spark_jobs.gold import enrichment, totals
from spark_jobs.settings import Settings
from spark_jobs.tables import Table

log = logging.getLogger(__name__)

APPLICATION = "gold"


@dataclass(frozen=True)
class Sum:
    """A table that adds up: what new rows contribute, and how a contribution changes a row that exists."""

    table: Table
    contribution: Callable[[DataFrame], DataFrame]
    addition: dict[str, str]


SUMS = (
    Sum(tables.DAILY_TOTALS, totals.daily_totals, totals.ADD_TOTALS),
    Sum(tables.CUSTOMER_ACTIVITY, totals.customer_activity, totals.ADD_ACTIVITY),
    Sum(tables.ACCOUNT_BALANCES, totals.account_balances, totals.ADD_BALANCES),
)


def run(spark: SparkSession, settings: Settings, run_id: str) -> None:
    """Bring every gold table up to silver, which stands still while this runs, and record how far in control.batches."""
    follow_customers(spark, settings)
    follow_transactions(spark, settings)
    _record(settings, run_id)


def follow_transactions(spark: SparkSession, settings: Settings) -> None:
    """Add what silver.transactions gained to the sums, and enrich it."""

    def take(changes: DataFrame, last: int) -> None:
        rows = _inserted(changes).localCheckpoint()
        for each in SUMS:
            fresh = _not_applied(rows, settings, each.table, APPLICATION)
            sinks.merge_rows(
                each.contribution(fresh),
                settings,
                each.table,
                application=APPLICATION,
                upto=last,
                on=each.table.keys,
                matched=each.addition,
            )
        enriched = _not_applied(rows, settings, tables.ENRICHED_TRANSACTIONS, APPLICATION)
        customers = sources.read_table(rows.sparkSession, settings, tables.SILVER_CUSTOMERS)
        sinks.merge_rows(
            enrichment.enrich(enriched, customers),
            settings,
            tables.ENRICHED_TRANSACTIONS,
            application=APPLICATION,
            upto=last,
            on=tables.ENRICHED_TRANSACTIONS.keys,
        )

    targets = (*(each.table for each in SUMS), tables.ENRICHED_TRANSACTIONS)
    _follow(spark, settings, tables.SILVER_TRANSACTIONS, targets, APPLICATION, take)


def follow_customers(spark: SparkSession, settings: Settings) -> None:
    """Amend the enriched rows, if there are any yet, of customers whose history changed."""
    application = f"{APPLICATION} customers"

    def take(changes: DataFrame, last: int) -> None:
        if sinks.applied(settings, tables.ENRICHED_TRANSACTIONS, APPLICATION) is None:
            return
        spark = changes.sparkSession
        touched = changes.select("customer_id").distinct()
        present = sources.read_table(spark, settings, tables.ENRICHED_TRANSACTIONS).join(touched, on="customer_id", how="left_semi")
        customers = sources.read_table(spark, settings, tables.SILVER_CUSTOMERS).join(touched, on="customer_id", how="left_semi")
        transactions = present.select(*tables.SILVER_TRANSACTIONS.columns)
        amended = sinks.difference(
            present.select(*tables.ENRICHED_TRANSACTIONS.columns),
            enrichment.enrich(transactions, customers),
            on=tables.ENRICHED_TRANSACTIONS.keys,
        )
        sinks.merge_rows(
            amended,
            settings,
            tables.ENRICHED_TRANSACTIONS,
            application=application,
            upto=last,
            on=tables.ENRICHED_TRANSACTIONS.keys,
        )

    _follow(spark, settings, tables.SILVER_CUSTOMERS, (tables.ENRICHED_TRANSACTIONS,), application, take)


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


def _not_applied(rows: DataFrame, settings: Settings, table: Table, application: str) -> DataFrame:
    return rows.where(F.col("_commit_version") > (sinks.applied(settings, table, application) or 0))


def _record(settings: Settings, run_id: str) -> None:
    """One row a gold table in control.batches: the bronze batches that it now answers for, silver's rows of them, its own rows."""
    silver = control.batches(settings, "silver", tables.SILVER_TRANSACTIONS.name)
    last = max((row["last_batch"] for row in silver), default=0)
    for table in tables.GOLD:
        done = control.last_batch(settings, APPLICATION, table.name)
        if done >= last:
            continue
        row = {
            "run_id": run_id,
            "job": APPLICATION,
            "table": table.name,
            "first_batch": done + 1,
            "last_batch": last,
            "input": sum(row["output"] for row in silver if row["first_batch"] > done),
            "output": DeltaTable(str(table.path(settings))).count(),
            "finished_at": datetime.now(UTC),
        }
        control.append(settings, tables.BATCHES, [row], once=(f"{APPLICATION}/{table.name}", last))
