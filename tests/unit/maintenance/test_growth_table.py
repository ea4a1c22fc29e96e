"""The table "What grows, and what bounds it" of maintenance.md: each of its lines has a check, and each check a line."""

from collections.abc import Iterator

import pytest

from include.airflow_cleanup import oldest, remove_logs
from spark_jobs.lake import tables
from spark_jobs.lake.tables import CONTROL
from spark_jobs.runtime.settings import read_settings
from tests.support import growth_of_files, growth_of_tables
from tests.support.growth import CHECKS, NOW, lines, maintain

MODULES = (growth_of_files, growth_of_tables)  # whose import registers the checks


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Iterator[None]]:
    """The checks of a home in which 90 days have passed, and maintenance has been once since."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path_factory.mktemp("grown") / "home")})
    tables.ensure_tables(settings, (*CONTROL, tables.BRONZE_TRANSACTIONS))
    checks = {name: check(settings) for name, check in CHECKS.items()}
    for check in checks.values():
        next(check)
    maintain(settings, tables.BRONZE_TRANSACTIONS, *CONTROL)
    remove_logs(settings.home / "logs", oldest(settings, NOW))
    return checks


def test_the_table_has_lines() -> None:
    assert len(lines()) > 15


def test_every_control_table_is_in_the_table() -> None:
    named = " ".join(lines())
    assert [table.name for table in CONTROL if f" .{table.name.partition('.')[2]}" not in named and table.name not in named] == []


def test_every_check_has_a_line() -> None:
    assert [name for name in CHECKS if not any(line.startswith(name) for line in lines())] == []


@pytest.mark.parametrize("line", lines())
def test_after_ninety_days_it_is_bounded(line: str, lived: dict[str, Iterator[None]]) -> None:
    (name,) = [name for name in CHECKS if line.startswith(name)] or [""]
    assert name, f"found no check of {line!r}, expected one in {[each.__name__ for each in MODULES]}"
    with pytest.raises(StopIteration):
        next(lived[name])
