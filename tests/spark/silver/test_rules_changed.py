"""Rules that change while a run of silver is unfinished: its batch is repeated by the rules that it was begun with."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs import control
from spark_jobs.lake import tables
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import read_settings
from tests.support import kill_points, lake, oracle, redrive_cases as cases
from tests.support.redrive_cases import Log

pytestmark = pytest.mark.spark

# Where the runs of both topics die, and whether they were begun with the newer rules. The newer rules let more records pass.
Deaths = list[tuple[tuple[str, str], bool]]
DEATHS: Deaths = [
    (("after silver.transaction_ids", "after silver.customers_quarantine"), False),
    (("after silver.transactions", "after silver.customers"), True),
]
MORE: Deaths = [
    (("after silver.transactions", "after silver.customers_quarantine"), False),
    (("after silver.transactions_duplicates", "before silver.customers_quarantine"), True),
    (("after silver.transactions_quarantine", "before batches of silver.customers"), False),
    (("before batches of silver.transactions", "before silver.customers"), True),
]


@pytest.fixture
def rules(tmp_path: Path) -> Iterator[Path]:
    """The folder of the rules in force; afterwards all is as it was."""
    with cases.older_rules(tmp_path / "rules"):
        yield tmp_path / "rules"


@pytest.mark.parametrize("deaths", [DEATHS, pytest.param([*DEATHS, *MORE], marks=pytest.mark.soak)])
def test_an_unfinished_batch_is_repeated_by_the_rules_that_it_was_begun_with(
    spark: SparkSession, tmp_path: Path, rules: Path, monkeypatch: pytest.MonkeyPatch, deaths: Deaths
) -> None:
    """A new batch came meanwhile: it is judged by the rules of today, and recorded by itself."""
    settings, log, chance = read_settings({"LEDGER_HOME": str(tmp_path / "home")}), Log(), random.Random(7)
    recorded = []

    def arrive(batch: int, *, newer: bool) -> None:
        cases.arrive(settings, log, batch, chance)
        log.newer |= {oracle.place(row) for rows in log.bronze.values() for row in rows if newer and row["_batch"] == batch}
        cases.write_rules(rules, older=not newer)
        recorded.append((batch, batch, "new" if newer else "old"))

    for number, (points, newer) in enumerate(deaths):

        def die(name: str, at: tuple[str, ...] = points) -> None:
            if name in at:
                raise RuntimeError(f"killed {name}")

        arrive(2 * number + 1, newer=newer)
        with monkeypatch.context() as patch:
            kill_points.reach(patch, die)
            with pytest.raises(LedgerError, match=r"killed .*killed"):
                lake.run_silver(spark, settings)
        arrive(2 * number + 2, newer=not newer)
        lake.run_silver(spark, settings)
        cases.assert_silver(settings, log)
    for table in (tables.SILVER_TRANSACTIONS, tables.SILVER_CUSTOMERS):
        rows = control.batches(settings, "silver", table.name)
        assert [(row["first_batch"], row["last_batch"], row["rules_version"]) for row in rows] == recorded
