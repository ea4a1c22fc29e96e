"""Gold tables in SQL: made of the same rows they equal those in Python, whatever happens to silver; wrong ones are refused or found."""

import random
import re
from collections import Counter
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.audit import queries
from spark_jobs.audit.compare import compare
from spark_jobs.gold import job
from spark_jobs.gold.changes import Change
from spark_jobs.gold.declaration import GoldTable
from spark_jobs.gold.sql_tables import find_tables, load
from spark_jobs.gold.strategies import Inputs
from spark_jobs.gold.tables import customer_activity, daily_totals, debit_share
from spark_jobs.lake import sources, tables
from spark_jobs.lake.tables import Table
from spark_jobs.reprocessing import gold_range
from spark_jobs.runtime import progress
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import read_settings
from tests.spark.gold.test_gold_job import START, Silver, silver_rows
from tests.support.frames import assert_same, frame
from tests.support.gold_model import Found, Row
from tests.support.lake import rows_of
from tests.support.rows import silver as silver_of

pytestmark = pytest.mark.spark

FOLDER = Path(__file__).parent / "sql"
IN_PYTHON: tuple[GoldTable, ...] = (daily_totals.TABLE, customer_activity.TABLE, debit_share.TABLE)
IN_SQL = tuple(find_tables(FOLDER, {})[0])


class Pipeline:
    """Silver and some tables of gold in a folder, by the gold job, the backfill and the audit."""

    def __init__(self, spark: SparkSession, home: Path, gold: tuple[GoldTable, ...], patch: pytest.MonkeyPatch, rows: list[Row]) -> None:
        self.spark, self.gold, self.settings = spark, gold, read_settings({"LEDGER_HOME": str(home)})
        waves = tuple(tuple(table for table in gold if bool(table.made_of) == is_last) for is_last in (False, True))
        for module, name, value in ((job, "_waves", lambda: waves), (queries, "GOLD", gold), (tables, "GOLD", gold)):
            patch.setattr(module, name, value)
        followers = {source: tuple(table for table in gold if source in table.follows) for source in tables.FOLLOWERS}
        patch.setattr(tables, "FOLLOWERS", followers)
        tables.ensure_tables(self.settings, (*tables.SILVER, *gold, tables.ENRICHED_TRANSACTIONS, *tables.CONTROL))
        self.silver = Silver(spark, self.settings, random.Random(7), rows)

    def run(self) -> None:
        job.run(self.spark, self.settings, "run")

    def rows(self, table: GoldTable) -> Found:
        return Counter(tuple(row[name] for name in table.columns) for row in rows_of(self.settings, table))

    def audit(self, audited: tuple[GoldTable, ...]) -> dict[str, int]:
        """How many rows of some tables the audit finds to differ."""
        silver = {each.name.split(".")[1]: sources.read_table(self.spark, self.settings, each) for each in tables.FOLLOWERS}
        made = queries.gold(self.spark, **silver)
        stored = {each: sources.read_table(self.spark, self.settings, each) for each in audited}
        return {each.name: compare(self.spark, each, made[each.name], rows).differences for each, rows in stored.items()}


def test_tables_in_sql_equal_those_in_python_whatever_happens(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come; more come, one of them late, others change and go; rows of a range are lost and a backfill rebuilds them."""
    assert [table.name for table in IN_SQL] == [f"gold.sql_{name}" for name in ("customer_activity", "daily_totals", "debit_share")]
    pipeline = Pipeline(spark, tmp_path, (*IN_PYTHON, *IN_SQL), monkeypatch, silver_rows(random.Random(7), count=220))

    def check() -> None:
        """Each table in SQL holds what its twin in Python holds."""
        found = {table.name.removeprefix("gold."): pipeline.rows(table) for table in pipeline.gold}
        for name in ("customer_activity", "daily_totals", "debit_share"):
            assert found[name]
            assert found[f"sql_{name}"] == found[name]

    silver, before = pipeline.silver, START - timedelta(days=30)
    silver.append(150)
    pipeline.run()
    check()
    silver.new.append(
        silver_rows(random.Random(1), 1)[0] | {"transaction_id": "late", "event_at": before, "event_on": before.date(), "_offset": 999}
    )
    silver.append(20)
    silver.change(8, on=tables.SILVER_TRANSACTIONS.keys)
    pipeline.run()
    check()

    for table, lost in zip(IN_SQL, ("customer_id = 'C00000001'", "type = 'Debit'", "debits >= 0"), strict=True):
        DeltaTable(str(table.path(pipeline.settings))).delete(lost)
    names = [table.name for table in IN_SQL]
    said: list[str] = []
    range_of_gold = before, START + timedelta(days=90)
    gold_range.rebuild_gold(spark, pipeline.settings, *range_of_gold, names, lambda: said.append(str(progress._phases[-1])), are_few=True)
    assert len(said) == len(names)
    assert all(re.fullmatch(r"gold\.\w+(, gold\.\w+)*, \d of \d tables in [0-9:]+(, about [0-9:]+ left)?", words) for words in said)
    assert all(any(name in words for words in said) for name in names)
    check()
    assert pipeline.audit(IN_SQL) == dict.fromkeys(names, 0)


HEAD = """-- keys: day_start
-- time: day_start
-- columns: day_start timestamp, n bigint
-- touches: windows of 1 day
"""
BY_CUSTOMER = """-- keys: customer_id
-- time: last_at
-- columns: customer_id string, last_at timestamp, n bigint
-- touches: rows by customer_id
"""
DAY = "select date_trunc('day', event_at) as day_start, count(*) as n from {transactions} group by 1"
CUSTOMER = "select customer_id, max(event_at) as last_at, count(*) as n from {transactions} group by customer_id"
WEEK = "timestamp_seconds(floor(unix_seconds(event_at) / 604800) * 604800)"
OF_CHANCE = "found a function whose value depends on the time, on chance or on the order of rows"
OTHER_CONTENT = "another content when the SELECT runs over neighbouring parts together and one by one"


def given(spark: SparkSession) -> DataFrame:
    """Rows of four days, of two customers."""
    rows = [(f"T{n}", "A00000001", f"C0000000{n % 2}", f"2013-01-0{1 + n // 2} 10:00", "Debit", "1.00", "0.00") for n in range(8)]
    return silver_of(spark, rows)


def parts_of(text: str, rows: DataFrame, change: Change) -> tuple[GoldTable, DataFrame]:
    """The table of a file, and the part of it that should be there after a change, where the table has no rows yet."""
    table = load(Path("tried.sql"), text, {})

    def read(other: Table) -> DataFrame:
        return rows if other == tables.SILVER_TRANSACTIONS else frame(rows.sparkSession, other.ddl, [])

    return table, table.strategy.parts(table, change, Inputs(read, Decimal(0)))[1]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            HEAD + DAY.replace(" as n", " as m"),
            "found a SELECT of day_start timestamp, m bigint, expected .*: day_start timestamp, n bigint",
        ),
        (HEAD + DAY.replace("count(*)", "cast(count(*) as int)"), "found a SELECT of day_start timestamp, n int, expected"),
        (HEAD + DAY.replace("event_at", "event"), "the SELECT does not run: .*event"),
        (HEAD + DAY.replace("group", "where event_at < now() group"), OF_CHANCE),
        (HEAD + DAY.replace("group", "where event_on < (select current_date()) group"), OF_CHANCE),
        (HEAD + DAY.replace("group", "where rand() < 2 group"), OF_CHANCE),
        (HEAD + DAY.replace("count(*)", "first(length(type)) + count(*)"), OF_CHANCE),
        (
            HEAD + DAY.replace("date_trunc('day', event_at)", WEEK),
            "row .* with the day_start of no row of silver",
        ),
        (HEAD + DAY.replace("count(*)", "sum(count(*)) over (order by date_trunc('day', event_at))"), OTHER_CONTENT),
        (BY_CUSTOMER + CUSTOMER.replace("count(*)", "(select count(*) from {transactions})"), OTHER_CONTENT),
        (
            BY_CUSTOMER + CUSTOMER.replace("select customer_id", "select upper(substr(customer_id, 2)) as customer_id"),
            "customer_id of no row",
        ),
    ],
)
def test_a_select_that_cannot_be_right_is_refused_before_anything_is_written(spark: SparkSession, text: str, found: str) -> None:
    rows = given(spark)
    with pytest.raises(LedgerError, match=rf"^tried\.sql(:5)?: .*{found}"):
        parts_of(text, rows, Change(rows, rows, is_in_place=True))


def test_of_windows_that_cross_midnight_those_that_hold_a_change_are_made_of_all_their_rows(spark: SparkSession) -> None:
    """Windows of 36 hours; the change is the rows of 2013-01-04, in the window from 2013-01-03 00:00."""
    start = "timestamp_seconds(floor(unix_seconds(event_at) / 129600) * 129600)"
    rows = given(spark)
    changed = rows.where("event_on = date '2013-01-04'")
    hours = (24 * (date(2013, 1, 4) - date(1970, 1, 1)).days + 10,)
    text = HEAD.replace("1 day", "36 hours") + DAY.replace("date_trunc('day', event_at)", start)
    table, wanted = parts_of(text, rows, Change(changed, changed, is_in_place=True, hours=hours, is_small=True))
    every = rows.selectExpr(f"{start} as day_start").groupBy("day_start").count()
    touched = changed.selectExpr(f"{start} as day_start").distinct()
    expected = every.join(touched, on="day_start").selectExpr("day_start", "count as n")
    assert expected.count() == 1
    assert expected.collect()[0]["n"] == 4  # two days
    assert_same(wanted.select(*table.columns), expected)


def test_the_audit_finds_a_table_that_says_too_little_of_what_it_touches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All days count one large amount, wherever it is. While there is none the SELECT looks right."""
    text = HEAD + DAY.replace("count(*)", "count(*) + (select count(*) from {transactions} where amount > 1000000)")
    rows = [row | {"amount": Decimal(1)} for row in silver_rows(random.Random(7), count=400)]
    table = load(Path("wrong.sql"), text, {})
    pipeline = Pipeline(spark, tmp_path, (table,), monkeypatch, [rows[0] | {"amount": Decimal(2000000)}, *rows[1:]])
    pipeline.silver.append(399)
    pipeline.run()
    assert pipeline.audit((table,)) == {table.name: 0}
    days = len(pipeline.rows(table))
    assert days > 10
    pipeline.silver.append(1)
    pipeline.run()
    assert pipeline.audit((table,))[table.name] >= 2 * (days - 1)
