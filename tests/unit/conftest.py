import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_jobs.lake import tables
from spark_jobs.runtime.settings import Settings
from tests.support.publishing import publish
from tests.support.warehouse import good_rows, settings_of, write


@pytest.fixture(scope="session")
def good_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose warehouse has no fault; not to be written to."""
    home = tmp_path_factory.mktemp("good")
    settings = settings_of(home)
    write(settings, good_rows())
    tables.ensure_tables(settings, tables.CONTROL)
    return home


@pytest.fixture
def copy_home(good_home: Path, tmp_path: Path) -> Callable[[], Settings]:
    """Makes settings of a new copy of the good home."""

    def copy() -> Settings:
        home = tmp_path / "home"
        shutil.copytree(good_home, home)
        return settings_of(home)

    return copy


@pytest.fixture(scope="session")
def good_release(good_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of a home without fault whose tables were released once; not to be written to."""
    home = tmp_path_factory.mktemp("released") / "home"
    shutil.copytree(good_home, home)
    publish(settings_of(home))
    return settings_of(home)
