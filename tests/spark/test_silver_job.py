"""The silver job whole: killed at every point, with a history behind it, without its index, after a roll-back."""

import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs import faults, tables
from spark_jobs.errors import LedgerError
from spark_jobs.settings import Settings, read_settings
from tests.spark.lake import arrive, run_silver, silver_of
from tests.spark.rows import Record, message

pytestmark = pytest.mark.spark

HOUR = 3_600_000
MOMENT = 1357028613001


def transaction(id_: str, hours: int = 0, **changes: Any) -> Record:
    return message("transactions", transactionId=id_, eventTime=MOMENT + hours * HOUR, **changes)


def customer(number: int, hours: int, **changes: Any) -> Record:
    key = f"C{number:08d}"
    return key.encode(), message("customers", customerId=key, updateTime=MOMENT + hours * HOUR, **changes)[1]


def account(number: int, hours: int, **changes: Any) -> Record:
    key = f"A{number:08d}"
    return key.encode(), message("accounts", accountId=key, updateTime=MOMENT + hours * HOUR, **changes)[1]


BAD = transaction("bad", type="Transfer")
FIRST = {
    "transactions": [*(transaction(f"T{n}", n) for n in range(6)), BAD, transaction("T1", 1)],
    "customers": [customer(1, 0), customer(2, 0), (b"x", customer(3, 0)[1])],
    "accounts": [account(1, 0), account(2, 0)],
}
SECOND = {
    "transactions": [transaction("T7", 9), transaction("T2", 2), transaction("T3", 3, amount=1), transaction("T8", 1), BAD],
    "customers": [customer(1, 5, city="d"), customer(2, -1, city="e"), (b"C00000002", None), (b"y", b"{")],
    "accounts": [account(2, 4, districtId=1), (b"A00000001", None), (b"", None)],
}
THIRD = {"transactions": [transaction("T8", 1), transaction("T0", 0, type="Debit"), transaction("T9", 8)], "customers": [customer(1, 3)]}


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return read_settings({"LEDGER_HOME": str(tmp_path / "home")})


def fill(settings: Settings, *batches: tuple[int, dict[str, list[Record]]]) -> None:
    for batch, records in batches:
        for topic, rows in records.items():
            arrive(settings, topic, batch, rows)


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What silver is after a run of one batch and a run of two more."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path_factory.mktemp("undisturbed"))})
    fill(settings, (1, FIRST))
    assert run_silver(spark, settings) == ["bronze.transactions", "bronze.customers", "bronze.accounts"]
    fill(settings, (2, SECOND), (3, THIRD))
    run_silver(spark, settings)
    assert run_silver(spark, settings) == []
    found = silver_of(settings)
    assert {name: len(rows) for name, rows in found.items()} == {
        "silver.transactions": 9,
        "silver.transaction_ids": 9,
        "silver.transactions_duplicates": 5,
        "silver.transactions_quarantine": 2,
        "silver.transactions_late": 2,
        "silver.customers": 5,
        "silver.customers_quarantine": 2,
        "silver.accounts": 4,
        "silver.accounts_quarantine": 1,
        "control.batches": 6,
    }
    return found


class Killed(Exception):
    """In place of the end of the process."""


def test_killed_between_every_two_writes(
    spark: SparkSession, home: Settings, undisturbed: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run dies at the first point that none died at before, until none is left."""
    fill(home, (1, FIRST))
    run_silver(spark, home)
    fill(home, (2, SECOND), (3, THIRD))
    killed: list[str] = []

    def kill_point(name: str) -> None:
        if name not in killed:
            killed.append(name)
            raise Killed(name)

    original = faults.kill_point
    for module in [module for name, module in sys.modules.items() if name.startswith("spark_jobs.")]:
        if getattr(module, "kill_point", None) is original:
            monkeypatch.setattr(module, "kill_point", kill_point)
    before = -1
    while before < len(killed):
        before = len(killed)
        try:
            run_silver(spark, home)
        except LedgerError as error:
            assert "Killed" in str(error)
    writes = (*tables.SILVER, *tables.SILVER_INDEXES)
    records = (f"batches of {name}" for name in ("silver.transactions", "silver.customers", "silver.accounts"))
    assert sorted(killed) == sorted(
        f"{when} {what}" for what in (*(table.name for table in writes), *records) for when in ("before", "after")
    )
    assert silver_of(home) == undisturbed
