"""The gold job on random silver rows, which come, change and go: every table is what plain Python makes of the rows that are there."""

import random
import shutil
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from spark_jobs import control
from spark_jobs.gold import job
from spark_jobs.gold.tables import district_minutes
from spark_jobs.lake import sinks, tables
from spark_jobs.lake.tables import Table
from spark_jobs.lake.txn import Txn, applied
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support import aging, kill_points
from tests.support.frames import at, frame
from tests.support.gold_model import Row, model
from tests.support.lake import assert_equal, gold_of

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


def of_customers(chance: random.Random, rows: list[Row]) -> list[Row]:
    """Two versions of every customer but the last; the first one begins at a row of theirs."""
    found = []
    for name in CUSTOMERS[:-1]:
        first, second = sorted(chance.sample(sorted({row["event_at"] for row in rows if row["customer_id"] == name}), 2))
        for city, start, end in (("Ely", first, second), ("Rye", second, None)):
            found.append({"customer_id": name, "full_name": "A", "city": city, "state": "NM", "valid_from": start, "valid_to": end})
    return found


class Silver:
    """Silver's tables of a test: what is in silver.transactions now, and ways to change it, a commit each."""

    def __init__(self, spark: SparkSession, settings: Settings, chance: random.Random, rows: list[Row]) -> None:
        self.spark, self.settings, self.chance = spark, settings, chance
        self.new, self.rows = list(rows), dict[str, Row]()
        self._commits = 0

    def append(self, count: int) -> None:
        """New rows, as the silver job writes them."""
        schema = pa.schema(tables.SILVER_TRANSACTIONS.delta_schema().to_arrow())
        added = self._take(count)
        self._add(added)
        write_deltalake(str(tables.SILVER_TRANSACTIONS.path(self.settings)), pa.Table.from_pylist(added, schema), mode="append")

    def change(self, count: int, on: tuple[str, ...]) -> None:
        """Rows come at old places, other rows become the first of their ids, rows go: one MERGE by these keys."""
        ids = self.chance.sample(sorted(self.rows), 2 * count)
        gone = [self.rows.pop(id_) for id_ in ids]
        others = [row | {"transaction_id": id_} for row, id_ in zip(self._take(count), ids[:count], strict=True)]
        added = [row | {"_batch": 0} for row in (*others, *self._take(count))]
        self._add(added)
        places = {tuple(row[name] for name in on) for row in added}
        marked = [row | {"_is_gone": True} for row in gone if tuple(row[name] for name in on) not in places]
        self._merge(tables.SILVER_TRANSACTIONS, [*marked, *(row | {"_is_gone": False} for row in added)], on)

    def put(self, table: Table, versions: list[Row]) -> None:
        """Versions of accounts or customers, new or changed."""
        self._merge(table, [row | {"_is_gone": False} for row in versions], table.keys)

    def _take(self, count: int) -> list[Row]:
        return [self.new.pop() for _ in range(count)]

    def _add(self, rows: list[Row]) -> None:
        self.rows |= {row["transaction_id"]: row for row in rows}

    def _merge(self, table: Table, rows: list[Row], on: tuple[str, ...]) -> None:
        names, self._commits = [*table.columns, "_is_gone"], self._commits + 1
        changed = frame(self.spark, f"{table.ddl}, _is_gone boolean", [tuple(row.get(name) for name in names) for row in rows])
        sinks.merge_rows(changed, self.settings, table, Txn("test", self._commits), on=on, deletes_where="s._is_gone")


def follow(spark: SparkSession, home: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three runs: some rows; new and changed ones, killed between two tables; the same again, when silver has moved on.

    Of every second seed silver has then only gained rows, of the others it was changed in place once more.
    """
    chance = random.Random(seed)
    settings = read_settings({"LEDGER_HOME": str(home), "LEDGER_LARGE_CREDIT": "50000"})
    tables.ensure_tables(settings, (*tables.SILVER, *tables.GOLD, *tables.CONTROL))
    rows = silver_rows(chance)
    before, after = histories(chance, rows)
    customers = of_customers(chance, rows)
    silver = Silver(spark, settings, chance, rows)

    def check(accounts: list[Row], customers: list[Row]) -> None:
        assert_equal(gold_of(settings), model(list(silver.rows.values()), accounts, customers, Decimal(50000)))

    silver.append(chance.randrange(100, 150))
    silver.put(tables.SILVER_ACCOUNTS, before)
    job.run(spark, settings, "run-1")
    check(before, [])

    silver.append(chance.randrange(1, 40))
    silver.change(chance.randrange(1, 15), on=tables.SILVER_TRANSACTIONS.keys)
    silver.change(chance.randrange(1, 15), on=("_topic", "_partition", "_offset"))
    silver.append(chance.randrange(1, 40))
    with monkeypatch.context() as patch:
        kill_points.reach(patch, killed_at(f"{chance.choice(('before', 'after'))} {chance.choice(tables.GOLD).name}"))
        with pytest.raises(LedgerError, match="killed"):
            job.run(spark, settings, "run-2")
    silver.append(chance.randrange(1, 40))
    if seed % 2:
        silver.change(chance.randrange(1, 15), on=tables.SILVER_TRANSACTIONS.keys)
    silver.put(tables.SILVER_ACCOUNTS, after)
    silver.put(tables.SILVER_CUSTOMERS, customers)
    job.run(spark, settings, "run-3")
    check(after, customers)

    versions = [DeltaTable(str(table.path(settings))).version() for table in tables.GOLD]
    job.run(spark, settings, "run-4")
    assert [DeltaTable(str(table.path(settings))).version() for table in tables.GOLD] == versions
    followed = {table.name: DeltaTable(str(table.path(settings))).version() for table in tables.FOLLOWERS}
    assert control.versions_read_by_gold(settings) == followed

    # A batch of bad rows only: silver.transactions stays, and gold answers for that batch all the same.
    control.append(
        settings, tables.BATCHES, [{"job": "silver", "table": "silver.transactions", "first_batch": 9, "last_batch": 9, "output": 0}]
    )
    removed = chance.choice(tables.GOLD)  # as one is that a new release of the pipeline brings
    shutil.rmtree(removed.path(settings))
    tables.ensure_tables(settings, [removed])
    for table in tables.FOLLOWERS:
        forget_commits(table.path(settings))
    job.run(spark, settings, "run-bad")
    assert {control.last_batch(settings, "gold", table.name) for table in tables.GOLD} == {9}
    check(after, customers)


def forget_commits(path: Path) -> None:
    """As maintenance does when commits are old: the table is what it is, and how it came to be is not told any more."""
    delta = DeltaTable(str(path))
    delta.create_checkpoint()
    for version in range(delta.version()):
        (path / "_delta_log" / f"{version:020}.json").unlink(missing_ok=True)


def killed_at(point: str) -> Callable[[str], None]:
    """A kill point that stops the job with an error: in a process of its own it would end the process."""

    def stop(name: str) -> None:
        if name == point:
            raise RuntimeError(f"killed {name}")

    return stop


def test_after_a_roll_back_gold_continues_from_the_silver_that_it_left(spark: SparkSession, tmp_path: Path) -> None:
    """By other transaction identifiers and checkpoints. What happened to accounts before it is not taken again."""
    chance = random.Random(1)
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    table, dimension = district_minutes.TABLE, tables.SILVER_ACCOUNTS
    tables.ensure_tables(settings, (tables.SILVER_TRANSACTIONS, dimension, table))
    rows = silver_rows(chance)
    before, after = histories(chance, rows)
    silver = Silver(spark, settings, chance, rows)
    silver.append(100)
    silver.put(dimension, before)
    control.append(settings, tables.DECISIONS, [{"choice": "roll back", "generation": 2}])
    for application in ("gold/2", f"gold/2 {dimension.name}"):
        sinks.merge_rows(frame(spark, table.ddl, []), settings, table, Txn(application, 1), on=table.keys)

    job.follow_dimension(spark, settings, dimension, table)
    assert not settings.checkpoints.exists()
    silver.put(dimension, [version for version in after if version["account_id"] in ACCOUNTS[:2]])
    job.follow_dimension(spark, settings, dimension, table)
    assert applied(settings, table, f"gold/2 {dimension.name}") == 2
    present = control.query(DeltaTable(str(table.path(settings))), "select sum(transactions) as n from t")["n"][0].as_py()
    assert 0 < present < 100  # minutes of two accounts only


def test_gold_that_is_ahead_of_silver_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Silver was restored from an older copy, and gold was not: later commits of silver would be taken for known ones."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    tables.ensure_tables(settings, (*tables.SILVER, *tables.GOLD, *tables.CONTROL))
    aging.follow(settings, 2)
    with pytest.raises(LedgerError, match=r"silver\.transactions is older than gold: found it at version 0, and gold\.enriched"):
        job.follow_transactions(spark, settings)


def test_gold_follows_rows_that_come_change_and_go(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow(spark, tmp_path, 102, monkeypatch)  # killed after the first table


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_gold_follows_whatever_happens(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    follow(spark, tmp_path, seed, monkeypatch)
