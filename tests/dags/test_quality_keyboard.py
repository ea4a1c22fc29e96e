"""The page "Quality" by keyboard, and what its charts say as text."""

import re

import pytest
from playwright.sync_api import Page, expect

from spark_jobs.runtime.settings import Settings
from tests.dags.conftest import Open
from tests.support import quality_rows as rows
from tests.support.browser import keep


def test_a_keyboard_is_enough(home: Settings, opened: Open) -> None:
    rows.fill(home, 2)
    rows.close_gate(home, 3)
    page = opened("quarantine?rule=parseable")
    page.locator("details.row summary").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("details.row").first.locator("table")).to_be_visible()
    page.goto(page.url.partition("quarantine")[0])
    page.locator(".lineage [data-name='bronze.accounts']").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="bronze.accounts")).to_be_visible()


def test_charts_say_counts_and_shares_as_text(home: Settings, opened: Open) -> None:
    rows.fill(home, 3, rows_a_run=2)
    page = opened()
    volume, quarantine, late, freshness = (page.locator(".charts section").nth(place) for place in range(4))
    expect(volume.locator(".facts")).to_have_text("transactions 300, 33.33 %customers 300, 33.33 %accounts 300, 33.33 %")
    expect(volume.locator(".reading")).to_have_text(
        "2026-03-01 00:15 UTC: 300 records: transactions 100, 33.33 %; customers 100, 33.33 %; accounts 100, 33.33 %"
    )
    expect(quarantine.locator(".facts")).to_have_text("transactions 6, 2 %customers 6, 2 %accounts 6, 2 %")
    expect(quarantine.locator(".reading")).to_contain_text("00:15 UTC: 6 of 300, 2 %: transactions 2, 2 %; customers 2, 2 %")
    expect(late.locator(".reading")).to_contain_text("00:15 UTC: 1 of 100, 1 %")
    expect(freshness.locator(".reading")).to_contain_text("until silver had it 2 minutes, from silver to the release 60 seconds")
    volume.locator("a").first.hover()
    expect(volume.locator(".reading")).to_contain_text("2026-03-01 00:05 UTC: 300 records")
    volume.scroll_into_view_if_needed()
    keep(page, "pages-9-charts")


def test_arrow_keys_go_from_bar_to_bar_and_enter_opens_the_run(home: Settings, opened: Open) -> None:
    rows.fill(home, 3)
    page = opened()
    chart = page.locator(".charts .chart").first
    expect(chart.locator("[tabindex='0']")).to_have_count(1)  # one stop of the Tab key, not a hundred
    page.get_by_label("Verdict").focus()
    while not page.evaluate("document.activeElement.closest('.charts') !== null"):
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")
    reading = page.locator(".charts .reading").first
    expect(reading).to_contain_text("2026-03-01 00:10 UTC")
    seen = page.evaluate("getComputedStyle(document.activeElement.querySelector('.back')).stroke")
    assert seen == "rgb(11, 92, 173)"
    page.locator(".charts").scroll_into_view_if_needed()
    keep(page, "pages-9-charts-by-keyboard")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    expect(reading).to_contain_text("2026-03-01 00:05 UTC")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="medallion scheduled__2026-03-01T00:05:00+00:00")).to_be_visible()


def test_the_bars_of_a_tables_page_have_names(home: Settings, opened: Open) -> None:
    rows.fill(home, 3)
    page = opened("table?name=silver.customers")
    bars = page.get_by_role("group", name="Rows").get_by_role("img")
    expect(bars).to_have_count(3)
    bars.last.focus()
    page.keyboard.press("Home")
    expect(page.locator(".reading").first).to_have_text("release 1, 2026-03-01 00:06 UTC: 100 rows")
    card = opened().locator(".card").filter(has_text="silver.customers").first
    assert "release 1, 2026-03-01 00:06 UTC: 100 rows; release 3" in (card.get_by_role("img").get_attribute("aria-label") or "")


@pytest.mark.parametrize("path", ["", "run?dag_id=medallion&run_id=RUN"])
def test_what_is_wider_than_the_window_is_scrolled_by_keyboard(home: Settings, opened: Open, path: str) -> None:
    rows.fill(home, 3)
    rows.close_gate(home, 4)
    page = opened(path.replace("RUN", rows.run_id(3).replace("+", "%2B")), 400, "dark")
    wide = page.get_by_role("region", name=re.compile("wider than the window")).first
    wide.focus()
    expect(wide).to_have_css("outline-style", "solid")
    page.keyboard.press("ArrowRight")
    expect(wide).not_to_have_js_property("scrollLeft", 0)
    assert scrolling_without_focus(page) == []
    page.set_viewport_size({"width": 3000, "height": 900})
    expect(page.get_by_role("region", name=re.compile("wider than the window"))).to_have_count(0)


def scrolling_without_focus(page: Page) -> list[str]:
    """What scrolls sideways but is no stop of the Tab key."""
    script = "[...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth && e.tabIndex < 0).map(e => e.outerHTML)"
    found: list[str] = page.evaluate(script)
    return found


def test_tables_are_found_by_keyboard_with_what_their_columns_mean(home: Settings, opened: Open) -> None:
    rows.fill(home, 2)
    page = opened()
    page.get_by_label("Find").focus()
    page.keyboard.type("postal code")
    card = page.locator(".card:visible")
    expect(card).to_have_count(1)
    expect(card).to_contain_text("owner ledger")
    page.keyboard.press("Tab")
    page.keyboard.type("passed")  # the filter by verdict
    expect(page.get_by_label("Verdict")).to_have_value("passed")
    page.get_by_label("Find").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="silver.customers", exact=True)).to_be_focused()
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('summary')"):
            break
    page.keyboard.press("Enter")
    expect(card.locator("details div").filter(has_text="zipcode")).to_have_text("zipcode string Postal code")
    keep(page, "pages-10-columns")
    card.get_by_role("link", name="silver.customers", exact=True).focus()
    page.keyboard.press("Enter")
    page.locator("#columns summary").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("row").filter(has_text="valid_from")).to_contain_text("From when on the version is valid")
    page.locator("#columns").scroll_into_view_if_needed()
    keep(page, "pages-10-columns-of-a-table")
