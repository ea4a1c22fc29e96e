"""The page "Quality" on paper."""

from playwright.sync_api import expect

from spark_jobs.runtime.settings import Settings
from tests.dags.conftest import Open
from tests.support import quality_rows as rows
from tests.support.browser import keep


def test_dark_pages_are_printed_on_white(home: Settings, opened: Open) -> None:
    rows.fill(home, 2)
    page = opened(scheme="dark")
    page.evaluate("localStorage.setItem('theme', 'dark')")
    page.reload()
    page.emulate_media(media="print")
    keep(page, "pages-print")
    expect(page.locator("body")).to_have_css("color", "rgb(31, 39, 51)")
    expect(page.locator("body")).to_have_css("background-color", "rgb(255, 255, 255)")
    expect(page.get_by_role("navigation").first).to_be_hidden()


def test_what_is_printed_is_whole_and_says_what_was_chosen(home: Settings, opened: Open) -> None:
    rows.fill(home, 2)
    page = opened(width=700)  # pixels of a sheet
    page.emulate_media(media="print")
    site = page.url
    for path in ("", f"run?dag_id=medallion&run_id={rows.run_id(2).replace('+', '%2B')}", "quarantine?table=silver.customers_quarantine"):
        page.goto(site + path)
        assert page.evaluate("[...document.querySelectorAll('.wide')].filter((e) => e.scrollWidth > e.clientWidth).length") == 0, path
    expect(page.get_by_label("Table")).to_have_value("silver.customers_quarantine")
    expect(page.get_by_label("Table")).to_be_visible()
    expect(page.get_by_role("button", name="Show")).to_be_hidden()
