"""Dates and times that Python has no object for: what rules refuse today, and that those in older tables stop no job and no reader."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from expectations import row_rules
from include.quality_page.charts import draw
from include.quality_page.measures import measure
from include.quality_page.reading import Warehouse
from include.reader.__main__ import main as sql
from spark_jobs import run
from spark_jobs.audit.compare import compare
from spark_jobs.lake import tables
from spark_jobs.releases import gates
from spark_jobs.reprocessing import backfill
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support import lake
from tests.support.rows import message

pytestmark = pytest.mark.spark

AFTER_9999 = 253_402_300_800_000_000  # microseconds of 10000-01-01
LAST_MILLI = 9_214_646_399_999  # of 2261
Job = Callable[..., int]


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Bronze with such values, and a silver of customers that took them, as the rules of version 1 did; today's rules are in force."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path_factory.mktemp("hostile"))})
    older = tmp_path_factory.mktemp("rules")
    shutil.copytree(row_rules.FOLDER, older, dirs_exist_ok=True)
    text = (older / "customers.yaml").read_text()
    lenient = text.replace("as date) >= date'0001-01-01'", "as date) is not null")
    lenient = lenient.replace("unix_millis(_timestamp) < 9214646400000", "true")
    assert lenient.count("is not null") == text.count("is not null") + 1
    (older / "customers.yaml").write_text(lenient.replace('version: "2"', 'version: "1"'))
    births = ("0000-01-01", "0001-01-01", "9999-12-31")
    people = [f"C{number:08}" for number in range(1, 4)]
    born = [(who.encode(), message("customers", customerId=who, birthDate=day)[1]) for who, day in zip(people, births, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_rules, "FOLDER", older)
        row_rules.read_rules.cache_clear()
        lake.arrive(settings, "customers", 1, born)
        lake.arrive(settings, "customers", 2, [(people[1].encode(), None)], loaded=AFTER_9999)
        lake.run_silver(spark, settings, "older")
    row_rules.read_rules.cache_clear()
    lake.arrive(settings, "customers", 3, [born[0]])
    lake.arrive(settings, "customers", 4, [(people[2].encode(), None)], loaded=AFTER_9999)
    lake.arrive(settings, "accounts", 1, [message("accounts"), (b"A00000001", message("accounts", creationDate="0000-12-31")[1])])
    lake.arrive(settings, "transactions", 1, [message("transactions", customerId=who, transactionId=f"T-{who}") for who in people])
    far = [LAST_MILLI, LAST_MILLI + 1]
    late = [message("transactions", transactionId=f"F{at}", customerId=people[1], eventTime=at) for at in far]
    lake.arrive(settings, "transactions", 2, late, loaded=AFTER_9999)
    return settings


@pytest.fixture
def job(spark: SparkSession, made: Settings, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A command of the pipeline in this session; returns its exit code."""
    monkeypatch.setattr(run, "read_settings", lambda: made)
    monkeypatch.setattr("spark_jobs.runtime.session.start_session", lambda *_, **__: spark)
    monkeypatch.setattr(backfill, "_PAUSE_SECONDS", 0)
    return lambda *words: run.main(words)


def test_every_job_takes_them(made: Settings, job: Job, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert job("silver") == 0
    refused = {row["broken_rules"][0] for row in lake.rows_of(made, tables.CUSTOMERS_QUARANTINE)}
    assert refused == {"birth_date_valid", "update_time_plausible"}
    assert [row["broken_rules"] for row in lake.rows_of(made, tables.ACCOUNTS_QUARANTINE)] == [["creation_date_valid"]]
    assert [row["broken_rules"] for row in lake.rows_of(made, tables.TRANSACTIONS_QUARANTINE)] == [["event_time_plausible"]]
    assert job("gold") == 0
    assert job("backfill", "--start", "2000-01-01", "--end", "2262-01-01") == 0, caplog.text  # what lies beside them is rebuilt
    for layer in tables.LAYERS:
        gates.run(made, layer, f"gate {layer}")
    assert job("release") == 0
    assert job("maintenance") == 0
    assert job("audit") == 0
    assert job("redrive", "--rule", "birth_date_valid") == 0


def test_every_reader_takes_them(
    made: Settings, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job("release", "--keep", "1") == 0
    for name in ("silver.customers", "bronze.customers"):
        assert job("export", "--table", name, "--start", "0001-01-01", "--end", "9999-12-31", "--to", (tmp_path / name).as_uri()) == 0
    capsys.readouterr()
    assert job("explain", "--table", "gold.daily_totals", "--where", "transactions = 1") == 0
    assert "window_end 2262-01-01 00:00:00" in capsys.readouterr().out
    for table in ("gold.enriched_transactions", "gold.district_minutes", "gold.customer_sessions"):
        assert job("explain", "--table", table, "--where", "true") == 0
    assert job("backfill", "--start", "2013-01-01", "--end", "2013-01-02", "--dry-run") == 0
    monkeypatch.setenv("LEDGER_HOME", str(made.home))
    capsys.readouterr()
    assert sql(["--query", "select birth_date, valid_to from silver.customers order by customer_id, valid_from"]) == 0
    shown = capsys.readouterr().out
    assert "0000-01-01" in shown
    assert "+10000-01-01 00:00:00" in shown
    for name in tables.BY_NAME:
        assert sql(["--query", f"select * from {name}"]) == 0
    warehouse = Warehouse(made)
    assert draw(measure(warehouse))
    assert warehouse.select(tables.SILVER_CUSTOMERS, "select * from t")
    assert not warehouse.problems


def test_an_audit_names_such_a_row(made: Settings, spark: SparkSession) -> None:
    found = spark.read.format("delta").load(str(tables.SILVER_CUSTOMERS.path(made)))
    told = compare(spark, tables.SILVER_CUSTOMERS, found.limit(0), found)
    assert told.unexpected == told.rows > 0
    assert any("valid_from +10000-01-01" in example for example in told.examples)
