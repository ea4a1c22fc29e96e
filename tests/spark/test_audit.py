"""The audit finds nothing in what the jobs made, however rows came to be judged, and every row that somebody else changed."""

import random
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from expectations import row_rules
from spark_jobs import control, leases, releases, run, tables
from spark_jobs.audit import job, snapshot
from spark_jobs.errors import AuditDifference
from spark_jobs.gold import job as gold
from spark_jobs.settings import Settings, read_settings
from spark_jobs.silver import redrive, redrive_plan
from spark_jobs.tables import AUDITS, BY_NAME, Table
from tests.spark import lake
from tests.spark import redrive_cases as cases
from tests.spark.redrive_cases import MINUTE, START, Log
from tests.spark.rows import message
from tests.spark.test_redrive import Lake

pytestmark = pytest.mark.spark

HOME = {"LEDGER_LARGE_CREDIT": "1"}


def follow(spark: SparkSession, settings: Settings, run_id: str) -> None:
    """Gold comes up to silver, and all of it is released."""
    tables.ensure_tables(settings, tables.GOLD)
    gold.run(spark, settings, run_id)
    verdict = {"run_id": run_id, "success": True, "evaluated": 1, "failed": 0, "_first_batch": 1, "_judged_at": datetime.now(UTC)}
    rows = [
        verdict | {"layer": table.layer, "table": name, "suite": name, "version": lake.version(settings, table), "_last_batch": last}
        for name, table in BY_NAME.items()
        for last in [control.last_batch(settings, "silver", f"silver.{releases.source_of(table)}")]
    ]
    control.append(settings, tables.QUALITY_RESULTS, rows)
    releases.publish(settings)


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Two releases: batches judged by older rules, then a re-drive by newer ones, corrections and more batches, one of a topic made anew."""
    folder = tmp_path_factory.mktemp("audit")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_rules, "FOLDER", folder / "rules")
        cases.write_rules(folder / "rules", older=True)
        own = Lake(read_settings({"LEDGER_HOME": str(folder / "home"), **HOME}), Log())
        chance = random.Random(3)
        accounts = [message("accounts", districtId=1, updateTime=START), message("accounts", districtId=2, updateTime=START + 60 * MINUTE)]
        lake.arrive(own.settings, "accounts", 1, accounts)
        own.take(spark, range(1, 4), chance)
        follow(spark, own.settings, "first")

        cases.write_rules(folder / "rules", older=False)
        own.breaking("transactions", "amount_small")
        own.drive(spark, "amount_small", "newer")
        wrong = own.breaking("transactions", "type_known")
        lines = own.correct(wrong[0:2], type="Debit", eventTime=START + 900 * MINUTE) + own.correct(wrong[2:4], type="Transfer", amount=7)
        own.drive(spark, "type_known", "corrected", lines)
        moved = own.breaking("customers", "district_id_whole")[::2]
        own.drive(spark, "district_id_whole", "moved", own.correct(moved, districtId="7", city="d"))
        lake.arrive(own.settings, "accounts", 4, [(b"A00000001", None), (b"A00000001", b"{")])
        lake.arrive(own.settings, "transactions", 4, [message("transactions", transactionId=f"T{n}") for n in range(4)], "transactions#2")
        own.take(spark, range(5, 6), chance)
        follow(spark, own.settings, "second")
        yield own.settings
    row_rules.read_rules.cache_clear()


@pytest.fixture
def own(made: Settings, tmp_path: Path) -> Settings:
    """A copy for one test."""
    shutil.copytree(made.home, tmp_path / "home")
    return read_settings({"LEDGER_HOME": str(tmp_path / "home"), **HOME})


@pytest.fixture
def audit(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`run audit` in this session; returns its exit code."""

    def command(settings: Settings, *words: str) -> int:
        monkeypatch.setattr(run, "read_settings", lambda: settings)
        monkeypatch.setattr(run, "start_session", lambda *_: spark)
        return run.main(["--run-id", "audit", "audit", *words])

    return command


def differing(settings: Settings) -> dict[str, tuple[int, int]]:
    """What the newest audit says: of the tables that differ, the rows that are missing and unexpected."""
    rows = lake.rows_of(settings, AUDITS)
    newest = [row for row in rows if row["audited_at"] == max(row["audited_at"] for row in rows)]
    assert {row["table"] for row in newest} == {table.name for table in (*tables.SILVER, *tables.GOLD)}
    return {row["table"]: (row["missing"], row["unexpected"]) for row in newest if row["missing"] or row["unexpected"]}


def test_what_the_jobs_made_is_what_bronze_says(made: Settings, audit: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    before = {table.name: lake.version(made, table) for table in tables.EVERY if table != AUDITS and table.path(made).is_dir()}
    assert audit(made) == 0, capsys.readouterr()
    assert differing(made) == {}
    told = capsys.readouterr().out
    for table in (*tables.SILVER, *tables.GOLD):
        rows = len(lake.rows_of(made, table))
        assert re.search(rf"^{re.escape(table.name)}: {rows} rows, 0 differences, [0-9.]+ s$", told, re.MULTILINE), table.name
        assert rows, table.name
    assert {name: lake.version(made, table) for name, table in ((table.name, table) for table in tables.EVERY) if name in before} == before
