"""The audit finds nothing in what the jobs made, however rows came to be judged, and every row that somebody else changed."""

import random
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import SparkSession

from spark_jobs import control, run
from spark_jobs.audit.compare import compare
from spark_jobs.control import rule_sets
from spark_jobs.gold import job as gold
from spark_jobs.lake import tables
from spark_jobs.lake.tables import AUDITS, BY_NAME, Table
from spark_jobs.releases import releases, rollback
from spark_jobs.reprocessing import backfill
from spark_jobs.runtime.errors import AuditDifference
from spark_jobs.runtime.settings import Settings, read_settings
from tests.spark.reprocessing.test_redrive import Lake
from tests.support import lake, oracle, redrive_cases as cases
from tests.support.redrive_cases import MINUTE, START, Judged
from tests.support.rows import message

pytestmark = pytest.mark.spark


def follow(spark: SparkSession, settings: Settings, run_id: str) -> None:
    """Gold comes up to silver, and all of it is released."""
    tables.ensure_tables(settings, tables.GOLD)
    gold.run(spark, settings, run_id)
    verdict = {"run_id": run_id, "success": True, "evaluated": 1, "failed": 0, "_first_batch": 1, "_judged_at": datetime.now(UTC)}
    rows = [
        verdict | {"layer": table.layer, "table": name, "suite": name, "version": lake.version(settings, table), "_last_batch": last}
        for name, table in BY_NAME.items()
        for last in [control.last_batch(settings, "silver", f"silver.{table.topic}")]
    ]
    control.append(settings, tables.QUALITY_RESULTS, rows)
    releases.publish(settings)


@pytest.fixture(scope="module")
def older(judged_by_older: Judged, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Five batches judged by the older rules: duplicates, late rows, quarantine, late versions, a deletion. The newer rules hold now."""
    folder = tmp_path_factory.mktemp("audit")
    with cases.newer_rules(folder / "rules"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(backfill, "_PAUSE_SECONDS", 0)
        made = Lake(*judged_by_older.copy(folder / "home"))
        rule_sets.register(made.settings, lake.BRONZE)
        yield made


def copy_of(made: Lake, folder: Path) -> Lake:
    return Lake(*Judged(made.settings, made.log).copy(folder))


@pytest.fixture(scope="module")
def made(spark: SparkSession, older: Lake, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Then a re-drive by the newer rules with corrections, and a batch of a topic made anew; gold has followed, and all is released."""
    made = copy_of(older, tmp_path_factory.mktemp("audit") / "home")
    wrong = made.breaking("transactions", "type_known")
    lines = made.correct(wrong[0:2], type="Debit", eventTime=START + 900 * MINUTE) + made.correct(wrong[2:4], type="Transfer", amount=7)
    made.drive(spark, "amount_small", "corrected", lines)
    records = [message("transactions", transactionId=f"T{n}") for n in range(900, 904)]
    lake.arrive(made.settings, "transactions", cases.BATCHES + 1, records, "transactions#2")
    lake.run_silver(spark, made.settings, "newer")
    follow(spark, made.settings, "gold")
    return made.settings


@pytest.fixture
def audit(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`run audit` in this session; returns its exit code."""

    def command(settings: Settings, *words: str) -> int:
        monkeypatch.setattr(run, "read_settings", lambda: settings)
        monkeypatch.setattr("spark_jobs.runtime.session.start_session", lambda *_, **__: spark)
        return run.main(["--run-id", "audit", "audit", *words])

    return command


def differing(settings: Settings) -> dict[str, tuple[int, int]]:
    """What the newest audit says: of the tables that differ, the rows that are missing and unexpected."""
    rows = lake.rows_of(settings, AUDITS)
    newest = [row for row in rows if row["audited_at"] == max(row["audited_at"] for row in rows)]
    assert {row["table"] for row in newest} == {table.name for table in (*tables.SILVER, *tables.GOLD)}
    return {row["table"]: (row["missing"], row["unexpected"]) for row in newest if row["missing"] or row["unexpected"]}


def change(settings: Settings, table: Table, where: str, **values: str) -> None:
    assert DeltaTable(str(table.path(settings))).update(values, predicate=where)["num_updated_rows"] == 1


def test_a_damaged_row_is_named_and_the_release_before_is_clean(
    made: Settings, tmp_path: Path, audit: Callable[..., int], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A sum is changed in gold, a row is gone from silver, a row is there twice in gold, and a name differs. Nothing else is reported."""
    shutil.copytree(made.home, tmp_path / "home")
    own = read_settings({"LEDGER_HOME": str(tmp_path / "home"), **cases.SETTINGS})
    total = lake.rows_of(own, tables.DAILY_TOTALS)[0]
    day = f"window_start = '{total['window_start']}' and type = '{total['type']}'"
    change(own, tables.DAILY_TOTALS, day, amount="amount + 0.01")
    gone = next(row for row in lake.rows_of(own, tables.SILVER_TRANSACTIONS) if row["_topic"] == "transactions#2")
    DeltaTable(str(tables.SILVER_TRANSACTIONS.path(own))).delete(f"transaction_id = '{gone['transaction_id']}'")
    twice = lake.rows_of(own, tables.LARGE_CREDITS)[:1]
    schema = pa.schema(tables.LARGE_CREDITS.delta_schema().to_arrow())
    write_deltalake(str(tables.LARGE_CREDITS.path(own)), pa.Table.from_pylist(twice, schema), mode="append")
    person = lake.rows_of(own, tables.SILVER_CUSTOMERS)[0]
    change(
        own, tables.SILVER_CUSTOMERS, f"customer_id = '{person['customer_id']}' and _offset = {person['_offset']}", full_name="'Zoe Smith'"
    )

    assert audit(own) == 4
    changed = ("gold.daily_totals", "gold.large_credits", "silver.customers", "silver.transactions")
    assert differing(own) == dict(zip(changed, ((1, 1), (0, 1), (1, 1), (1, 0)), strict=True))
    told = capsys.readouterr().out
    key = f"window_start {total['window_start']:%Y-%m-%d %H:%M:%S}, type {total['type']}"
    assert f"  {key}: found amount {total['amount'] + Decimal('0.01')}, expected {total['amount']}\n" in told
    assert f"  transaction_id {gone['transaction_id']}: found no such row, expected one row: account_id {gone['account_id']}, " in told
    assert f"  transaction_id {twice[0]['transaction_id']}: found 2 rows, expected one row: " in told
    assert "found full_name a text of 9 characters (not shown), expected a text of 9 characters (not shown)\n" in told
    assert "Smith" not in told
    message = caplog.records[-1].getMessage()
    assert "silver.customers (2), silver.transactions (1), gold.daily_totals (2), gold.large_credits (1)" in message
    assert f"the first, of silver.customers: customer_id {person['customer_id']}" in message
    assert "\n" not in message

    before = {table: lake.version(own, table) for table in tables.EVERY if table != AUDITS and table.path(own).is_dir()}
    assert audit(own, "--as-of", "1") == 0
    assert differing(own) == {}
    told = capsys.readouterr().out
    for table in (*tables.SILVER, *tables.GOLD):
        rows = len(lake.rows_of(made, table))
        assert rows, table.name
        assert re.search(rf"^{re.escape(table.name)}: {rows} rows, 0 differences, [0-9.]+ s$", told, re.MULTILINE), table.name
    assert {table: lake.version(own, table) for table in before} == before  # nothing is written but the result


def test_what_cannot_be_audited_is_said_in_a_line(
    made: Settings, tmp_path: Path, audit: Callable[..., int], caplog: pytest.LogCaptureFixture
) -> None:
    nothing = read_settings({"LEDGER_HOME": str(tmp_path / "nothing")})
    assert (audit(nothing), audit(nothing, "--as-of", "1")) == (0, 2)
    assert audit(made, "--as-of", "7") == 2
    assert caplog.records[-1].getMessage() == "--as-of: there is no release 7: found 1"
    shutil.copytree(made.home, tmp_path / "home")
    own = read_settings({"LEDGER_HOME": str(tmp_path / "home"), **cases.SETTINGS})
    write_empty(own, tables.ACCOUNT_BALANCES, "gold", lake.version(own, tables.SILVER_TRANSACTIONS) + 1)
    assert audit(own) == 1
    assert caplog.records[-1].getMessage().startswith("gold stopped halfway: gold.account_balances follows version ")
    write_empty(own, tables.TRANSACTIONS_LATE, "silver", cases.BATCHES + 2)
    assert audit(own) == 1
    assert caplog.records[-1].getMessage().startswith("silver stopped halfway: silver.transactions_late has batches after 6")
    shutil.rmtree(tables.DEBIT_SHARE.path(own))
    assert audit(own) == 1
    assert caplog.records[-1].getMessage().startswith("found no gold.debit_share in ")


def write_empty(settings: Settings, table: Table, application: str, upto: int) -> None:
    """A commit by which a job says how far it has brought a table."""
    delta = DeltaTable(str(table.path(settings)))
    commit = CommitProperties(app_transactions=[Transaction(application, upto)])
    delta.create_write_transaction([], "append", delta.schema(), [], commit_properties=commit)


@pytest.mark.soak
def test_whatever_judged_a_row_last_counts(spark: SparkSession, older: Lake, tmp_path: Path, audit: Callable[..., int]) -> None:
    """Releases between re-drives, a backfill of a part by newer rules, a roll-back and what comes after it: each is what bronze says."""
    own = copy_of(older, tmp_path / "home")
    follow(spark, own.settings, "first")
    own.drive(spark, "zipcode_known", "newer")
    wrong = own.breaking("transactions", "type_known")
    own.drive(spark, "type_known", "corrected", own.correct(wrong[::2], type="Debit"))
    moved = own.breaking("customers", "district_id_whole")[::2]
    own.drive(spark, "district_id_whole", "moved", own.correct(moved, districtId="7", city="d"))
    assert audit(own.settings) == 0  # gold has not followed yet
    follow(spark, own.settings, "second")
    order = backfill.Request(oracle.at(START + 20 * MINUTE), oracle.at(START + 150 * MINUTE), tables.REBUILT, step_rows=30)
    backfill.run(spark, own.settings, order, "backfill")
    assert audit(own.settings) == 0
    follow(spark, own.settings, "third")
    own.take(spark, range(6, 8), random.Random(4))
    gold.run(spark, own.settings, "more")
    wrong = own.breaking("transactions", "type_known")
    own.drive(spark, "type_known", "again", own.correct(wrong[1::2], type="Credit"))
    assert audit(own.settings) == 0
    decision = {"choice": "roll back", "who": "Ada", "why": "a test", "release_id": 3, "generation": 2, "decided_at": datetime.now(UTC)}
    control.append(own.settings, tables.DECISIONS, [decision])
    assert audit(own.settings) == 1  # before it is carried out
    rollback.finish(own.settings)
    assert audit(own.settings) == 0
    lake.run_silver(spark, own.settings, "once more")
    gold.run(spark, own.settings, "once more")
    assert audit(own.settings) == 0
    for release in ("1", "2", "3"):
        assert audit(own.settings, "--as-of", release) == 0
    assert differing(own.settings) == {}


def test_a_table_with_other_columns_than_its_query_makes_is_a_difference(spark: SparkSession) -> None:
    """As where a topic declares another field as its time than the query of its audit."""
    table = tables.SILVER_ACCOUNTS
    expected = spark.createDataFrame([], table.ddl)
    with pytest.raises(AuditDifference, match=r"silver\.accounts: found frequency, expected only columns that its audit query makes"):
        compare(spark, table, expected.drop("frequency"), expected)
