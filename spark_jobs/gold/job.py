"""The gold job: one pass over what changed in silver, for every gold table.

It reads silver's change feeds. How far a gold table follows is the silver version kept in its own commits, so a run may die
anywhere and be repeated.
"""

import json
import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import SparkSession, functions as F

from spark_jobs import control
from spark_jobs.gold import inputs
from spark_jobs.gold.changes import MOST_SMALL, Change, Feed, hold_changes, hold_versions, read_feed
from spark_jobs.gold.declaration import GoldTable, find
from spark_jobs.gold.strategies import Inputs, Keys, Rows, Windows
from spark_jobs.lake import few_rows, leases, side_by_side, sinks, sources, tables
from spark_jobs.lake.layout import SMALL_PAGES
from spark_jobs.lake.tables import Table
from spark_jobs.lake.txn import Txn, applied
from spark_jobs.lake.versions import has_changes_from
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.session import SMALL_PLANS
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import quoted

log = logging.getLogger(__name__)

JOB = "gold"


def tables_in_order() -> tuple[GoldTable, ...]:
    """Every gold table, in the order in which their writes begin."""
    return tuple(table for wave in _waves() for table in wave)


def _waves() -> tuple[tuple[GoldTable, ...], ...]:
    """The gold tables in groups that come one after the other; those of one group are independent of one another.

    The first is the table from which the others read silver's rows, in the order of time; the last are those made of another one.
    What takes longest begins first: tables to which sums are added take less than those whose parts are made again.
    """
    found = sorted((find(table.name) for table in tables.GOLD), key=lambda table: bool(getattr(table.strategy, "adds", None)))
    first = [table for table in found if table == tables.ENRICHED_TRANSACTIONS]
    return (*first,), (*(table for table in found if table not in first and table.made_of is None),), (*(t for t in found if t.made_of),)


def run(spark: SparkSession, settings: Settings, run_id: str) -> None:
    """Bring every gold table up to silver, which does not change while this runs, and record how far in control.batches."""
    with sinks.configured(spark, SMALL_PAGES):
        pairs = [(dimension, table) for table in tables_in_order() for dimension in table.follows[1:]]
        follow = {
            f"{dimension.name} in {table.name}": partial(follow_dimension, settings=settings, dimension=dimension, table=table)
            for dimension, table in pairs
        }
        side_by_side.run_each(spark, follow)
        follow_transactions(spark, settings)
    record(settings, run_id)


def follow_transactions(spark: SparkSession, settings: Settings) -> None:
    """Bring every table up to silver.transactions."""
    application = control.following(settings, tables.SILVER_TRANSACTIONS)

    def take(feed: Feed, targets: Collection[Table]) -> int | None:
        if (changes := hold_changes(feed)) is None:
            return None
        large = (table for table in tables.GOLD if table.deletion_vectors and not few_rows.has_few_bytes(settings, table))
        sinks.mark_removed_rows(spark, settings, large)

        def bring(table: GoldTable, session: SparkSession) -> None:
            done = applied(settings, table, application)
            if done is None or done < changes.last:
                change = replace(changes, feed=side_by_side.within(session, changes.feed)).after(done or 0)
                silver = inputs.silver_in_time(settings, application, changes.last)
                given = inputs.open_inputs(session, settings, silver, touches_few=changes.few is not None)
                with sinks.configured(session, changes.plans):
                    _take(change, given, settings, table, Txn(application, changes.last))

        try:
            in_waves(spark, targets, bring, is_small=changes.is_small)
        finally:
            changes.feed.unpersist()
        return changes.last

    head, new = _follow(spark, settings, tables.SILVER_TRANSACTIONS, tables_in_order(), application, take)
    if new:
        _make(spark, settings, new, Txn(application, head))


def missing_rows(settings: Settings) -> int:
    """About how many rows of silver.transactions gold does not have yet."""
    silver, gold = (control.count(table.open(settings)) for table in (tables.SILVER_TRANSACTIONS, tables.ENRICHED_TRANSACTIONS))
    return silver - gold


def _make(spark: SparkSession, settings: Settings, targets: Collection[Table], txn: Txn) -> None:
    """Make tables from all of silver.transactions at a version: where they have no rows yet, by one append."""
    silver = tables.SILVER_TRANSACTIONS.open(settings, txn.version)
    if not (count := control.count(silver)):
        return
    is_small = count <= MOST_SMALL
    source = inputs.Source(tables.SILVER_TRANSACTIONS, txn.version)
    cuts = () if is_small else sinks.cut_days(inputs.open_inputs(spark, settings, source, touches_few=False).silver(), "event_on")

    def make(table: GoldTable, session: SparkSession) -> None:
        if (applied(settings, table, txn.application) or -1) >= txn.version:
            return
        given = inputs.open_inputs(session, settings, inputs.silver_in_time(settings, *txn), touches_few=is_small)
        with sinks.configured(session, SMALL_PLANS if is_small else inputs.LARGE_PLANS):
            whole = table.strategy.whole(table, given).selectExpr(*quoted(table.columns))
            if control.count(table.open(settings)):
                sinks.merge_parts(given.table(table), whole, settings, table, txn, are_few=is_small)
            else:
                within = cuts if table.deletion_vectors else ()  # such a table grows with silver
                sinks.append_rows(whole, settings, table, txn, cuts=within, are_few=is_small)

    in_waves(spark, targets, make, is_small=is_small)
    log.info("%s: made from version %d: %s", tables.SILVER_TRANSACTIONS.name, txn.version, ", ".join(table.name for table in targets))


def in_waves(spark: SparkSession, targets: Collection[Table], work: Callable[[GoldTable, SparkSession], None], *, is_small: bool) -> None:
    """Do some work for each of the tables, each in a copy of the session: side by side, but those that others read from first.

    Raises LedgerError as `run_each` does.
    """
    for wave in _waves():
        pieces = {table.name: partial(work, table) for table in wave if table in targets}
        side_by_side.run_each(spark, pieces, at_once=side_by_side.AT_ONCE if is_small else side_by_side.LARGE_AT_ONCE)


def _take(change: Change, given: Inputs, settings: Settings, table: GoldTable, txn: Txn) -> None:
    """Apply a change: new rows are added to the sums, or appended; for all else the parts that they touch are made again."""
    strategy = table.strategy
    if change.only_added and isinstance(strategy, Rows):
        if (few := strategy.few(change, given)) is not None:
            few_rows.append(few, settings, table, txn)
            return
        new = strategy.made(change, given)
        are_few = change.is_small or (change.touches_few and strategy.near is None)  # others have a part in each of them
        sinks.append_rows(new, settings, table, txn, are_few=are_few)
    elif change.only_added and isinstance(strategy, Windows | Keys) and strategy.adds:
        sums = strategy.make(change.rows, given) if isinstance(strategy, Windows) else strategy.make(change.rows)
        if (few := sinks.collect_few(sums)) is None:
            sinks.merge_rows(sums, settings, table, txn, on=table.keys, matched=strategy.adds)
        else:
            sinks.merge_few(few, sums.sparkSession, settings, table, txn, matched=strategy.adds)
    else:
        _amend(change, given, settings, table, txn)


def follow_dimension(spark: SparkSession, settings: Settings, dimension: Table, table: GoldTable) -> None:
    """Bring a table up to the history of customers or accounts: for the transactions for which another version holds than before."""
    application = control.following(settings, dimension)
    gold = control.following(settings, tables.SILVER_TRANSACTIONS)

    def take(feed: Feed, _: Collection[Table]) -> int | None:
        versions = hold_versions(feed, dimension.keys[0])
        if versions is None:
            return None
        txn, done = Txn(application, versions.last), applied(settings, table, gold)
        if done is None:  # the table has no rows yet: they will come with the histories as they are now
            few_rows.note_applied(settings, table, txn)
            return versions.last
        session = feed.rows.sparkSession
        given = inputs.open_inputs(session, settings, inputs.silver_in_time(settings, gold, done), touches_few=versions.are_few)
        with sinks.configured(session, SMALL_PLANS if versions.are_few else {}):
            change = versions.change(given, is_temporal=table.is_temporal)
            if table.is_temporal and change.hours == ():
                few_rows.note_applied(settings, table, txn)
            else:
                _amend(change, given, settings, table, txn)
        return versions.last

    head, new = _follow(spark, settings, dimension, (table,), application, take)
    if new:
        rows = sources.read_table(spark, settings, dimension, version=head)
        take(Feed(rows.withColumns({"_change_type": F.lit("insert"), "_commit_version": F.lit(head).cast("bigint")})), new)


def _amend(change: Change, given: Inputs, settings: Settings, table: GoldTable, txn: Txn) -> None:
    present, wanted = (part.selectExpr(*quoted(table.columns)) for part in table.strategy.parts(table, change, given))
    sinks.merge_parts(present, wanted, settings, table, txn, are_few=change.touches_few)


def _follow(
    spark: SparkSession,
    settings: Settings,
    source: Table,
    targets: tuple[GoldTable, ...],
    application: str,
    take: Callable[[Feed, Collection[Table]], int | None],
) -> tuple[int, Collection[Table]]:
    """Run `take(changes, tables)` on what happened to a silver table since the target that is furthest behind, and tell the last version.

    Returns the version that silver has, and the targets that never followed, new tables or lost ones: they are made from silver as it
    is, because its early commits may be gone. They come after those that follow, because one may be made of these; and what is made of
    a new table is made once more.
    """
    reached: dict[Table, int | None] = {table: applied(settings, table, application) for table in targets}
    head = source.open(settings).version()
    if ahead := {table.name: done for table, done in reached.items() if done is not None and done > head}:
        found = ", ".join(f"{name} made of version {done}" for name, done in ahead.items())
        raise LedgerError(
            f"{source.name} is older than gold: found it at version {head}, and {found}, expected gold behind silver: "
            "restore both from the same backup, or remove the folders of these gold tables, and run gold, which builds them again"
        )
    new = {table for table in targets if None in (reached[table], reached[table.made_of or table])}
    following = {table: done for table, done in reached.items() if done is not None and table not in new}
    done = min(following.values(), default=head)
    if has_changes_from(source.path(settings), done + 1):
        if (last := take(read_feed(spark, settings, source, done, head), following)) is not None:
            log.info("%s: gold follows up to version %d", source.name, last)
    else:
        log.info("%s: nothing new for gold since version %d", source.name, done)
    return head, new


def record(settings: Settings, run_id: str) -> None:
    """Note in control.batches, in one commit: the bronze batches that gold answers for, and the silver versions that it read.

    Once: a run that read the versions which the newest record of every table names, up to the same batch, has nothing to note.
    input: silver's rows of these batches; output: all rows of the gold table.
    """
    done, last = control.last_batch(settings, JOB, tables.GOLD[0].name), control.silver_batch(settings, "transactions")
    silver = control.batches(settings, "silver", tables.SILVER_TRANSACTIONS.name, after=done)
    versions = {table.name: table.open(settings).version() for table in tables.FOLLOWERS}
    runs = control.newest_gold_runs(settings)
    newest = {row["table"]: (json.loads(row["_read_versions"]), row["last_batch"]) for row in runs}
    is_new = any(newest.get(table.name) != (versions, last) for table in tables.GOLD)  # a batch of bad rows alone changes no version
    common = {
        "run_id": run_id,
        "job": JOB,
        "first_batch": min(done + 1, last),
        "last_batch": last,
        "input": sum(row["output"] for row in silver if row["first_batch"] > done),
        "finished_at": control.later_than((row["finished_at"] for row in runs), datetime.now(UTC)),
        "_read_versions": json.dumps(versions),
    }
    made = tables.GOLD if is_new else ()
    rows = [common | {"table": table.name, "output": control.count(table.open(settings))} for table in made]
    kill_point("before batches of gold")
    with leases.hold(settings, [tables.BATCHES], owner="gold"):
        if rows:
            control.append_under_lease(settings, tables.BATCHES, rows)
    kill_point("after batches of gold")
