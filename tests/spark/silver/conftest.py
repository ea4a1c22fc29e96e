"""Three bronze batches: the first one processed, all processed, and a run that dies."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.control import scope
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings
from tests.support import kill_points
from tests.support.lake import run_silver, silver_of
from tests.support.silver_runs import Die, KilledError, copied, fill, settings_of
from tests.support.three_batches import FIRST, SECOND, THIRD


@pytest.fixture(scope="package")
def first_done(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The first batch was processed, the two others are in bronze."""
    settings = settings_of(tmp_path_factory.mktemp("first"))
    fill(settings, (1, FIRST))
    assert run_silver(spark, settings) == ["bronze.transactions", "bronze.customers"]
    fill(settings, (2, SECOND), (3, THIRD))
    return settings


@pytest.fixture(scope="package")
def all_done(spark: SparkSession, first_done: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """All batches were processed, by two runs that nothing disturbed."""
    settings = copied(first_done, tmp_path_factory.mktemp("all") / "home")
    run_silver(spark, settings)
    assert run_silver(spark, settings) == []
    assert {name: len(rows) for name, rows in silver_of(settings).items() if rows} == {
        "silver.transactions": 9,
        "silver.transaction_ids": 9,
        "silver.transactions_duplicates": 5,
        "silver.transactions_quarantine": 2,
        "silver.transactions_late": 2,
        "silver.customers": 5,
        "silver.customers_quarantine": 2,
        "control.batches": 4,
    }
    return settings


@pytest.fixture
def die(spark: SparkSession, home: Settings, monkeypatch: pytest.MonkeyPatch) -> Die:
    """A function that runs silver until nothing is unread; each run dies at the first chosen point at which none died before."""

    def until_done(is_chosen: Callable[[str], bool]) -> list[str]:
        killed: list[str] = []

        def kill_point(name: str) -> None:
            if is_chosen(name) and name not in killed:
                killed.append(name)
                raise KilledError(name)

        kill_points.reach(monkeypatch, kill_point)
        while scope.unread_bronze(home):
            before = len(killed)
            try:
                run_silver(spark, home)
            except LedgerError as error:
                if not isinstance(error.__cause__, KilledError):
                    raise
            assert len(killed) > before or not scope.unread_bronze(home)
        return sorted(killed)

    return until_done


@pytest.fixture
def home(first_done: Settings, tmp_path: Path) -> Settings:
    """A copy of the first batch's tables."""
    return copied(first_done, tmp_path / "home")
