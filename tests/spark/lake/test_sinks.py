"""Writes that are repeated, cut anew or half done: nothing is lost, nothing counts twice."""

from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Barrier, Event

import pyarrow as pa
import pytest
from delta.exceptions import MetadataChangedException
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.lake import few_rows, postgres_leases, side_by_side, sinks, sources
from spark_jobs.lake.tables import Table, ensure_tables
from spark_jobs.lake.txn import Txn, applied
from spark_jobs.lake.versions import is_maintenance, rows_written
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.kill_points import kill_point
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.frames import assert_same, frame

pytestmark = pytest.mark.spark

LOG = Table("silver.log", "id string, _batch bigint")
SUMS = Table("gold.sums", "id string, total bigint, note string", keys=("id",))
ADD = {"total": "t.total + s.total", "note": "s.note"}


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    ensure_tables(settings, [LOG, SUMS])
    return settings


def batches(spark: SparkSession, *numbers: int) -> DataFrame:
    """Two rows of each of these batches."""
    return frame(spark, LOG.ddl, [(f"{name}{number}", number) for number in numbers for name in ("a", "b")])


def version(home: Settings, table: Table) -> int:
    return DeltaTable(str(table.path(home))).version()


@pytest.mark.parametrize("in_memory", [False, True])
def test_appended_batches_are_there_once_however_they_are_cut(spark: SparkSession, home: Settings, in_memory: bool) -> None:
    assert applied(home, LOG, "job") is None
    for numbers, commits in (((1, 2), 1), ((1, 2), 1), ((1,), 1), ((1, 2, 3), 2), ((2, 3, 5), 3), ((4, 5), 3)):
        rows, txn = batches(spark, *numbers), Txn("job", max(numbers))
        few_rows.append_batches(rows.toArrow(), home, LOG, txn) if in_memory else sinks.append_batches(rows, home, LOG, txn)
        assert version(home, LOG) == commits
    assert applied(home, LOG, "job") == 5
    assert_same(sources.read_table(spark, home, LOG), batches(spark, 1, 2, 3, 5))


def test_an_empty_append_moves_the_table_on_and_applications_do_not_hinder_each_other(spark: SparkSession, home: Settings) -> None:
    sinks.append_batches(batches(spark), home, LOG, Txn("job", 4))
    sinks.append_batches(batches(spark, 3, 4), home, LOG, Txn("job", 4))
    sinks.append_batches(batches(spark, 1), home, LOG, Txn("another job", 1))
    assert (applied(home, LOG, "job"), applied(home, LOG, "another job")) == (4, 1)
    assert_same(sources.read_table(spark, home, LOG), batches(spark, 1))


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_merge_counts_once_and_only_in_its_columns(spark: SparkSession, home: Settings, in_memory: bool) -> None:
    def merge(rows: list[tuple[str | None, int, str | None]], upto: int) -> None:
        if in_memory:
            few_rows.merge(frame(spark, SUMS.ddl, rows).toArrow(), home, SUMS, Txn("job", upto), matched=ADD)
        else:
            sinks.merge_rows(frame(spark, SUMS.ddl, rows), home, SUMS, Txn("job", upto), on=SUMS.keys, matched=ADD)

    merge([("x", 1, "new"), (None, 5, "a null key is a key")], 3)
    merge([("x", 1, "again")], 3)
    merge([("x", 1, "an older one")], 2)
    merge([("x", 10, None), (None, 5, "met again"), ("y", 7, "late")], 4)
    expected = [("x", 11, None), (None, 10, "met again"), ("y", 7, "late")]
    assert_same(sources.read_table(spark, home, SUMS), frame(spark, SUMS.ddl, expected))
    assert version(home, SUMS) == 2
    assert spark.conf.get("spark.databricks.delta.write.txnVersion", None) is None


@pytest.mark.parametrize("in_memory", [False, True])
def test_what_differs_is_written_and_what_is_gone_is_deleted(spark: SparkSession, home: Settings, in_memory: bool) -> None:
    before = [("same", 1, None), ("changed", 1, None), ("to null", 1, "x"), ("gone", 1, None)]
    after = [("same", 1, None), ("changed", 2, None), ("to null", 1, None), ("new", 1, "")]
    change = "id string, total bigint, note string, _is_gone boolean"
    expected = [("changed", 2, None, False), ("to null", 1, None, False), ("gone", 1, None, True), ("new", 1, "", False)]
    changes = sinks.difference(frame(spark, SUMS.ddl, before), frame(spark, SUMS.ddl, after), on=SUMS.keys)
    assert_same(changes, frame(spark, change, expected))
    rows = frame(spark, SUMS.ddl, before)
    sinks.merge_rows(rows, home, SUMS, Txn("job", 1), on=SUMS.keys)
    if in_memory:
        few_rows.merge(changes.toArrow(), home, SUMS, Txn("job", 2), deletes_where="s._is_gone")
    else:
        sinks.merge_rows(changes, home, SUMS, Txn("job", 2), on=SUMS.keys, deletes_where="s._is_gone")
    assert_same(sources.read_table(spark, home, SUMS), frame(spark, SUMS.ddl, after))
    assert rows_written(SUMS.path(home), 1, ["job"]) == 4


@pytest.mark.parametrize(("most", "note", "by"), [(3, "x", "delta-rs"), (1, "x", "Spark"), (3, "x" * 5000, "Spark")])
def test_changes_that_fit_into_memory_are_merged_there(
    spark: SparkSession, home: Settings, monkeypatch: pytest.MonkeyPatch, most: int, note: str, by: str
) -> None:
    """By the number of rows, and by the length of their texts."""
    monkeypatch.setattr(few_rows, "MOST_ROWS", most)
    monkeypatch.setattr(few_rows, "MOST_BYTES", 4_000)
    table = replace(SUMS, name="silver.sums")
    ensure_tables(home, [table])
    before, after = (frame(spark, SUMS.ddl, rows) for rows in ([("a", 1, None), ("b", 1, None)], [("a", 1, note), ("c", 1, None)]))
    sinks.merge_rows(before, home, table, Txn("job", 1), on=table.keys)
    sinks.merge_changes(sinks.changes_of(table, before, after), home, table, Txn("job", 2))
    assert_same(sources.read_table(spark, home, table), after)
    assert by in DeltaTable(str(table.path(home))).history(1)[0].get("engineInfo", "delta-rs")


def test_a_table_that_does_not_change_notes_how_far_it_has_come(spark: SparkSession, home: Settings) -> None:
    """In a commit without rows, also where rows are marked as removed."""
    marked = replace(SUMS, name="gold.marked")
    ensure_tables(home, [marked])
    sinks.mark_removed_rows(spark, home, [marked])
    same = frame(spark, SUMS.ddl, [("x", 1, None)])
    for table in (SUMS, marked):
        sinks.merge_rows(same, home, table, Txn("job", 1), on=table.keys)
        before = version(home, table)
        for upto in (2, 2):
            sinks.merge_changes(sinks.changes_of(table, same, same), home, table, Txn("job", upto))
        assert (version(home, table), applied(home, table, "job")) == (before + 1, 2)
        assert is_maintenance(table.path(home), before + 1)
        assert_same(sources.read_table(spark, home, table), same)


def test_changes_that_meet_in_a_key_are_refused_in_memory(spark: SparkSession, home: Settings) -> None:
    twice = frame(spark, SUMS.ddl, [("x", 1, "a"), ("x", 2, "b")])
    with pytest.raises(LedgerError, match=r"gold\.sums: found 2 changes of 1 rows"):
        few_rows.merge(twice.toArrow(), home, SUMS, Txn("job", 1))
    assert version(home, SUMS) == 0


def test_files_written_in_memory_have_no_statistics_of_decimals(spark: SparkSession, home: Settings) -> None:
    """delta-rs has floats for them: a sum of 19 digits would lie outside of its own file's bounds, and be missed."""
    exact = Table("gold.exact", "id string, amount decimal(38,2)", keys=("id",))
    ensure_tables(home, [exact])
    few_rows.merge(frame(spark, exact.ddl, [("x", "99999999999999999.99")]).toArrow(), home, exact, Txn("job", 1))
    (file,) = pa.table(DeltaTable(str(exact.path(home))).get_add_actions(flatten=True)).to_pylist()
    assert (file["max.id"], file["max.amount"], file["min.amount"]) == ("x", None, None)
    assert sources.read_table(spark, home, exact).where("amount >= 99999999999999999.99").count() == 1


def test_the_first_failure_is_told_and_what_has_begun_is_finished(spark: SparkSession, home: Settings) -> None:
    """Each in a session of its own: what a write sets there does not reach another one."""
    began, met = Barrier(2), list[str]()

    def write(session: SparkSession, name: str) -> None:
        session.conf.set("spark.databricks.delta.write.txnAppId", name)
        began.wait(60)
        if name == "bad":
            raise LedgerError("found this, expected that")
        sinks.append_batches(side_by_side.within(session, batches(spark, 1)), home, LOG, Txn("job", 1))
        met.append(str(session.conf.get("spark.databricks.delta.write.txnAppId")))

    with pytest.raises(LedgerError, match="bad stopped: found this, expected that"):
        side_by_side.run_each(spark, {"bad": partial(write, name="bad"), "good": partial(write, name="good")})
    assert met == ["good"]
    assert applied(home, LOG, "job") == 1
    assert spark.conf.get("spark.databricks.delta.write.txnAppId", None) is None


def test_while_a_result_is_used_the_next_is_made(spark: SparkSession) -> None:
    """In a session of its own; an error comes in its turn, after the results before it."""
    begun, name = Event(), "spark.databricks.delta.write.txnAppId"

    def second(session: SparkSession) -> str:
        session.conf.set(name, "second")
        begun.set()
        return str(session.conf.get(name))

    def third(_: SparkSession) -> str:
        raise LedgerError("found this, expected that")

    with closing(side_by_side.one_ahead(spark, [lambda _: "first", second, third])) as results:
        assert next(results) == "first"
        assert begun.wait(60)
        assert next(results) == "second"
        with pytest.raises(LedgerError, match="found this, expected that"):
            next(results)
    assert spark.conf.get(name, None) is None
    assert list(side_by_side.one_ahead(spark, [])) == []


def test_a_write_that_fails_leaves_nothing_and_can_be_repeated(spark: SparkSession, home: Settings) -> None:
    """Two rows of one key: the merge fails as a whole, and its mark does not stay in the session."""
    twice = frame(spark, SUMS.ddl, [("x", 1, "a"), ("x", 2, "b")])
    sinks.merge_rows(frame(spark, SUMS.ddl, [("x", 0, None)]), home, SUMS, Txn("job", 1), on=SUMS.keys)
    with pytest.raises(Exception, match="DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"):
        sinks.merge_rows(twice, home, SUMS, Txn("job", 2), on=SUMS.keys)
    assert applied(home, SUMS, "job") == 1
    sinks.append_batches(batches(spark, 1), home, LOG, Txn("job", 1))
    sinks.merge_rows(frame(spark, SUMS.ddl, [("x", 3, None)]), home, SUMS, Txn("job", 2), on=SUMS.keys)
    assert_same(sources.read_table(spark, home, SUMS), frame(spark, SUMS.ddl, [("x", 3, None)]))


def test_a_kill_point_is_inert_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """That this process is still there to say so is the test."""
    monkeypatch.delenv("LEDGER_KILL_POINT", raising=False)
    kill_point("after silver.transactions")
    monkeypatch.setenv("LEDGER_KILL_POINT", "after silver.transactions")
    kill_point("before silver.transactions")
    kill_point("after silver.transactions_late")
    kill_point("")


def test_a_commit_that_was_begun_before_another_host_took_the_lease_fails(spark: SparkSession, home: Settings) -> None:
    """The JVM of a job whose process was paused: it has written its files, and would make the commit now."""
    sinks.append_batches(batches(spark, 1), home, LOG, Txn("job", 1))
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(LOG.path(home)))  # type: ignore[union-attr]
    transaction = log.startTransaction()
    written = transaction.writeFiles(batches(spark, 2)._jdf)
    postgres_leases._fence(LOG.path(home), 7)
    operation = getattr(spark._jvm.org.apache.spark.sql.delta, "DeltaOperations$ManualUpdate$")  # type: ignore[union-attr]
    with pytest.raises(MetadataChangedException):
        transaction.commit(written, getattr(operation, "MODULE$"))
    rows = LOG.open(home)
    assert (rows.version(), rows.metadata().configuration[postgres_leases.EPOCH]) == (2, "7")
    sinks.append_batches(batches(spark, 2), home, LOG, Txn("job", 2))  # who has the lease goes on
    assert applied(home, LOG, "job") == 2
    assert is_maintenance(LOG.path(home), 2)
