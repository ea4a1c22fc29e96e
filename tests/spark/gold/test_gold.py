"""Gold tables against hand-written rows, and sums that are folded step by step against those taken over everything."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs.gold import job
from spark_jobs.gold.declaration import GoldTable
from spark_jobs.gold.strategies import Inputs, Keys, Windows
from spark_jobs.gold.tables.account_balances import account_balances
from spark_jobs.gold.tables.customer_activity import customer_activity
from spark_jobs.gold.tables.daily_totals import daily_totals
from spark_jobs.gold.tables.enriched_transactions import enrich, mask_name
from spark_jobs.lake import few_rows, sinks, sources, tables
from spark_jobs.lake.txn import Txn
from spark_jobs.runtime.settings import read_settings
from tests.support.frames import assert_same, frame, values
from tests.support.rows import silver

pytestmark = pytest.mark.spark

MOST = "9999999999999999.99"  # decimal(18,2)
A, B = "A00000001", "A00000002"
C, D = "C00000001", "C00000002"

# id, account, customer, event_at, type, amount, balance; in order of arrival
ROWS = [
    ("T0", A, C, "2013-01-01 00:00:00", "Credit", "0.10", "100.10"),
    ("T1", A, C, "2013-01-01 23:59:59.999", "Credit", "0.20", "100.30"),
    ("T2", A, D, "2013-01-02 00:00:00", "Credit", "0.30", "100.60"),
    ("T3", B, D, "2013-01-01 12:00:00", "Debit", MOST, f"-{MOST}"),
    ("T4", B, D, "2013-01-01 12:00:00", "Debit", MOST, "2.00"),
    ("T5", B, D, "2012-12-31 23:59:59.999", "Debit", "0.00", "3.00"),
    ("T6", A, C, "2013-01-01 11:00:00", "Debit", "5.00", "4.00"),
]


def test_daily_totals_are_of_whole_utc_days_by_type(spark: SparkSession) -> None:
    expected = [
        ("2012-12-31", "2013-01-01", "Debit", 1, "0.00"),
        ("2013-01-01", "2013-01-02", "Credit", 2, "0.30"),
        ("2013-01-01", "2013-01-02", "Debit", 3, "20000000000000004.98"),
        ("2013-01-02", "2013-01-03", "Credit", 1, "0.30"),
    ]
    assert_same(daily_totals(silver(spark, ROWS)), frame(spark, tables.DAILY_TOTALS.ddl, expected))


def test_customer_activity(spark: SparkSession) -> None:
    expected = [
        (C, 3, "0.30", "5.00", "2013-01-01 00:00:00", "2013-01-01 23:59:59.999"),
        (D, 4, "0.30", "19999999999999999.98", "2012-12-31 23:59:59.999", "2013-01-02 00:00:00"),
    ]
    assert_same(customer_activity(silver(spark, ROWS)), frame(spark, tables.CUSTOMER_ACTIVITY.ddl, expected))


def test_an_account_has_the_balance_of_its_last_row_by_time_and_arrival(spark: SparkSession) -> None:
    """T4 came after T3 at the same time; T5 and T6 arrived later but are earlier."""
    expected = [
        (A, "100.60", "2013-01-02 00:00:00", "0.60", "5.00", 4, "transactions", 0, 2, 1),
        (B, "2.00", "2013-01-01 12:00:00", "0.00", "19999999999999999.98", 3, "transactions", 0, 4, 1),
    ]
    assert_same(account_balances(silver(spark, ROWS)), frame(spark, tables.ACCOUNT_BALANCES.ddl, expected))


def test_arrival_is_batch_then_topic_then_partition_then_offset(spark: SparkSession) -> None:
    """Of rows at one time the last counts; each account has its own difference in place."""
    time, late, early = "2013-01-01", ("2.00", "last"), ("1.00", "first")
    places: dict[str, list[tuple[tuple[str, str], str, int, int, int]]] = {
        "batch": [(late, "a", 0, 0, 2), (early, "b", 9, 9, 1)],
        "topic": [(early, "a", 9, 9, 1), (late, "b", 0, 0, 1)],
        "partition": [(late, "a", 10, 0, 1), (early, "a", 9, 9, 1)],
        "offset": [(early, "a", 0, 9, 1), (late, "a", 0, 10, 1)],
    }
    rows = [
        (id_, account, C, time, time, "Debit", None, "1.00", balance, topic, partition, offset, batch)
        for account, of_account in places.items()
        for (balance, id_), topic, partition, offset, batch in of_account
    ]
    found = account_balances(frame(spark, tables.SILVER_TRANSACTIONS.ddl, rows)).select("account_id", "balance")
    assert_same(found, frame(spark, "account_id string, balance decimal(18,2)", [(account, "2.00") for account in places]))


def summed() -> list[tuple[GoldTable, dict[str, str]]]:
    """The tables of which sums are added to, and how."""
    strategies = [(table, table.strategy) for table in job.tables_in_order()]
    return [(table, dict(each.adds)) for table, each in strategies if isinstance(each, Windows | Keys) and each.adds]


def sums_of(table: GoldTable, rows: DataFrame) -> DataFrame:
    """What some rows contribute."""
    if isinstance(table.strategy, Windows):
        return table.strategy.make(rows, Inputs(lambda _: rows, Decimal(0)))
    assert isinstance(table.strategy, Keys)
    return table.strategy.make(rows)


def test_sums_go_beyond_28_digits(spark: SparkSession) -> None:
    """Merging adds them in the table's own type: decimal(38,2)."""
    nearly = "9" * 35 + ".99"
    total = "1" + "0" * 35 + ".98"
    rows = frame(spark, "t_ decimal(38,2), s_ decimal(38,2)", [(nearly, "0.99")])
    for _, adds in summed():
        for column in {"amount", "credits", "debits"} & set(adds):
            t, s = F.struct(F.col("t_").alias(column)).alias("t"), F.struct(F.col("s_").alias(column)).alias("s")
            added = rows.select(t, s).select(F.expr(adds[column]).alias("sum"))
            assert_same(added, frame(spark, "sum decimal(38,2)", [(total,)]))
    many = silver(spark, [ROWS[3]]).crossJoin(spark.range(2_000))
    expected = {"amount": "19999999999999999980.00", "transactions": 2_000}
    found = values(daily_totals(many.drop("id")))[0]
    assert {name: found[name] for name in expected} == expected


VERSIONS = """customer_id string, full_name string, city string, state string, valid_from timestamp, valid_to timestamp,
    is_deleted boolean"""
ENRICHED = """transaction_id string, customer_full_name string, customer_city string, customer_state string,
    customer_version_from timestamp, customer_status string"""


def test_a_transaction_has_the_customer_as_of_its_time(spark: SparkSession) -> None:
    jan, feb, mar = "2013-01-01", "2013-02-01", "2013-03-01"
    versions = [
        (C, "Ann Lee", "Ely", "NM", jan, feb, False),
        (C, "Ann Roe", None, "TX", feb, mar, False),
        (C, None, None, None, mar, "2013-04-01", True),
        (C, None, None, None, "2013-04-01", None, False),
        (D, "Bo", "Rye", "NY", jan, None, False),
    ]
    cases: list[tuple[str, str, str, tuple[Any, ...]]] = [
        ("one ms before the first version", C, "2012-12-31 23:59:59.999", (None, None, None, None, "unknown")),
        ("at the start of a version", C, jan, ("A** L**", "Ely", "NM", jan, "matched")),
        ("one ms before its end", C, "2013-01-31 23:59:59.999", ("A** L**", "Ely", "NM", jan, "matched")),
        ("at its end the next one counts", C, feb, ("A** R**", None, "TX", feb, "matched")),
        ("at the time of the deletion", C, mar, (None, None, None, None, "deleted")),
        ("while deleted", C, "2013-03-31 23:59:59.999", (None, None, None, None, "deleted")),
        ("made again without a name", C, "2013-04-01", (None, None, None, "2013-04-01", "matched")),
        ("in an open version", D, "2099-01-01", ("B*", "Rye", "NY", jan, "matched")),
        ("a customer that nobody knows", "C00000003", jan, (None, None, None, None, "unknown")),
    ]
    rows = silver(spark, [(name, A, customer, time, "Debit", "1.00", "2.00") for name, customer, time, _ in cases])
    found = enrich(rows, frame(spark, VERSIONS, versions)).localCheckpoint()
    names = ["transaction_id", "customer_full_name", "customer_city", "customer_state", "customer_version_from", "customer_status"]
    assert_same(found.select(*names), frame(spark, ENRICHED, [(name, *customer) for name, _, _, customer in cases]))
    assert_same(found.select(*tables.SILVER_TRANSACTIONS.columns), rows)
    assert found.columns == list(tables.ENRICHED_TRANSACTIONS.columns)


def test_of_a_name_only_first_letters_stay(spark: SparkSession) -> None:
    masked = {
        "Ann": "A**",
        "Ann Mary Lee": "A** M*** L**",
        "A B": "A B",
        "Zoë Ångström": "Z** Å*******",
        "李小龙 王": "李** 王",
        "\U0001d49cnn 😀ob": "\U0001d49c** 😀**",
        "Ann  Lee": "A**  L**",
        " Ann ": " A** ",
        "O'Neil-Smith": "O***********",
        "Ann\tLee": "A******",
        "Ann\nLee": "A******",
        "": "",
        " ": " ",
        None: None,
    }
    rows = frame(spark, "name string", [(name,) for name in masked])
    found = {row["name"]: row["masked"] for row in values(rows.select("name", mask_name(F.col("name")).alias("masked")))}
    assert found == masked


@pytest.mark.parametrize("in_memory", [False, True])
def test_sums_folded_step_by_step_are_those_of_all_rows_and_no_step_counts_twice(
    spark: SparkSession, tmp_path: Path, in_memory: bool
) -> None:
    """Through the real merges: T2 (later) and T4 (same time, later arrival) come before T5 and T6 (earlier), and a new key."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    tables.ensure_tables(settings, [table for table, _ in summed()])
    rows = silver(spark, [*ROWS, ("T7", "A00000003", "C00000003", "2013-01-05", "Credit", "1.00", "1.00")]).localCheckpoint()
    for table, adds in summed():
        for first, upto in ((0, 4), (4, 8), (4, 8)):  # the second step twice
            part = rows.where(F.col("_offset").between(first, upto - 1))
            if in_memory:
                few_rows.merge(sums_of(table, part).toArrow(), settings, table, Txn("test", upto), matched=adds)
            else:
                sinks.merge_rows(sums_of(table, part), settings, table, Txn("test", upto), on=table.keys, matched=adds)
        assert_same(sources.read_table(spark, settings, table), sums_of(table, rows))
