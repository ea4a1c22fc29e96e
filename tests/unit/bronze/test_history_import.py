"""History from files: once, however often it is imported; and what is refused, with nothing written."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spark_jobs import control
from spark_jobs.bronze.imports import job as imports
from spark_jobs.lake import tables
from spark_jobs.run import main
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import Settings, read_settings

HEADER = "transactionId,accountId,customerId,eventTime,type,operation,amount,balance\n"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    environ = {"LEDGER_HOME": str(tmp_path / "home")}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    settings = read_settings(environ)
    tables.ensure_tables(settings, (*tables.BRONZE, *tables.CONTROL))
    return settings


def lines(*numbers: int) -> str:
    return "".join(f"T{number},A00000001,C00000001,1357028613001,Credit,,{number}.10,1\n" for number in numbers)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


def load(settings: Settings, path: Path, name: str = "old", topic: str = "transactions") -> list[dict[str, Any]]:
    """Import a file; returns the rows of the bronze table, in order."""
    table = next(table for table in tables.BRONZE if table.name == f"bronze.{topic}")
    imports.run(settings, table, imports.Source(name, file=path))
    return rows_of(settings, table)


def rows_of(settings: Settings, table: tables.Table = tables.BRONZE_TRANSACTIONS) -> list[dict[str, Any]]:
    delta = DeltaTable(str(table.path(settings)))
    rows: list[dict[str, Any]] = control.query(delta, "select * from t order by _batch, _topic, _offset").to_pylist()
    return rows


def places(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["_topic"], row["_partition"], row["_offset"], row["_batch"], row["key"]) for row in rows]


def version(settings: Settings) -> int:
    return DeltaTable(str(tables.BRONZE_TRANSACTIONS.path(settings))).version()


def test_a_file_comes_in_once_and_what_it_gains_at_its_end_as_one_more_batch(settings: Settings, tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", HEADER + lines(1, 2))
    first = [("file:old", 0, 0, 1, b"T1"), ("file:old", 0, 1, 1, b"T2")]
    assert places(load(settings, file)) == first
    assert places(load(settings, file)) == first
    assert version(settings) == 1
    write(file, HEADER + lines(1, 2, 3))
    assert places(load(settings, file)) == [*first, ("file:old", 0, 2, 2, b"T3")]
    assert [row["_offset"] for row in load(settings, file, name="other") if row["_topic"] == "file:other"] == [0, 1, 2]
    assert {row["_batch"] for row in rows_of(settings)} == {1, 2, 3}


def test_rows_that_were_lost_come_back_alone(settings: Settings, tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", HEADER + lines(*range(10)))
    before = load(settings, file)
    DeltaTable(str(tables.BRONZE_TRANSACTIONS.path(settings))).delete("_offset in (3, 4)")
    after = load(settings, file)
    assert sorted((row["_offset"], row["key"]) for row in after) == [(row["_offset"], row["key"]) for row in before]
    assert {row["_offset"] for row in after if row["_batch"] == 2} == {3, 4}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (HEADER + lines(1, 5, 3), "row 2 (_offset 1) is another than the one that was imported"),
        (HEADER + lines(0, 1, 2, 3), "row 1 (_offset 0) is another"),
        (HEADER + lines(1, 2), "row 3 (_offset 2) was imported and is gone now"),
        (HEADER, "row 1 (_offset 0) was imported and is gone now"),
    ],
)
def test_a_file_whose_earlier_rows_changed_is_refused(settings: Settings, tmp_path: Path, text: str, told: str) -> None:
    file = write(tmp_path / "a.csv", HEADER + lines(1, 2, 3))
    before = load(settings, file)
    with pytest.raises(SettingsError) as refused:
        load(settings, write(file, text + lines(9) * (text != HEADER and "gone" not in told)))
    assert told in str(refused.value)
    assert rows_of(settings) == before


def test_what_a_csv_file_may_be(settings: Settings, tmp_path: Path) -> None:
    body = '\ufeffcustomerId,city,fullName,note\r\nC1,"Two\r\nlines, a ""quote""",Ann,\r\n\r\nC2,Z\udcfcrich,,x\r\n'
    rows = load(settings, write(tmp_path / "a.csv", body), topic="customers")
    values = [row["value"] for row in rows]
    assert json.loads(values[0])["city"] == 'Two\r\nlines, a "quote"'
    assert [json.loads(values[0])[name] for name in ("fullName", "sex", "note")] == ["Ann", None, None]
    assert b'"city":"Z\xfcrich","state"' in values[1]
    assert [row["key"] for row in rows] == [b"C1", b"C2"]
    assert len({row["_timestamp"] for row in rows}) == 1


def test_a_folder_is_read_in_the_order_of_names(settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "history"
    write(folder / "2013-01-02/b.csv", "amount,transactionId\n2.50,T2\n")
    write(folder / "_SUCCESS", "")
    write(folder / ".hidden/x.csv", "")
    (folder / "2013-01-01").mkdir()
    frame = {
        "transaction_id": ["T1", None],
        "amount": [Decimal("1.10"), None],
        "event_at": pa.array([1357028613001, None], pa.timestamp("ms")),
    }
    pq.write_table(pa.table({**frame, "tags": [["a"], None]}), folder / "2013-01-01/a.parquet")
    rows = load(settings, folder)
    assert [row["key"] for row in rows] == [b"T1", None, b"T2"]
    assert b'"eventTime":1357028613001,"eventTimeFormatted":"2013-01-01 08:23:33.001"' in rows[0]["value"]
    assert b'"amount":1.10,' in rows[0]["value"]
    assert b'"tags":"[\\"a\\"]"' in rows[0]["value"]
    assert b'"amount":2.50,' in rows[2]["value"]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.csv", "", "a.csv: found an empty file"),
        ("a.csv", HEADER, "found no row"),
        ("a.csv", "trans_id,amount\nT1,2\n", "a.csv: found no column transactionId among trans_id, amount"),
        ("a.csv", HEADER + lines(1) + 'T2,"open\n' + lines(3), "a.csv line 4: cannot be read as CSV"),
        ("a.csv", HEADER + lines(1) + "T2,A1\n", "a.csv row 2: found 2 cells, expected 8"),
        ("a.parquet", "PAR1 no", "a.parquet: cannot be read as Parquet"),
        ("a.csv.gz", "x", "expected files that end in .csv or .parquet only"),
        ("a.txt", "x", "expected files that end in .csv or .parquet only"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(settings: Settings, tmp_path: Path, name: str, text: str, told: str) -> None:
    file = write(tmp_path / "in" / name, text)
    for path in (file, file.parent):
        with pytest.raises(SettingsError) as refused:
            load(settings, path)
        assert told in str(refused.value)
    assert version(settings) == 0


def test_a_folder_without_files_or_that_is_not_there_is_refused(settings: Settings, tmp_path: Path) -> None:
    for path, told in ((tmp_path, "found no file in"), (tmp_path / "nowhere", "found no")):
        with pytest.raises(SettingsError, match=told):
            load(settings, path if path != tmp_path else write(tmp_path / "empty/_x", "").parent)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--topic transactions --name a/b --file x.csv", "--name: found 'a/b'"),
        (f"--topic transactions --name {'x' * 101} --file x.csv", "expected 1 to 100 letters"),
        ("--topic transactions --name x --postgres t", "expected both"),
        ("--topic transactions --name x --file a.csv --order-by b", "expected both"),
    ],
)
def test_arguments_that_cannot_be_used(settings: Settings, words: str, told: str, caplog: pytest.LogCaptureFixture) -> None:
    assert main(["import", *words.split()]) == 2
    assert told in caplog.text


@pytest.mark.parametrize(
    "words", ["--topic x --name y --file z", "--topic accounts --name y", "--topic accounts --name y --file a --postgres b"]
)
def test_a_command_line_that_is_none(words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["import", *words.split()])
    assert ended.value.code == 2
