"""History in a real Postgres table enters bronze with the digits that Postgres has, in the order of a unique column."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from include.stack import postgres
from include.stack.shutdown import stop_parts
from spark_jobs.bronze.imports import job as imports
from spark_jobs.lake import tables
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings, endpoints_file, read_settings
from tests.support.ledger import Ledger, Row

pytestmark = pytest.mark.integration

TABLE = """create table "Old Ledger" (id text, transaction_id text, event_at timestamptz, amount numeric, balance double precision,
    type text, open boolean)"""
ROWS = """insert into "Old Ledger" values
    ('b', 'T2', '2013-01-01 10:23:33.0019+02', 12345678901234567890.10, 0.1, 'Credit', true),
    ('a', 'T1', null, 'NaN', 1e300, '', null), ('B', 'T0', 'infinity', 1.50, -0.25, 'Débit', false)"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("postgres")
    try:
        if started := postgres.launch(home):
            postgres.wait(home, started)
        yield home
    finally:
        stop_parts(home, None, lambda _: None)


@pytest.fixture(scope="module")
def url(home: Path) -> str:
    found = postgres.own_url(home, with_password=True) or ""
    execute(found, TABLE)
    return found


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "home")
    tables.ensure_tables(ledger.settings, (*tables.BRONZE, *tables.CONTROL))
    return ledger


def execute(url: str, *statements: str) -> None:
    connection = psycopg2.connect(url)
    try:
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
    finally:
        connection.close()


def settings_with(ledger: Ledger, url: str) -> Settings:
    return read_settings(ledger.environment(LEDGER_POSTGRES_URL=url))


def load(ledger: Ledger, url: str, table: str = "Old Ledger", order_by: str = "id") -> list[Row]:
    source = imports.Source("old", table=table, order_by=order_by)
    imports.run(settings_with(ledger, url), tables.BRONZE_TRANSACTIONS, source)
    return sorted(ledger.rows(tables.BRONZE_TRANSACTIONS), key=lambda row: int(row["_offset"]))


def fields(row: Row) -> dict[str, Any]:
    return dict(json.loads(row["value"], parse_float=Decimal, parse_int=Decimal))


def test_a_table_comes_in_once_with_all_its_digits(ledger: Ledger, url: str) -> None:
    execute(url, 'truncate "Old Ledger"', ROWS)
    rows = load(ledger, url)
    assert [(row["key"], row["_topic"], row["_offset"]) for row in rows] == [
        (b"T0", "file:old", 0),
        (b"T1", "file:old", 1),
        (b"T2", "file:old", 2),
    ]
    zero, one, two = map(fields, rows)
    assert (two["amount"], two["balance"], two["eventTime"]) == (Decimal("12345678901234567890.10"), Decimal("0.1"), 1357028613001)
    assert (one["amount"], one["balance"], one["eventTime"], one["type"], one["open"]) == ("NaN", Decimal("1e300"), None, "", None)
    assert (zero["eventTime"], zero["eventTimeFormatted"], zero["type"], zero["open"]) == (None, "infinity", "Débit", "false")
    execute(url, """insert into "Old Ledger" values ('c', 'T3')""")
    assert [row["_batch"] for row in load(ledger, url)] == [1, 1, 1, 2]
    execute(url, """insert into "Old Ledger" values ('aa', 'T4')""")
    with pytest.raises(SettingsError, match=r"row 3 \(_offset 2\) is another"):
        load(ledger, url)


def test_an_order_that_is_none_is_refused(ledger: Ledger, url: str) -> None:
    execute(url, 'truncate "Old Ledger"', ROWS, """insert into "Old Ledger" values ('b', 'T9')""")
    with pytest.raises(SettingsError, match=r"row 4 has a value that the row before has, too in Old Ledger[.]id"):
        load(ledger, url)
    with pytest.raises(SettingsError, match=r"row 4 has no value in Old Ledger[.]type"):
        load(ledger, url, order_by="type")
    assert ledger.rows(tables.BRONZE_TRANSACTIONS) == []


@pytest.mark.parametrize(
    ("table", "order_by", "told"),
    [
        ("nosuch", "id", 'relation "nosuch" does not exist'),
        ('x"; drop table y; --', "id", "does not exist"),
        ("Old Ledger", "nosuch", "found no column 'nosuch' in Old Ledger"),
    ],
)
def test_a_table_or_column_that_is_not_there(ledger: Ledger, url: str, table: str, order_by: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        load(ledger, url, table, order_by)


def test_no_postgres(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="Postgres does not answer") as refused:
        load(ledger, "postgresql://ledger:secret@127.0.0.1:9/ledger")
    assert "secret" not in str(refused.value)
    with pytest.raises(SettingsError, match="LEDGER_POSTGRES_URL is not set"):
        load(ledger, "")


def test_the_stacks_own_postgres_needs_no_password_in_its_address(home: Path, url: str) -> None:
    execute(url, 'truncate "Old Ledger"', ROWS)
    endpoints_file(home).write_text(json.dumps({"postgres_url": postgres.own_url(home)}))
    own = Ledger(home)
    tables.ensure_tables(own.settings, (*tables.BRONZE, *tables.CONTROL))
    assert len(load(own, postgres.own_url(home) or "")) == 3
