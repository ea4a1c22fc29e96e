"""A changed rule set, judged over stored bronze rows: which rows it would refuse or accept, and when the gate would have closed."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from expectations.row_rules import FOLDER
from spark_jobs.lake.tables import CONTROL, LAYERS, ensure_tables
from spark_jobs.releases import rule_rehearsal
from spark_jobs.runtime.errors import GateClosed, SettingsError
from spark_jobs.runtime.settings import Settings
from tests.support import warehouse
from tests.support.rows import Record, message
from tests.support.warehouse import at, quarantined, run_of, settings_of, write

pytestmark = pytest.mark.spark

SPELLED = message("transactions", type="credit")  # in quarantine by the rules as they are


def stored(home: Path, bad: int) -> Settings:
    """Two batches of 100 transactions; the second has `bad` large ones. One of the first is in quarantine."""
    settings = settings_of(home)
    ensure_tables(settings, [table for layer in LAYERS.values() for table in layer] + list(CONTROL))

    def of(offset: int) -> Record:
        return SPELLED if offset == 3 else message("transactions", amount=5000 if 100 <= offset < 100 + bad else 5)

    records = [(at(0, offset, 1 + offset // 100), of(offset)) for offset in range(200)]
    runs = [run_of("silver", "silver.transactions", batch, batch, input=100) for batch in (1, 2)]
    write(
        settings,
        {
            "bronze.transactions": [warehouse.bronze(place, *record) for place, record in records],
            "silver.transactions_quarantine": [quarantined(at(0, 3, 1), *SPELLED) | {"broken_rules": ["type_known"]}],
            "control.batches": runs,
        },
    )
    return settings


def changed_rules(folder: Path, old: str, new: str) -> Path:
    text = (FOLDER / "transactions.yaml").read_text()
    assert old in text
    file = folder / "transactions-2.yaml"
    file.write_text(text.replace(old, new))
    return file


def test_rules_that_refuse_more_name_the_rows_and_the_run_that_would_have_closed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = stored(tmp_path / "home", bad=60)
    file = changed_rules(tmp_path, "amount.kind = 'number' and amount.text not like '-%'", "amount.kind = 'number' and amount.text < '50'")
    before = sorted(settings.home.rglob("*"))
    with pytest.raises(
        GateClosed, match=r"would have closed for 1 of 2 runs: found quarantined_per_thousand, first in run r, batches 2 to 2"
    ):
        rule_rehearsal.run(settings, "silver", file, since=0)
    assert sorted(settings.home.rglob("*")) == before
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:4] == [
        "  60 rows would be refused, and was accepted",
        "    by rule: amount_not_negative 60",
        "    by batch: 2: 60",
    ]
    assert lines[4] == "    transactions/0/100 of batch 2: amount_not_negative"
    assert "    and 40 more rows" in lines
    assert "  0 rows would be accepted, and was refused" in lines
    assert "    quarantined_per_thousand (critical): found 600, expected at most 500" in lines


def test_rules_that_refuse_less_name_the_rows_that_come_in(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = stored(tmp_path / "home", bad=0)
    rule_rehearsal.run(settings, "silver", changed_rules(tmp_path, "('Credit', 'Debit')", "('Credit', 'Debit', 'credit')"), since=0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == [
        "  0 rows would be refused, and was accepted",
        "  1 rows would be accepted, and was refused",
        "    by rule: type_known 1",
        "    by batch: 1: 1",
        "    transactions/0/3 of batch 1: type_known",
        "    that is all of them",
        "  run r, batches 1 to 1: would have passed",
        "  run r, batches 2 to 2: would have passed",
        "the gate would have passed for 2 of 2 runs; nothing was written",
    ]


def test_a_rule_that_is_no_sql_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    settings = stored(tmp_path / "home", bad=0)
    for wrong in ("amount.knd = 1", "amount.kind = = 1"):
        file = changed_rules(tmp_path, "amount.kind = 'number' and amount.text not like '-%'", wrong)
        with pytest.raises(SettingsError, match=r"transactions-2\.yaml: found a rule that is no SQL over the fields"):
            rule_rehearsal.run(settings, "silver", file, since=0)
