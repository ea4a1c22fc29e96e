"""What the stack and the jobs write can be opened by their own user only, whoever started them."""

import os
from pathlib import Path

import pytest

from tests.integration.conftest import Wave

pytestmark = pytest.mark.integration


def open_to_others(home: Path) -> list[str]:
    """Everything in a home, and the home itself, that another user could read, write or enter."""
    found = [home, *(Path(folder) / name for folder, folders, files in os.walk(home) for name in (*folders, *files))]
    assert len(found) > 50
    return [
        f"{path.relative_to(home)} {path.stat().st_mode & 0o777:o}"
        for path in found
        if path.lstat().st_mode & 0o077 and not path.is_symlink()
    ]


def test_a_pipelines_tables_checkpoints_and_reports(first_wave: Wave) -> None:
    assert open_to_others(first_wave.ledger.home) == []


@pytest.mark.airflow
def test_the_services_data_and_logs(stack_home: Path) -> None:
    assert open_to_others(stack_home) == []
