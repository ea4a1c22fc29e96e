"""A real browser for the pages of the stack's Airflow, logged in as its one user."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, sync_playwright

from include.stack import airflow
from include.stack.endpoints import read_endpoints
from spark_jobs.settings import ROOT, Settings

SCREENSHOTS = ROOT / "artifacts/screenshots"
PATIENCE_MILLISECONDS = 60_000
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync")


@contextmanager
def open_airflow(settings: Settings) -> Iterator[Page]:
    """Airflow's pages in headless Chromium; links may be relative. The test is skipped where there is no Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("found no Chromium or Chrome on the PATH, which this test clicks through Airflow with")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=QUIET)
        page = browser.new_page(base_url=read_endpoints(settings.home)["airflow_url"], viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(PATIENCE_MILLISECONDS)
        page.goto("/required_actions")
        page.get_by_label("Username").fill(airflow.USER)
        page.get_by_label("Password").fill(airflow.password_file(settings.home).read_text())
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("button", name="User", exact=True).wait_for()
        yield page
        browser.close()


def keep(page: Page, name: str) -> None:
    """Keep a picture of the page for people, and say where."""
    file = SCREENSHOTS / f"{name}.png"
    page.screenshot(path=file)
    print(f"screenshot: {file}")
