"""Notebooks run on a release and draw what its tables say; those in git hold no output, which would be somebody's data."""

import base64
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

from include.setup.check_files import project_files
from spark_jobs.releases import catalogues
from spark_jobs.runtime.settings import ROOT, Settings
from tests.support.warehouse import settings_of

NOTEBOOKS = ROOT / "include/notebooks"
PLOTLY = "application/vnd.plotly.v1+json"


@pytest.fixture
def released(good_release: Settings, tmp_path: Path) -> Settings:
    """A release with its catalogue."""
    home = tmp_path / "home"
    shutil.copytree(good_release.home, home)
    catalogues.bring_up_to_date(settings_of(home))
    return settings_of(home)


def test_notebooks_in_git_hold_no_outputs() -> None:
    found = list(project_files(".ipynb"))
    assert found
    for file in found:
        notebook = nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call]
        nbformat.validate(notebook)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert cells
        assert [cell.source for cell in cells if cell.outputs or cell.execution_count is not None] == [], file


def test_the_notebook_of_a_release_draws_what_its_tables_say(released: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_HOME", str(released.home))
    monkeypatch.setenv("PLOTLY_RENDERER", "plotly_mimetype")
    for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "JUPYTER_CONFIG_DIR"):  # not those of whoever runs the tests
        monkeypatch.setenv(name, str(tmp_path / name))
    notebook = nbformat.read(NOTEBOOKS / "release.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()

    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    daily, states, late = (output["data"][PLOTLY]["data"] for output in outputs if PLOTLY in output.get("data", {}))
    day = date(2013, 1, 2).isoformat()
    assert {trace["name"]: (days(trace["x"]), numbers(trace["y"])) for trace in daily} == {
        "Credit": ([day], [9007199254741093.10]),
        "Debit": ([day], [40.01]),
    }
    assert [(list(trace["y"]), numbers(trace["x"])) for trace in states] == [(["LN"], [140.11])]
    assert [(days(trace["x"]), numbers(trace["y"])) for trace in late] == [([day], [1])]


def days(values: Any) -> list[str]:
    return [str(value)[:10] for value in values]


def numbers(values: Any) -> list[float]:
    """The numbers of a trace, which Plotly writes as bytes."""
    if isinstance(values, dict):
        return [float(value) for value in np.frombuffer(base64.b64decode(values["bdata"]), dtype=values["dtype"])]
    return [float(value) for value in values]
