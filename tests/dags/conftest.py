"""Airflow for these tests: a home of its own in a temporary folder, no network, no running parts."""

import atexit
import importlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, Page

from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.browser import chromium
from tests.support.fake_spark import FakeSparkSubmit
from tests.support.quality_site import as_operator, as_viewer, serving

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

Open = Callable[..., Page]
ROOT = Path(__file__).resolve().parents[2]
DAGS = ROOT / "dags"


def _import_airflow() -> None:
    """Import Airflow with a fresh home. It reads the variable while it is imported, so no other test sees it."""
    home = Path(tempfile.mkdtemp(prefix="airflow-home-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    core = f"[core]\nload_examples = False\nplugins_folder = {ROOT}/include/plugins\n"
    (home / "airflow.cfg").write_text(f"{core}[database]\nsql_alchemy_conn = sqlite:///{home}/airflow.db\n")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AIRFLOW_HOME", str(home))
        importlib.import_module("airflow.configuration")
        importlib.import_module("airflow.sdk.configuration")


_import_airflow()


ALERTED = ("LEDGER_ALERT_WEBHOOK", "LEDGER_ALERT_MAIL", "AIRFLOW_CONN_SMTP_DEFAULT")


@pytest.fixture(scope="session")
def dag_bag() -> "DagBag":
    """Every DAG of the folder, parsed once, with nobody to be alerted."""
    from airflow.dag_processing.dagbag import DagBag

    with pytest.MonkeyPatch.context() as environment:
        for name in ALERTED:
            environment.delenv(name, raising=False)
        return DagBag(dag_folder=DAGS)


@pytest.fixture(autouse=True)
def nobody_is_alerted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of the stack that ran in this process before have left whom they alert in its environment."""
    for name in ALERTED:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def spark_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSparkSubmit:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]", "extra": {"deploy-mode": "client"}}')
    return FakeSparkSubmit(tmp_path)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path / "a home"))
    return read_settings()


@pytest.fixture
def anyone() -> TestClient:
    """A browser without a login on the page Quality; the application lies at the same place as in Airflow."""
    from include.quality_page.app import app

    airflow = FastAPI(openapi_url=None)
    airflow.mount("/quality", app)
    return TestClient(airflow, base_url="http://airflow.example/quality", follow_redirects=False)


@pytest.fixture
def reader(anyone: TestClient) -> Iterator[TestClient]:
    """A browser of an operator on the page Quality: it shows values."""
    from include.quality_page.access import may_read
    from include.quality_page.app import app

    app.dependency_overrides[may_read] = as_operator
    yield anyone
    app.dependency_overrides.clear()


@pytest.fixture
def viewer(reader: TestClient) -> TestClient:
    """The same browser, of a viewer: it shows figures only."""
    from include.quality_page.access import may_read
    from include.quality_page.app import app

    app.dependency_overrides[may_read] = as_viewer
    return reader


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def opened(home: Settings, browser: Browser) -> Iterator[Open]:
    """Opens a page of the home's site; whatever it asks of another host, and any error of its scripts, fails the test."""
    faults: list[str] = []
    asked: list[str] = []
    contexts: list[Any] = []
    with serving() as url:

        def open_page(path: str = "", width: int = 1300, scheme: Any = "light", clocked: bool = False) -> Page:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            contexts.append(context)
            page = context.new_page()
            if clocked:
                page.clock.install()  # the test says when its timers are due
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.on("request", lambda request: asked.append(request.url))
            page.goto(url + path)
            return page

        yield open_page
        for context in contexts:
            context.close()
        site = url.removesuffix("quality/")
    assert faults == []
    assert [address for address in asked if not address.startswith((site, "data:", "blob:"))] == []
