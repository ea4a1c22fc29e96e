"""The functions for SQL in gold tables: right whatever happens to silver, judged by plain Python and by the audit; typed and null-safe."""

import random
import re
from collections import Counter
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.gold.sql_tables import find_tables, load
from spark_jobs.gold.tables.enriched_transactions import mask_name, mask_text
from spark_jobs.lake import functions, tables
from spark_jobs.runtime.errors import first_line
from spark_jobs.runtime.settings import ROOT
from tests.spark.gold.test_gold_job import CUSTOMERS, START, silver_rows
from tests.spark.gold.test_sql_tables import Pipeline
from tests.support.frames import frame
from tests.support.gold_model import Found, Row, grouped

pytestmark = pytest.mark.spark

FOLDER = Path(__file__).parent / "functions"
SAMPLES, REFUSED = find_tables(FOLDER, {})
OPERATIONS = (None, "", " ", "Credit in Cash", "Credit  card 😀", "in in")
NAMES = dict(zip(CUSTOMERS, ("Zoë Ann Smith", "😀x  Y", " a", "", None, "X"), strict=False))  # the last customer is unknown


def asked(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    functions.register(spark, query)
    return [tuple(row) for row in spark.sql(query).collect()]


def test_tables_made_with_functions_are_right_whatever_happens(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows come; customers get names; more come, others change and go. Then the audit makes the tables again, of its own silver."""
    assert (len(SAMPLES), REFUSED) == (4, [])
    chance = random.Random(5)
    rows = [row | {"operation": chance.choice(OPERATIONS)} for row in silver_rows(chance, count=160)]
    pipeline = Pipeline(spark, tmp_path, tuple(SAMPLES), monkeypatch, rows)
    known = {"valid_from": START, "is_current": True, "is_deleted": False}

    def check(names: dict[str, str | None]) -> None:
        expected = model(list(pipeline.silver.rows.values()), names)
        assert {table.name: pipeline.rows(table) for table in SAMPLES} == expected

    pipeline.silver.append(100)
    pipeline.run()
    check({})
    pipeline.silver.put(tables.SILVER_CUSTOMERS, [{"customer_id": name, "full_name": text} | known for name, text in NAMES.items()])
    pipeline.silver.append(20)
    pipeline.silver.change(10, on=tables.SILVER_TRANSACTIONS.keys)
    pipeline.run()
    check(NAMES)
    assert pipeline.audit(tuple(SAMPLES)) == dict.fromkeys((table.name for table in SAMPLES), 0)


def model(rows: list[Row], names: dict[str, str | None]) -> dict[str, Found]:
    """What the four tables must hold, in plain Python."""
    day = {id(row): row["event_at"].replace(hour=0, minute=0, second=0, microsecond=0) for row in rows}
    dated = [row | {"day": day[id(row)]} for row in rows]
    by_customer, by_day, by_account = (grouped(dated, *keys) for keys in (("customer_id",), ("day", "type"), ("account_id",)))
    spoken = Counter((row["day"], word) for row in dated for word in {*(row["operation"] or "").split(" ")} - {""})
    top = [
        (account, rank, amount, of[-1]["event_at"])
        for (account,), of in by_account.items()
        for rank, amount in enumerate(sorted((row["amount"] for row in of), reverse=True)[:2], 1)
    ]
    shares = (Decimal("0.5"), Decimal("0.9"), Decimal("0.99"))
    return {
        "gold.account_top_amounts": Counter(top),
        "gold.customer_names": Counter((name, masked(names.get(name)), len(of), of[-1]["event_at"]) for (name,), of in by_customer.items()),
        "gold.daily_quantiles": Counter((*key, *(quantile(of, share) for share in shares)) for key, of in by_day.items()),
        "gold.operation_words": Counter((*key, count) for key, count in spoken.items()),
    }


def masked(name: str | None) -> str | None:
    return None if name is None else " ".join(word[:1] + "*" * (len(word) - 1) for word in name.split(" "))


def quantile(rows: list[Row], share: Decimal) -> Decimal:
    rank = int((share * len(rows)).to_integral_value(ROUND_CEILING))
    return Decimal(sorted(row["amount"] for row in rows)[rank - 1])


def test_the_page_shows_these_tables() -> None:
    page = (ROOT / "include/docs/functions.md").read_text()
    shown = re.findall(r"^`(\w+)\.sql`:\n\n```sql\n(.*?)```$", page, re.MULTILINE | re.DOTALL)
    assert {name: load(Path(f"{name}.sql"), text, {}).query for name, text in shown} == {
        table.name.removeprefix("gold."): table.query for table in SAMPLES
    }


def test_a_name_is_masked_as_the_gold_table_of_transactions_masks_it(spark: SparkSession) -> None:
    """Not as Spark's own `mask`, which still is there."""
    names = ["Zoë Ann Smith", "😀x 👨‍👩‍👧", "x", " a  bc ", "", "a\tb\nc", "y" * 100_000, "1-2 ß", None]
    rows = frame(spark, "name string", [(name,) for name in names])
    functions.register(spark, "mask_name(name)")
    found = [tuple(row) for row in rows.selectExpr("name", "mask_name(name)", "typeof(mask_name(name))", "mask('aB1')").collect()]
    assert found == [(name, masked(name), "string", "xXn") for name in names]
    assert [mask_text(name) for name in names] == [masked(name) for name in names]
    assert [row[0] for row in rows.select(mask_name(rows["name"])).collect()] == [masked(name) for name in names]


def test_results_have_the_types_that_the_page_names_and_nulls_stay_nulls(spark: SparkSession) -> None:
    given = "values ('A1', 1.50BD, 'a b', '1'), ('A1', null, null, '2'), (null, 7.00BD, '', null) as t(account_id, amount, text, id)"
    spark.sql(f"select account_id, cast(amount as decimal(18,2)) as amount, text, id from {given}").createOrReplaceTempView("given")
    try:
        quantiles = "select account_id, exact_quantiles(amount, array(0.5, null)), exact_quantiles(amount, null) from given group by all"
        assert sorted(asked(spark, quantiles), key=str) == [
            ("A1", [Decimal("1.50"), None], None),
            (None, [Decimal("7.00"), None], None),
        ]
        assert asked(spark, "select exact_quantiles(amount, array(0.5)) from given where amount is null") == [(None,)]
        top = "select * from top_amounts(table(select account_id, amount from given) partition by account_id)"
        assert sorted(asked(spark, top), key=str) == [("A1", 1, Decimal("1.50")), (None, 1, Decimal("7.00"))]
        words = "select * from split_words(table(select id, text from given))"
        assert asked(spark, words) == [("1", 1, "a"), ("1", 2, "b")]
        types = {query: [kind for _, kind in spark.sql(query).dtypes] for query in (quantiles, top, words)}
        assert types == {
            quantiles: ["string", "array<decimal(18,2)>", "array<decimal(18,2)>"],
            top: ["string", "int", "decimal(18,2)"],
            words: ["string", "int", "string"],
        }
    finally:
        spark.catalog.dropTempView("given")


def test_what_is_wrong_with_the_rows_is_said_in_one_line(spark: SparkSession) -> None:
    query = "select exact_quantiles(id, array(0.5)) from range(3)"
    with pytest.raises(Exception, match="exact_quantiles") as failure:
        asked(spark, query)
    line = "exact_quantiles: found amounts of type int64, expected decimal(18,2): cast them"
    assert first_line(failure.value) == f"ValueError: {line}"


def test_a_session_gets_only_what_a_query_names(spark: SparkSession) -> None:
    session = spark.newSession()
    functions.register(session, "select 'top_amounts', split_words from t -- mask_name")
    assert [name for name in functions.NAMES if session.catalog.functionExists(name)] == []
    functions.register(session, "select Mask_Name (name) from t")
    assert [name for name in functions.NAMES if session.catalog.functionExists(name)] == ["mask_name"]
