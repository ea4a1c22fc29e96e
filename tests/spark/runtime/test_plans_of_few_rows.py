"""Jobs that may read every row plan by how many there are."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from include.setup.class_archive import fill_bronze
from spark_jobs.commands import preconditions
from spark_jobs.runtime import session
from spark_jobs.runtime.settings import read_settings

ROWS = 20


@pytest.mark.spark
@pytest.mark.parametrize("few", [True, False])
def test_a_small_warehouse_has_plans_without_generated_code(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    settings, own = read_settings({"LEDGER_HOME": str(tmp_path)}), spark.newSession()
    rows = fill_bronze(settings, ROWS)
    asked: dict[str, int] = {}
    monkeypatch.setattr(session, "start_session", lambda *_, new_rows: asked.update(rows=new_rows) or own)
    monkeypatch.setattr(preconditions, "_FEW_ROWS", rows if few else rows - 1)
    for name in session.FEW_ROWS:
        own.conf.set(name, "FALLBACK" if name.endswith("factoryMode") else "true")

    assert preconditions.warehouse_session(settings, "ledger redrive") is own
    assert asked == {"rows": 0}  # it works on some: the slow compiler would take more than it gives
    assert preconditions.warehouse_session(settings, "ledger audit", works_on_all=True) is own
    assert asked == {"rows": rows}
    assert all((own.conf.get(name) == value) is few for name, value in session.FEW_ROWS.items())
