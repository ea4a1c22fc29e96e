"""A warehouse that an older version of the project made is brought up by additions; any other one is refused, and so is a newer one."""

import hashlib
import logging
import shutil
from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from include.quality_page import verdicts as page
from include.quality_page.cards import all_cards
from include.quality_page.measures import measure
from include.quality_page.reading import Warehouse
from include.quality_page.status import read_status
from include.reader.__main__ import main as sql
from spark_jobs import control
from spark_jobs.lake import leases, schema, tables
from spark_jobs.lake.schema import SCHEMA_VERSION, ensure_tables, version_file
from spark_jobs.lake.tables import BATCHES, CONTROL, EVERY, Table
from spark_jobs.run import main
from spark_jobs.runtime.errors import LeaseHeld
from spark_jobs.runtime.settings import Settings, read_settings

SHAPE = "69f4"  # of the tables at SCHEMA_VERSION
OF_EACH_LAYER = (tables.BRONZE_CUSTOMERS, tables.SILVER_TRANSACTIONS, tables.ACCOUNT_DAYS, tables.LIVE_REFUSED)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path / "home"))
    return read_settings()


def columns(settings: Settings, table: Table) -> list[str]:
    return [field.name for field in DeltaTable(str(table.path(settings))).schema().fields]


def value(kind: pa.DataType) -> Any:
    """Some value of a type."""
    if pa.types.is_list(kind):
        return [value(kind.value_type)]
    if pa.types.is_struct(kind):
        return {field.name: value(field.type) for field in kind}
    by_type = {pa.string(): "x", pa.binary(): b"x", pa.int64(): 1, pa.int32(): 1, pa.bool_(): True, pa.date32(): date(2026, 1, 1)}
    return by_type.get(kind, Decimal(1) if pa.types.is_decimal(kind) else NOW)


def a_row(table: Table) -> pa.Table:
    wanted = pa.schema(table.delta_schema().to_arrow())
    return pa.Table.from_pylist([{field.name: value(field.type) for field in wanted}], wanted)


def make_older(settings: Settings, table: Table, without: Iterable[str]) -> None:
    """The table as a version of the project made it that did not know some columns, with a row."""
    row = a_row(table).drop_columns(list(without))
    shutil.rmtree(table.path(settings), ignore_errors=True)
    path = str(table.path(settings))
    delta = DeltaTable.create(path, row.schema, partition_by=list(table.partitioned_by), name=table.name, configuration=table.properties)
    write_deltalake(delta, row, mode="append")


@pytest.mark.parametrize("table", CONTROL, ids=lambda table: table.name)
def test_a_control_table_that_lacks_a_column_gets_it(settings: Settings, table: Table) -> None:
    for name in {table.columns[0], table.columns[len(table.columns) // 2], table.columns[-1]}:
        make_older(settings, table, [name])
        (old,) = control.read(settings, table).to_pylist()  # a reader does not change it
        assert old == a_row(table).to_pylist()[0] | {name: None}
        assert name not in columns(settings, table)
        control.append(settings, table, a_row(table))
        assert set(columns(settings, table)) == set(table.columns)
        rows = control.read(settings, table).to_pylist()
        assert sorted(rows, key=str) == sorted([old, *a_row(table).to_pylist()], key=str)


@pytest.mark.parametrize("table", OF_EACH_LAYER, ids=lambda table: table.name)
def test_a_table_of_a_layer_gets_the_columns_that_it_lacks(settings: Settings, table: Table) -> None:
    optional = [name for name in table.columns if name not in table.partitioned_by]
    make_older(settings, table, [optional[1], optional[-1]])
    before = DeltaTable(str(table.path(settings)))
    ensure_tables(settings, [table])
    after = DeltaTable(str(table.path(settings)))
    assert after.version() == before.version() + 1
    assert set(columns(settings, table)) == set(table.columns)
    assert after.metadata().configuration == before.metadata().configuration
    assert control.query(after, "select * from t").num_rows == 1
    ensure_tables(settings, [table])
    assert DeltaTable(str(table.path(settings))).version() == after.version()


def test_columns_are_added_under_the_tables_lease(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "WAIT_SECONDS", 0.0)
    make_older(settings, BATCHES, ["_read_versions"])
    with leases.hold(settings, [BATCHES], owner="another"):
        with pytest.raises(LeaseHeld, match=r"control\.batches is being written by another"):
            ensure_tables(settings, [BATCHES])
        assert "_read_versions" not in columns(settings, BATCHES)
        ensure_tables(settings, [BATCHES], has_lease=True)
    assert "_read_versions" in columns(settings, BATCHES)


def test_every_job_brings_an_older_warehouse_up_first(settings: Settings) -> None:
    for table in EVERY:
        make_older(settings, table, [name for name in table.columns[1:] if name not in table.partitioned_by][-1:])
    assert not version_file(settings).exists()
    main(["decide", "wait", "--who", "Ada", "--why", "to see"])
    assert version_file(settings).read_text() == f"{SCHEMA_VERSION}\n"
    assert {table.name: set(columns(settings, table)) for table in EVERY} == {table.name: set(table.columns) for table in EVERY}


def test_migrate_says_that_an_older_warehouse_fits_now(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    make_older(settings, BATCHES, ["_read_versions"])
    assert main(["migrate"]) == 0
    assert "_read_versions" in columns(settings, BATCHES)
    assert f"schema version {SCHEMA_VERSION}, 1 tables and 0 live states fit this code" in caplog.text


def test_readers_take_an_older_warehouse_as_it_is(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for table in CONTROL:
        make_older(settings, table, table.columns[-2:])
    for table in (*tables.SILVER, *tables.GOLD, *tables.BRONZE):
        make_older(settings, table, [name for name in table.columns if name not in table.partitioned_by][-1:])
    before = {
        table: DeltaTable(str(table.path(settings))).version() for table in EVERY if table not in (*tables.LIVE, *tables.SILVER_INDEXES)
    }
    warehouse = Warehouse(settings)
    measure(warehouse)
    page.newest(warehouse)
    read_status(warehouse)
    all_cards(warehouse, {})
    assert not warehouse.problems
    for words in (["explain", "--table", "gold.daily_totals", "--where", "true"], ["export", "--table", "x", "--to", "y"]):
        assert main(words) in (1, 2)
    assert sql(["--query", "select * from gold.daily_totals"]) in (0, 1)
    assert not [record for record in caplog.records if record.exc_info or " failed: " in record.getMessage()]
    assert {table: DeltaTable(str(table.path(settings))).version() for table in before} == before


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a column of another type": ({"input": "string"}, "control.batches has column input of type string, expected long"),
    "a column that is not known": ({"colour": "string"}, "control.batches has column colour, expected none of that name"),
    "other partitions": ({"partitioned by": ["job"]}, "control.batches is partitioned by ['job'], expected []"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_additions_cannot_mend_is_refused_in_one_line(settings: Settings, name: str, caplog: pytest.LogCaptureFixture) -> None:
    change, said = REFUSED[name]
    kinds = {field.name: field.type for field in a_row(BATCHES).schema} | {column: pa.string() for column in change if " " not in column}
    shape = pa.schema([(column, kind) for column, kind in kinds.items() if column != "_read_versions"])
    deltalake.DeltaTable.create(str(BATCHES.path(settings)), shape, partition_by=change.get("partitioned by"))
    assert main(["migrate"]) == 1
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert said in line
    assert "use the version of the project that wrote it" in line
    assert DeltaTable(str(BATCHES.path(settings))).version() == 0  # nor was the column that it lacks added


@pytest.mark.parametrize(
    ("text", "found"), [(str(SCHEMA_VERSION + 1), f"schema version {SCHEMA_VERSION + 1}, expected"), ("x", "found 'x'")]
)
def test_a_newer_warehouse_is_refused_by_every_command(
    settings: Settings, text: str, found: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    version_file(settings).parent.mkdir(parents=True)
    version_file(settings).write_text(text)
    commands = (["silver"], ["gold"], ["gate", "gold"], ["release"], ["audit"], ["maintenance"], ["migrate"], ["bronze", "--available-now"])
    for command in (*commands, ["explain", "--table", "gold.daily_totals", "--where", "true"], ["live"]):
        caplog.clear()
        assert main(command) == 1
        (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert found in line
    assert sql(["--query", "select 1"]) == 1
    assert found in capsys.readouterr().err
    assert [path.name for path in settings.warehouse.iterdir()] == ["schema_version"]


def test_the_shape_of_the_tables_has_a_version() -> None:
    """Whoever changes a column raises the version, and puts the new fingerprint here."""
    text = "\n".join(f"{table.name} {' '.join(table.ddl.split())} {table.partitioned_by}" for table in sorted(EVERY, key=lambda t: t.name))
    assert (SCHEMA_VERSION, hashlib.sha256(text.encode()).hexdigest()[:4]) == (4, SHAPE)
