"""The page Explain: cells to choose from, what made one, and what it says of keys that are none."""

import html
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from fastapi.testclient import TestClient
from playwright.sync_api import expect

from include.quality_page.explained import with_runs
from spark_jobs.lake import tables
from spark_jobs.releases import archive
from spark_jobs.runtime.settings import Settings
from tests.dags.conftest import Open
from tests.support import warehouse
from tests.support.browser import keep
from tests.support.publishing import publish, released_on

DAY = "/explain?table=gold.daily_totals"


@pytest.fixture
def gold(home: Settings) -> Settings:
    """Silver and gold of a few transactions, which agree."""
    rows = warehouse.good_rows()
    rows["silver.customers"] = [row | {"city": "London", "state": "LN"} for row in rows["silver.customers"]]
    warehouse.write(home, rows)
    return home


@pytest.mark.parametrize("table", [table.name for table in tables.GOLD])
def test_from_the_cells_of_every_table_to_what_made_one(gold: Settings, reader: TestClient, table: str) -> None:
    cells = reader.get(f"/explain?table={table}")
    assert cells.status_code == 200
    link = html.unescape(cells.text).partition('<tr><td><a href="')[2].partition('"')[0]
    assert link.startswith("/quality/explain?"), cells.text
    explained = reader.get(link.removeprefix("/quality"))
    assert explained.status_code == 200
    assert f"{table} as it is now" in explained.text
    assert "sums: equal" in explained.text, explained.text
    assert 'class="notice problem"' not in explained.text


def test_numbers_of_cells_stand_in_line_with_separators(gold: Settings, opened: Open) -> None:
    DeltaTable(str(tables.DAILY_TOTALS.path(gold))).update({"amount": "cast('1234567.50' as decimal(38,2))"})
    page = opened("explain?table=gold.daily_totals")
    amount = page.get_by_role("cell", name="1,234,567.50").first
    expect(amount).to_have_css("text-align", "right")
    expect(page.get_by_role("columnheader", name="amount")).to_have_css("text-align", "right")
    expect(page.get_by_role("columnheader", name="type")).to_have_css("text-align", "left")
    amount.click()
    expect(page.locator("#explanation")).to_contain_text("sums: DIFFERENT")


def test_a_cell_that_silver_does_not_make_is_said_to_differ(gold: Settings, reader: TestClient) -> None:
    DeltaTable(str(tables.DAILY_TOTALS.path(gold))).update({"transactions": "transactions + 1"}, predicate="type = 'Debit'")
    page = html.unescape(reader.get(f"{DAY}&window_start=2013-01-02&type=Debit").text)
    assert "transactions: found 3, the rows give 2" in page
    assert "sums: DIFFERENT" in page


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("type=nothing", "found no such cell in gold.daily_totals: expected values such as type = "),
        ("type='", "found no such cell in gold.daily_totals"),
        ("type=' or 1=1 --", "found no such cell"),
        ("type=x'; drop table cell", "found no such cell"),
        ("window_start=yesterday", "--where: "),
        ("window_start=2013-01-02&type=%00", "found no such cell"),
    ],
)
def test_keys_that_are_none_are_answered_with_a_line(gold: Settings, reader: TestClient, keys: str, says: str) -> None:
    answer = reader.get(f"{DAY}&{keys}")
    assert answer.status_code == 200
    text = html.unescape(answer.text)
    assert says in text
    assert "<pre" not in text


def test_keys_of_another_table_do_not_count_and_unknown_tables_are_refused(gold: Settings, reader: TestClient) -> None:
    assert "sums: equal" not in reader.get(f"{DAY}&window_start=2013-01-02&type=Debit&chosen_for=gold.debit_share").text
    assert reader.get("/explain?table=silver.customers").status_code == 422


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("explain?table=gold.dayly_totals", "table: found 'gold.dayly_totals', expected one of gold.daily_totals, gold.sliding_totals,"),
        ("explain?release=last", "release: found 'last', expected a whole number"),
        ("table?name=gold.dayly_totals", "table: found 'gold.dayly_totals', expected one of bronze.transactions,"),
        ("table?name=gold.daily_totals&page=0", "page: found '0', expected at least 1"),
        ("quarantine?rule=<b>x</b>", "rule: found '<b>x</b>', expected the name of a rule"),
        ("quarantine?by=day", "by: found 'day', expected 'rule', 'batch' or 'source'"),
        ("run?dag_id=medallion", "run_id: found none, expected one"),
        ("nowhere", "found no such page"),
    ],
)
def test_an_address_that_asks_for_what_there_is_not_leads_to_a_page(home: Settings, opened: Open, address: str, says: str) -> None:
    page = opened(address)
    expect(page.locator(".notice.problem")).to_contain_text(says)
    page.get_by_role("link", name="Back to Quality").click()
    expect(page.get_by_role("heading", name="Quality")).to_be_visible()


def test_the_runs_of_a_cell_are_links() -> None:
    by_form, by_hand = "gold run backfill__2013-01-05T00:00:00+00:00: first showed the cell", "silver run 5f3a, rules 2, 1 row of batch 6"
    assert with_runs(by_form) == ["gold run ", "backfill__2013-01-05T00:00:00+00:00", ": first showed the cell"]
    assert with_runs(by_hand) == [by_hand]
    assert with_runs("    C1  2012-12-31  silver run manual__1, rules 2")[1] == "manual__1"


def test_without_gold_or_with_a_broken_log_the_page_says_so(home: Settings, reader: TestClient) -> None:
    home.warehouse.mkdir(parents=True)
    assert "found no gold.daily_totals" in reader.get(DAY).text
    log = Path(tables.DAILY_TOTALS.path(home)) / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("no json")
    answer = reader.get(DAY)
    assert (answer.status_code, "gold.daily_totals" in answer.text) == (200, True)
    assert 'class="notice problem"' in answer.text


def test_from_a_table_by_mouse_to_the_rows_of_a_cell(gold: Settings, opened: Open) -> None:
    page = opened("table?name=gold.daily_totals")
    page.get_by_role("link", name="What made a cell of it").click()
    page.get_by_label("type").fill("Debit")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name="1 cell")).to_be_visible()
    keep(page, "pages-explain-cells")
    page.get_by_role("cell", name="Debit").get_by_role("link").click()  # any cell of the row
    expect(page.get_by_role("heading", name="gold.daily_totals as it is now")).to_contain_text("✓")
    expect(page.locator("#explanation")).to_contain_text("rows: 2 of silver.transactions")
    expect(page.locator("#explanation")).to_contain_text("gold run")
    keep(page, "pages-explain")
    page.get_by_label("Table").select_option("gold.debit_share")  # its keys are asked for at once
    expect(page.get_by_role("textbox", name="day")).to_have_value("")  # the keys were those of another table


def test_an_older_release_is_chosen_by_mouse_and_explained(gold: Settings, opened: Open) -> None:
    publish(gold)
    debits = DeltaTable(str(tables.DAILY_TOTALS.path(gold)))
    debits.update({"transactions": "transactions + 1"}, predicate="type = 'Debit'")
    publish(gold)
    page = opened("explain")
    page.get_by_label("As of").select_option(label=(page.locator("select[name=release] option").last.text_content() or "").strip())
    page.get_by_label("type").fill("Debit")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name="1 cell, in release 1 of ")).to_be_visible()
    page.get_by_role("cell", name="Debit").get_by_role("link").click()
    expect(page.get_by_role("heading", name="gold.daily_totals in release 1 of ")).to_contain_text("✓")
    keep(page, "pages-explain-release-1")
    page.get_by_label("As of").select_option("2")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name="gold.daily_totals in release 2 of ")).to_contain_text("✗")
    page.get_by_role("link", name="All cells of gold.daily_totals").click()
    expect(page.get_by_label("As of")).to_have_value("2")


def test_releases_that_are_offered_can_be_chosen_and_others_are_told(gold: Settings, reader: TestClient) -> None:
    now = datetime.now(UTC)
    released_on(gold, *(now - timedelta(days=days) for days in (30, 20, 3, 1)))
    text = reader.get(DAY).text
    assert re.findall("<option value=.([0-9]*).", text) == ["", "4", "3", "2"]  # 2: what readers saw until 3 came
    archive.copy_release(gold, 1)
    assert re.findall("<option value=.([0-9]*).", reader.get(DAY).text) == ["", "4", "3", "2", "1"]
    gone = html.unescape(reader.get(f"{DAY}&release=9").text)
    assert "there is no release 9: found 1, 2, 3, 4" in gone
    assert '<option value="9" selected>release 9</option>' in gone
    assert reader.get(f"{DAY}&release=-1").status_code == 422
