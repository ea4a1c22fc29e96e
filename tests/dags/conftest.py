"""Airflow for these tests: a home of its own in a temporary folder, no network, no running parts."""

import atexit
import importlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

DAGS = Path(__file__).resolve().parents[2] / "dags"


def _import_airflow() -> None:
    """Import Airflow with a fresh home. It reads the variable while it is imported, so no other test sees it."""
    home = Path(tempfile.mkdtemp(prefix="airflow-home-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (home / "airflow.cfg").write_text(f"[core]\nload_examples = False\n[database]\nsql_alchemy_conn = sqlite:///{home}/airflow.db\n")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AIRFLOW_HOME", str(home))
        importlib.import_module("airflow.configuration")
        importlib.import_module("airflow.sdk.configuration")


_import_airflow()


@pytest.fixture(scope="session")
def dag_bag() -> "DagBag":
    """Every DAG of the folder, parsed once."""
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(dag_folder=DAGS)
