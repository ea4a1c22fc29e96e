"""A person is erased: from every table, version, file and release, also when the process dies, and nobody else's rows change."""

import json
import zipfile
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from spark_jobs import run
from spark_jobs.control import erasures
from spark_jobs.lake import tables
from spark_jobs.lake.file_search import Search, files_below
from spark_jobs.releases import archive, releases
from spark_jobs.runtime.settings import Settings
from tests.spark.audit.test_audit import follow
from tests.spark.reprocessing.test_redrive import Lake
from tests.support import kill_points, lake, redrive_cases as cases
from tests.support.redrive_cases import MINUTE, START, Judged
from tests.support.rows import message

pytestmark = pytest.mark.spark

WHO = "C00000077"
PERSON = {"fullName": "Zdenka Quarantinová", "email": "zdenka.q@example.org", "phone": "367-171-6840", "address1": "387 Wellingtonova Ave."}
AT = START + 500 * MINUTE
TRANSACTIONS = [  # the first of an id that another customer sends again; the newest event; one that breaks a rule
    message("transactions", customerId=WHO, transactionId="person-first", eventTime=AT),
    message("transactions", transactionId="person-first", eventTime=AT + MINUTE),
    message("transactions", customerId=WHO, transactionId="person-newest", eventTime=AT + 900 * MINUTE, amount=70000),
    message("transactions", customerId=WHO, transactionId="person-wrong", type="Transfer"),
    (b"k", b'{"customerId": "C00000077", '),
]
CUSTOMERS = [
    (WHO.encode(), json.dumps({**json.loads(message("customers")[1] or b""), **PERSON, "customerId": WHO}, ensure_ascii=False).encode()),
    (b"C00000001", message("customers", **PERSON, customerId=WHO)[1]),  # the key of another customer, who must not be deleted by it
    (WHO.encode(), b"{"),
]


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def forget(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """A command in this session; returns its exit code."""

    def command(settings: Settings, *words: str) -> int:
        monkeypatch.setattr(run, "read_settings", lambda: settings)
        monkeypatch.setattr("spark_jobs.runtime.session.start_session", lambda *_, **__: spark)
        return run.main(["--run-id", "forget-1", *words])

    return command


def test_a_person_is_gone_from_every_file_and_all_else_stays(
    spark: SparkSession,
    judged_by_older: Judged,
    forget: Callable[..., int],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with cases.newer_rules(tmp_path / "rules"):
        own = Lake(*judged_by_older.copy(tmp_path / "home"))
        settings, words = own.settings, ["forget", "--customer", WHO, "--who", "Ada", "--why", "asked for it"]
        for batch in (6, 7):
            lake.arrive(settings, "transactions", batch, TRANSACTIONS if batch == 6 else [message("transactions", transactionId="later")])
            lake.arrive(settings, "customers", batch, CUSTOMERS if batch == 6 else [message("customers", customerId="C00000005")])
            lake.run_silver(spark, settings, f"silver-{batch}")
            if batch == 6:
                follow(spark, settings, "gold-6")
        assert forget(settings, *words) == 1
        assert "release 1 lacks" in caplog.text
        follow(spark, settings, "gold")
        archive.copy_release(settings, 2)
        before = lake.gold_of(settings)[tables.LARGE_CREDITS.name]
        report = settings.quality / "data_docs" / "a.html"
        report.parent.mkdir(parents=True)
        report.write_text(PERSON["email"])
        assert places_with(settings)
        assert forget(settings, *[*words[:2], "C99999999", *words[3:]]) == 2
        counted = {table.name: len(lake.rows_of(settings, table)) for table in tables.BRONZE}

        for point in ("after emptying bronze.customers", "before sweeping silver.customers"):
            with pytest.MonkeyPatch.context() as patch:
                kill_points.reach(patch, partial(kill, point))
                with pytest.raises(Killed):
                    forget(settings, *words)
            assert forget(settings, "gold") == 1  # nothing is built on what is half erased
            assert "run forget again" in caplog.text
        kafka, export = settings.home / "stack/kafka/data/0.log", settings.home / "export.csv"
        for file in (kafka, export):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(PERSON["email"])
        assert forget(settings, *words) == 1
        assert f"found {export}, expected none" in caplog.text
        export.unlink()
        assert forget(settings, *words) == 0
        kafka.unlink()  # it keeps what its topics keep
        assert forget(settings, *words) == 2  # nothing is left to erase

        assert places_with(settings) == []
        assert not report.exists()
        assert {table.name: len(lake.rows_of(settings, table)) for table in tables.BRONZE} == counted
        assert len(lake.gold_of(settings)[tables.LARGE_CREDITS.name]) == len(before) - 1
        ids = {row["transaction_id"]: row["customer_id"] for row in lake.rows_of(settings, tables.SILVER_TRANSACTIONS)}
        assert ids["person-first"] == "C00000001"
        assert "person-newest" not in ids
        assert any(row["customer_id"] == "C00000001" for row in lake.rows_of(settings, tables.SILVER_CUSTOMERS))
        assert not any(row["customer_id"] == WHO for row in lake.rows_of(settings, tables.SILVER_CUSTOMERS))
        emptied = [row for row in lake.rows_of(settings, tables.BRONZE_CUSTOMERS) if row["value"] == b""]
        listed = lake.rows_of(settings, tables.ERASURES)
        assert len([row for row in listed if row["_topic"] == "customers"]) == len(emptied) == len(CUSTOMERS)
        assert [row["found"][-15:] for row in sorted(listed, key=itemgetter("erased_at")) if row["found"]] == [
            "left in 1 files",
            "left in 0 files",
        ]
        assert not erasures.file_of(settings).exists()
        assert [release.release_id for release in releases.read_releases(settings)] == [releases.newest_release(settings).release_id]

        lake.arrive(settings, "transactions", 8, [message("transactions", transactionId="after", eventTime=AT)])
        lake.run_silver(spark, settings, "silver-8")
        follow(spark, settings, "gold-8")
        assert forget(settings, "redrive", "--rule", "parseable") == 0
        assert forget(settings, "audit") == 0


def kill(point: str, name: str) -> None:
    if name == point:
        raise Killed


def places_with(settings: Settings) -> list[str]:
    """The files that hold the person, found in another way than the command's: Parquet as rows of text, all else as bytes."""
    wanted = [*PERSON.values(), "person-newest", WHO]
    found = []
    for file in sorted(settings.home.rglob("*")):
        if not file.is_file():
            continue
        text = file.read_bytes().decode("utf-8", "replace")
        if file.suffix == ".parquet":
            columns = parquet.read_table(file, partitioning=None).drop_columns(["key"] if "key" in parquet.read_schema(file).names else [])
            text = "\n".join(str(row).replace("b'", "'") for row in columns.to_pylist())
            text += "\n".join(row["value"].decode("utf-8", "replace") for row in columns.to_pylist() if isinstance(row.get("value"), bytes))
        found += [f"{file.relative_to(settings.home)}: {value}" for value in wanted if value in text]
    return found


def test_the_search_finds_a_value_in_parquet_zip_and_escaped_json(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"n": [{"name": ["Zoë Smith"]}]}), tmp_path / "a.parquet", compression="zstd")
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("x", "name Zoë Smith")
    (tmp_path / "c.json").write_text(json.dumps("Zoë Smith"))
    (tmp_path / "d.txt").write_text("Zoe Smith")
    search = Search(["Zoë Smith"])
    assert [file.name for file in search.find(files_below([tmp_path]))] == ["a.parquet", "b.zip", "c.json"]
    assert search.files == 4
    assert Search([]).find(files_below([tmp_path])) == []
