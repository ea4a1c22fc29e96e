"""Re-drives: silver is afterwards what plain Python makes of bronze, the corrections and the newer rules, in order of arrival."""

import json
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from expectations import row_rules
from spark_jobs import tables
from spark_jobs.settings import Settings, read_settings
from spark_jobs.silver import job, redrive
from tests.integration import oracle
from tests.spark import redrive_cases as cases
from tests.spark.redrive_cases import MINUTE, START, Log, Row

pytestmark = pytest.mark.spark


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """An empty warehouse, and rules of the older version."""
    monkeypatch.setattr(row_rules, "FOLDER", tmp_path / "rules")
    cases.write_rules(tmp_path / "rules", older=True)
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    tables.ensure_tables(settings, (*tables.BRONZE, *tables.SILVER, *tables.SILVER_INDEXES, *tables.CONTROL))
    return settings


def take(spark: SparkSession, settings: Settings, log: Log, batches: range, chance: random.Random) -> None:
    """New batches of records come, and silver takes them in one run."""
    for batch in batches:
        cases.append_bronze(settings, "transactions", log.add("transactions", batch, cases.transactions(chance, 24), chance))
        cases.append_bronze(settings, "customers", log.add("customers", batch, cases.customers(chance, 8), chance))
    job.run(spark, settings, f"silver-{batches[-1]}")


def correct(log: Log, settings: Settings, topic: str, rows: list[Row], **fields: object) -> list[str]:
    """Lines of a corrections file that put other fields into records."""
    lines = []
    for row in rows:
        value = json.dumps({**json.loads(row["value"]), **fields})
        place = dict(zip(("topic", "partition", "offset"), oracle.place(row), strict=True))
        lines.append(json.dumps({**place, "value": value, "who": "Ada", "why": "typed wrong"}))
        log.values[oracle.place(row)] = value.encode()
        log.newer.add(oracle.place(row))
    return lines


def drive(spark: SparkSession, settings: Settings, rule: str, run_id: str, lines: list[str] | None = None) -> None:
    file = settings.home / f"{run_id}.jsonl"
    if lines:
        file.write_text("\n".join(lines) + "\n")
    redrive.run(spark, settings, redrive.plan(settings, rule, None, file if lines else None), run_id)


def breaking(log: Log, topic: str, rule: str) -> list[Row]:
    return [row for row in log.bronze[topic] if rule in log.broken(topic, row)]


def test_silver_after_re_drives_is_a_computation_from_bronze_and_corrections(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    chance, log = random.Random(3), Log()
    take(spark, settings, log, range(1, 3), chance)
    take(spark, settings, log, range(3, 6), chance)
    before = cases.assert_silver(settings, log)

    cases.write_rules(tmp_path / "rules", older=False)
    for topic, (rule, _, _) in cases.OLDER.items():
        log.newer |= {oracle.place(row) for row in breaking(log, topic, rule)}
        drive(spark, settings, rule, f"newer-{topic}")
    after = cases.assert_silver(settings, log)
    assert {row["transaction_id"] for row in after.first.values()} > {row["transaction_id"] for row in before.first.values()}
    assert [row for row in after.first.values() if before.first.get(row["transaction_id"], row) != row], "none became the first of an id"
    assert before.late != after.late

    wrong = breaking(log, "transactions", "type_known")
    lines = correct(log, settings, "transactions", wrong[0:3], type="Debit", eventTime=START + 900 * MINUTE)
    lines += correct(log, settings, "transactions", wrong[3:6], type="Credit", transactionId="T0")
    lines += correct(log, settings, "transactions", wrong[6:8], type="Transfer", amount=7)
    log.newer |= {oracle.place(row) for row in wrong}
    drive(spark, settings, "type_known", "corrected", lines)
    cases.assert_silver(settings, log)
    log.newer |= {oracle.place(row) for row in breaking(log, "customers", "district_id_whole")}
    drive(
        spark,
        settings,
        "district_id_whole",
        "moved",
        correct(log, settings, "customers", breaking(log, "customers", "district_id_whole")[::2], districtId="7", city="d"),
    )
    cases.assert_silver(settings, log)

    take(spark, settings, log, range(6, 8), chance)
    log.newer |= {oracle.place(row) for rows in log.bronze.values() for row in rows if row["_batch"] > 5}
    cases.assert_silver(settings, log)
