"""A headless Chromium, as a person's browser with a login, and the screenshots that it leaves in `artifacts/screenshots`."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

from include.stack import airflow
from spark_jobs.runtime.settings import ROOT, read_endpoints

SCREENSHOTS = ROOT / "artifacts" / "screenshots"
PATIENCE = 30_000  # milliseconds; the pages are quick, a busy machine is not
_OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser. Skips the test where there is none."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        pytest.skip("found no chromium on the PATH, expected Debian's package of that name: apt-get install chromium")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(_OPTIONS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def logged_in(home: Path, user: str = airflow.USER) -> Iterator[Page]:
    """A page of Airflow after the login as one of its users; what it asks of other hosts than Airflow's fails. Skips without Chromium."""
    url = read_endpoints(home)["airflow_url"]
    with chromium() as browser:
        context = browser.new_context(viewport={"width": 1400, "height": 900}, base_url=url)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto("/")
        page.get_by_label("Username").fill(user)
        page.get_by_label("Password").fill(airflow.password_file(home, user).read_text())
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("link", name="Dags").first).to_be_visible()
        yield page


def keep(page: Page, name: str) -> Path:
    """Keep what the page shows. On a busy machine Chromium sometimes has no picture ready and says so; it is asked once more then."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    file = SCREENSHOTS / f"{name}.png"
    try:
        page.screenshot(path=file)
    except Error as error:
        if "Unable to capture screenshot" not in error.message:
            raise
        page.screenshot(path=file)
    print(f"screenshot: {file}")
    return file
