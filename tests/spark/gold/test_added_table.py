"""Somebody adds a gold table: one file, its suite and its audit query, and nothing else in the checkout."""

import shutil
from pathlib import Path

import pytest

from tests.support.added import copy_checkout, play

pytestmark = [pytest.mark.spark, pytest.mark.soak]  # two processes that run the whole pipeline

MODULE = "tests.spark.gold.added.run"
NEW, FILES = "gold.operation_totals", Path(__file__).parent / "added"
TWIN = f"{NEW}_twin"
GEOMETRY = "day_of, days=0, adds=ADD_TOTALS"


def add(checkout: Path, name: str, geometry: str = GEOMETRY) -> None:
    """The three files of a table, under a name, with how it is brought up to changes."""
    _, short = name.split(".")
    code = (FILES / "operation_totals.py").read_text()
    assert GEOMETRY in code
    (checkout / f"spark_jobs/gold/tables/{short}.py").write_text(code.replace(GEOMETRY, geometry).replace(NEW, name))
    query = (FILES / f"{NEW}.sql").read_text()
    (checkout / f"spark_jobs/audit/gold/{name}.sql").write_text(query)
    suite = (FILES / f"{NEW}.json").read_text()
    (checkout / f"expectations/suites/{name}.json").write_text(
        suite.replace(NEW, name).replace(NEW.replace(".", "_"), name.replace(".", "_"))
    )


def test_a_new_table_is_one_file_and_the_audit_finds_a_wrong_one_out(tmp_path: Path) -> None:
    """The table goes through a late row, a backfill, gates, releases, audits and explain. Its twin forgets the rest of a late row's day."""
    checkout = copy_checkout(tmp_path)
    add(checkout, NEW)
    done = play(checkout, MODULE, "the table")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{NEW}: " in done.stdout
    add(checkout, TWIN, "day_of, hours=0")
    found = play(checkout, MODULE, "its broken twin")
    assert found.returncode == 4, found.stdout + found.stderr
    assert f"found rows that are not what bronze says in {TWIN} (2), expected none" in found.stderr


def test_a_new_table_in_sql_is_one_file(tmp_path: Path) -> None:
    """No suite and no audit query: it goes through a late row, a backfill, gates, releases, audits and explain all the same."""
    checkout = copy_checkout(tmp_path)
    shutil.copy(FILES / "operation_totals.sql", checkout / "spark_jobs/gold/tables")
    done = play(checkout, MODULE, "the table")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{NEW}: " in done.stdout
    assert "  sums: equal, the rows make " in done.stdout
