"""Readers of a release see all tables of one moment, exactly, whatever is written or published meanwhile."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from include.reader import QueryError, ReleaseReader, open_release
from spark_jobs import control
from spark_jobs.lake.tables import BRONZE_TRANSACTIONS, CORRECTIONS, DAILY_TOTALS, DECISIONS, RELEASES, SILVER_TRANSACTIONS
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings
from tests.support.publishing import EVERY_TABLE, gold_follows, one_more, publish
from tests.support.warehouse import at, bronze, settings_of, write

Copy = Callable[[], Settings]


def numbers(reader: ReleaseReader) -> tuple[int, int, int]:
    """Rows of bronze, rows of silver, and the transactions that gold tells, asked one after the other."""
    queries = (
        "select count(*) as n from bronze.transactions",
        "select count(*) as n from silver.transactions",
        "select sum(transactions) as n from gold.daily_totals",
    )
    bronze_rows, silver_rows, told = (reader.sql(query)["n"][0].as_py() for query in queries)
    return bronze_rows, silver_rows, told


def test_a_release_stays_as_it_was(copy_home: Copy) -> None:
    settings = copy_home()
    assert publish(settings) == 1
    first = open_release(settings)
    one_more(settings, 3)
    gold_follows(settings, 3)
    assert numbers(first) == numbers(open_release(settings)) == (6, 4, 4)
    assert publish(settings, last_batch=3) == 2
    assert numbers(first) == numbers(open_release(settings, 1)) == (6, 4, 4)
    second = open_release(settings)
    assert (first.release_id, second.release_id) == (1, 2)
    assert numbers(second) == (7, 5, 5)
    assert first.tables == [table.name for table in EVERY_TABLE]
    assert {name: first.table(name).version() for name in first.tables} == first.release.versions
    with pytest.raises(LedgerError, match=r"release 1 has no table gold\.totals: expected one of bronze\.accounts, "):
        first.table("gold.totals")


def test_a_query_goes_over_layers_and_keeps_every_digit(copy_home: Copy) -> None:
    settings = copy_home()
    publish(settings)
    reader = open_release(settings)
    query = """
        select d.type, d.amount, sum(s.amount) as silver, d.amount * 1.1 as more
        from gold.daily_totals d join silver.transactions s on s.type = d.type group by d.type, d.amount order by d.type"""
    found = reader.sql(query)
    big, small = Decimal("9007199254741093.10"), Decimal("40.01")
    assert found.to_pylist() == [
        {"type": "Credit", "amount": big, "silver": big, "more": Decimal("9907919180215202.410")},
        {"type": "Debit", "amount": small, "silver": small, "more": Decimal("44.011")},
    ]
    rules = reader.sql("select key, value, broken_rules from silver.transactions_quarantine")
    assert rules.schema.types == [pa.binary(), pa.binary(), pa.list_(pa.string())]  # no views: pyarrow cannot join or filter them
    assert rules.to_pylist() == [{"key": b"T9", "value": b"{", "broken_rules": ["parseable"]}]


def test_of_bronze_only_batches_of_the_release_are_seen(copy_home: Copy) -> None:
    settings = copy_home()
    write(settings, {"bronze.transactions": [bronze(at(0, 5, 3), b"T", b"{}")]})
    publish(settings, last_batch=2)  # the version that was judged holds batch 3 too
    reader = open_release(settings)
    assert reader.table("bronze.transactions").count() == 7
    assert reader.sql("select max(_batch) as last, count(*) as n from bronze.transactions").to_pylist() == [{"last": 2, "n": 6}]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select * from gold_daily_totals", "table 'gold_daily_totals' not found: tables are named as gold.daily_totals"),
        ("select * from control.corrections", "table 'control.corrections' not found: tables are named"),
        ("select * from whole", "table 'whole' not found"),
        ("select * from '/etc/passwd'", "table '/etc/passwd' not found"),
        ("select colour from gold.daily_totals", "No field named colour. Valid fields are gold.daily_totals.window_start"),
        ("select 1 / (transactions - 2) from gold.daily_totals", "Divide by zero"),
        ("copy gold.daily_totals to '{home}/x.csv' stored as csv", "found 'copy', expected SELECT"),
    ],
)
def test_a_query_that_cannot_be_answered_is_told_in_one_line(query: str, message: str, good_release: Settings) -> None:
    home = good_release.home
    before = set(home.rglob("*"))
    with pytest.raises(QueryError) as raised:
        open_release(good_release).sql(query.format(home=home))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert set(home.rglob("*")) == before


def test_a_query_leaves_the_other_queries_alone(good_release: Settings) -> None:
    reader = open_release(good_release)
    with pytest.raises(QueryError):
        reader.sql("select 1 as amount into gold.daily_totals")
    assert numbers(reader) == (6, 4, 4)


def test_without_a_release_there_is_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"nothing was released: found no release in .*control/releases") as raised:
        open_release(settings_of(tmp_path))
    assert raised.value.exit_code == 1


def test_a_version_that_is_gone_is_told(copy_home: Copy) -> None:
    settings = copy_home()
    rows = [{"release_id": 1, "released_at": None, "table": DAILY_TOTALS.name, "version": 7, "rows": 0}]
    control.append(settings, RELEASES, rows)
    with pytest.raises(LedgerError, match=r"release 1: version 7 of gold\.daily_totals cannot be opened \(.*\): open another release"):
        open_release(settings).sql("select * from gold.daily_totals")


def heads(settings: Settings) -> tuple[int, int]:
    """Silver's rows and the transactions that gold tells, of the tables as they are, without a release."""
    silver, gold = (DeltaTable(str(table.path(settings))) for table in (SILVER_TRANSACTIONS, DAILY_TOTALS))
    return silver.count(), control.query(gold, "select cast(sum(transactions) as bigint) as n from t")["n"][0].as_py()


def test_a_reader_never_sees_tables_of_two_moments(copy_home: Copy) -> None:
    """One thread reads all the time while another writes table after table and publishes, five times."""
    settings = copy_home()
    publish(settings)
    seen: list[tuple[ReleaseReader, tuple[int, int, int]]] = []
    torn: set[tuple[int, int]] = set()
    is_over, again = threading.Event(), threading.Condition()

    def read() -> None:
        try:
            while not is_over.is_set():
                reader = open_release(settings)
                found, (silver, gold) = numbers(reader), heads(settings)
                torn.update({(silver, gold)} if silver != gold else ())
                with again:
                    seen.append((reader, found))
                    again.notify_all()
        finally:
            is_over.set()
            with again:
                again.notify_all()

    def wait_for_a_read() -> None:
        """Until one has begun and ended since now: no state of the tables goes unseen."""
        with again:
            enough = len(seen) + 2
            assert again.wait_for(lambda: len(seen) >= enough or is_over.is_set(), timeout=60)

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        for batch in range(3, 8):
            for step in (one_more, gold_follows, publish):
                step(settings, batch)
                wait_for_a_read()
        is_over.set()
        reading.result()
    for reader, found in seen:
        more = reader.release_id - 1
        assert found == (6 + more, 4 + more, 4 + more)
        assert reader.release.rows[BRONZE_TRANSACTIONS.name] == 6 + more
    numbers_seen = [reader.release_id for reader, _ in seen]
    assert numbers_seen == sorted(numbers_seen)
    assert set(numbers_seen) == {1, 2, 3, 4, 5, 6}
    assert torn == {(5, 4), (6, 5), (7, 6), (8, 7), (9, 8)}  # without releases, silver was ahead of gold once in every round


def test_many_rows_come_in_small_batches(good_release: Settings) -> None:
    schema, batches = open_release(good_release).batches("select value, cast(value as decimal(18,2)) as amount from range(100000)")
    sizes = [batch.num_rows for batch in batches]
    assert (sum(sizes), schema.names) == (100_000, ["value", "amount"])
    assert max(sizes) <= 8192


def test_types_of_every_table_are_those_of_the_tables(good_release: Settings) -> None:
    reader = open_release(good_release)
    for table in EVERY_TABLE:
        expected: Any = pa.schema(table.delta_schema().to_arrow())
        assert reader.sql(f"select * from {table.name} limit 1").schema.equals(expected), table.name


def test_what_people_decided_can_be_asked_for_and_what_holds_values_of_persons_cannot(copy_home: Copy) -> None:
    settings = copy_home()
    publish(settings)
    decided = {"decided_at": datetime(2026, 3, 1, tzinfo=UTC), "choice": "wait", "who": "Ada", "why": "to see"}
    control.append(settings, DECISIONS, [decided])
    control.append(settings, CORRECTIONS, [{"_topic": "customers", "value": b"Jan Novak"}])
    reader = open_release(settings)
    assert reader.sql("select choice, who, why from control.decisions").to_pylist() == [{"choice": "wait", "who": "Ada", "why": "to see"}]
    assert reader.sql("select count(*) as n from control.releases").to_pylist() == [{"n": len(EVERY_TABLE)}]
    with pytest.raises(QueryError, match="corrections' not found"):
        reader.sql("select * from control.corrections")
