"""The gold job on random silver rows in random cuts: every table is what plain Python makes of all rows at once."""

import random
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from spark_jobs import control, sinks, tables
from spark_jobs.gold import job
from spark_jobs.settings import Settings, read_settings
from spark_jobs.tables import Table
from tests.frames import at, frame
from tests.gold_model import Found, Row, model

pytestmark = pytest.mark.spark

START = at("2012-12-26")  # the last day of a week
EDGES = [timedelta(minutes=1), timedelta(minutes=4), timedelta(minutes=5), timedelta(hours=1), timedelta(hours=2), timedelta(hours=12)]
MILLISECOND = timedelta(milliseconds=1)
GAPS = [timedelta(0), MILLISECOND, *EDGES, *(edge - MILLISECOND for edge in EDGES), timedelta(days=1), timedelta(days=3)]
AMOUNTS = [Decimal(text) for text in ("0.00", "0.01", "49999.99", "50000.00", "50000.01", "9999999999999999.99")]
ACCOUNTS = [f"A{number:08}" for number in range(1, 6)]
CUSTOMERS = [f"C{number:08}" for number in range(1, 8)]


def silver_rows(chance: random.Random, count: int = 400) -> list[Row]:
    """Rows in an order of arrival that has nothing to do with their times, which often lie at edges and meet."""
    rows: list[Row] = []
    times = {customer: START + timedelta(hours=chance.choice((0, 2, 12, 23))) for customer in CUSTOMERS}
    for number in range(count):
        customer = chance.choice(CUSTOMERS)
        times[customer] += chance.choice(GAPS)
        row = {
            "transaction_id": f"T{number}",
            "account_id": chance.choice([*ACCOUNTS, "A99999999"]),
            "customer_id": customer,
            "event_at": times[customer],
            "event_on": times[customer].date(),
            "type": chance.choice(("Credit", "Debit")),
            "operation": None,
            "amount": chance.choice(AMOUNTS),
            "balance": Decimal(number),
        }
        rows.append(row)
    chance.shuffle(rows)
    return [row | {"_topic": "transactions", "_partition": 0, "_offset": offset, "_batch": 1} for offset, row in enumerate(rows)]


def histories(chance: random.Random, rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """The versions of accounts, bounded by times of rows: as they were at first, and as they are when later messages came."""
    before: list[Row] = []
    after: list[Row] = []
    for account in ACCOUNTS:
        bounds = sorted(chance.sample(sorted({row["event_at"] for row in rows if row["account_id"] == account}), 3))
        districts = [chance.choice((1, 2)), None, chance.choice((1, 2))]
        for known, versions in ((1, before), (3, after)):
            for number, start in enumerate(bounds[:known]):
                ends = bounds[number + 1] if number + 1 < known else None
                versions.append({"account_id": account, "district_id": districts[number], "valid_from": start, "valid_to": ends})
    return [row for row in before if row["account_id"] != ACCOUNTS[-1]], after  # of the last one nothing is known at first


def append(settings: Settings, rows: list[Row]) -> None:
    schema = pa.schema(tables.SILVER_TRANSACTIONS.delta_schema().to_arrow())
    write_deltalake(str(tables.SILVER_TRANSACTIONS.path(settings)), pa.Table.from_pylist(rows, schema), mode="append")


def put_accounts(spark: SparkSession, settings: Settings, versions: list[Row], upto: int) -> None:
    table = tables.SILVER_ACCOUNTS
    values = [tuple(version.get(name) for name in table.columns) for version in versions]
    sinks.merge_rows(frame(spark, table.ddl, values), settings, table, application="silver", upto=upto, on=table.keys)


def read(settings: Settings, table: Table) -> list[dict[str, Any]]:
    return list(control.query(DeltaTable(str(table.path(settings))), "select * from t").to_pylist())


def found(settings: Settings, names: set[str]) -> dict[str, Found]:
    return {
        table.name: Counter(tuple(row[name] for name in table.columns) for row in read(settings, table))
        for table in tables.GOLD
        if table.name in names
    }


def assert_equal(actual: dict[str, Found], expected: dict[str, Found]) -> None:
    for name, rows in expected.items():
        assert rows, name
        assert {"missing": (rows - actual[name]).most_common(3), "extra": (actual[name] - rows).most_common(3)} == {
            "missing": [],
            "extra": [],
        }


def test_gold_of_random_rows_in_random_cuts_is_what_all_rows_give(spark: SparkSession, tmp_path: Path) -> None:
    """Three runs: some rows; two commits of more, with versions of accounts that came late; such versions only. A fourth does nothing."""
    chance = random.Random(6)
    settings = read_settings({"LEDGER_HOME": str(tmp_path), "LEDGER_LARGE_CREDIT": "50000"})
    tables.ensure_tables(settings, (*tables.SILVER, *tables.GOLD, *tables.CONTROL))
    rows = silver_rows(chance)
    before, after = histories(chance, rows)
    first, second = sorted(chance.sample(range(50, len(rows) - 50), 2))

    def check(part: list[Row], versions: list[Row], run: str) -> None:
        job.run(spark, settings, run)
        expected = model(part, versions, Decimal(50000))
        assert_equal(found(settings, set(expected)), expected)

    append(settings, rows[:first])
    put_accounts(spark, settings, before, upto=1)
    check(rows[:first], before, "run-1")

    half = [version for version in after if version["account_id"] in ACCOUNTS[:2]]
    others = [version for version in before if version["account_id"] not in ACCOUNTS[:2]]
    append(settings, rows[first:second])
    append(settings, rows[second:])
    put_accounts(spark, settings, half, upto=2)
    check(rows, [*half, *others], "run-2")

    put_accounts(spark, settings, after, upto=3)
    check(rows, after, "run-3")

    versions = [DeltaTable(str(table.path(settings))).version() for table in tables.GOLD]
    job.run(spark, settings, "run-4")
    assert [DeltaTable(str(table.path(settings))).version() for table in tables.GOLD] == versions
