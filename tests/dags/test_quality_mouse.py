"""The page "Quality" by mouse, in Chromium without Airflow: the ways that people take, light and dark, wide and narrow."""

import re

import pytest
from playwright.sync_api import expect

from spark_jobs.lake import tables
from spark_jobs.runtime.settings import Settings
from tests.dags.conftest import Open
from tests.support import quality_rows as rows
from tests.support.browser import keep


def test_from_the_head_of_the_page_to_the_answer(home: Settings, opened: Open) -> None:
    rows.fill(home, 12)
    rows.close_gate(home, 13)
    rows.judged(home, 13, "silver.transactions", 500, quarantined_per_thousand=800)
    page = opened()
    head = page.locator(".tiles")
    expect(head).to_contain_text("release 12")
    expect(head).to_contain_text("silver closed")
    expect(head).to_contain_text("81 records")
    keep(page, "pages-1-overview")
    page.get_by_role("link", name="Decide").click()
    expect(page.get_by_text("The gate of silver is closed.")).to_be_visible()
    expect(page.get_by_text("80 of 100 records are in quarantine (80 %); the limit is 50 (50 %)")).to_be_visible()
    expect(page.get_by_text("At most 500 quarantined per thousand. Found 800, expected at most 500.")).to_be_visible()
    choices = page.get_by_role("row")
    expect(choices.filter(has_text="release anyway").first).to_contain_text("Readers get 15 more rows of silver (15 transactions)")
    expect(choices.filter(has_text="release anyway").first).to_contain_text("80 records stay in quarantine")
    expect(choices.filter(has_text="roll back").first).to_contain_text("100 records are taken from bronze again")
    expect(choices.filter(has_text="wait").first).to_contain_text("Readers stay with release 12, whose data is")
    expect(page.get_by_text("amount 98.901 has 3 decimals, at most 2 are allowed")).to_be_visible()
    answer = page.get_by_role("link", name="Answer in Airflow").get_attribute("href") or ""
    assert re.fullmatch(r"/dags/quality_decision/runs/decision__scheduled__2026-03-01T[^/+]*/tasks/ask/required_actions", answer)
    keep(page, "pages-2-decision")
    page.get_by_role("link", name="amount_scale").click()
    expect(page.get_by_role("heading", name="Quarantine")).to_be_visible()
    expect(page.get_by_text("40 rows", exact=True)).to_be_visible()


def test_what_was_decided_is_a_page(home: Settings, opened: Open) -> None:
    rows.fill(home, 3)
    wait, anyway = rows.decision(3, "silver", "wait", "Olga", "asked the bank"), rows.decision(2, "gold", "release anyway", "Ivan", "known")
    rows.write(home, tables.DECISIONS, [wait, anyway])
    page = opened()
    expect(page.locator(".ask")).to_contain_text("Olga decided to wait at 2026-03-01 00:16 UTC: asked the bank")
    page.get_by_role("link", name="Decisions").click()
    expect(page.get_by_text("answer there what is open under Required Actions")).to_be_visible()
    log = page.get_by_role("table").last.get_by_role("row")
    expect(log).to_have_count(3)
    expect(log.nth(1)).to_contain_text("Olga")
    expect(log.nth(2)).to_contain_text("release anyway")
    expect(page.get_by_role("link", name="Trigger quality_decision")).to_have_attribute("href", "/dags/quality_decision")


def test_the_graph_leads_from_topics_to_the_release(home: Settings, opened: Open) -> None:
    rows.fill(home, 2)
    page = opened()
    graph = page.locator(".lineage")
    expect(graph.locator("a")).to_have_count(3 + sum(map(len, tables.LAYERS.values())) + 1)
    broken = graph.locator("[data-name='silver.customers_quarantine']")
    expect(broken).to_have_class(re.compile("is-closed is-old"))
    expect(graph.locator("[data-name='gold.debit_share']")).to_have_class(re.compile("is-passed"))
    graph.locator("[data-name='silver.customers']").hover()
    lit = {(path.get_attribute("data-from"), path.get_attribute("data-to")) for path in graph.locator("path.lit").all()}
    assert lit == {("bronze.customers", "silver.customers"), ("silver.customers", "gold.enriched_transactions")}
    broken.click()
    expect(page.get_by_role("heading", name="silver.customers_quarantine")).to_be_visible()


def test_cards_are_found_by_word_and_verdict(home: Settings, opened: Open) -> None:
    rows.fill(home, 2)
    page = opened()
    card = page.locator(".card:visible")
    expect(card).to_have_count(sum(map(len, tables.LAYERS.values())))
    page.get_by_label("Find").fill("debit_share_percent")  # a column
    expect(card).to_have_count(1)
    expect(card).to_contain_text("gold.debit_share")
    expect(card).to_contain_text("200 rows")
    expect(card).to_contain_text("+100")
    expect(page.locator("#shown")).to_have_text("1")
    page.get_by_label("Find").fill("")
    page.get_by_label("Verdict").select_option("closed")
    expect(card).to_have_count(1)
    expect(card).to_contain_text("silver.customers_quarantine")
    card.get_by_text("8 columns").click()
    expect(card.get_by_text("broken_rules", exact=True)).to_be_visible()


def test_quarantine_is_a_workbench(home: Settings, opened: Open) -> None:
    rows.fill(home, 2)
    rows.close_gate(home, 3)
    page = opened("quarantine")
    expect(page.get_by_text("80 rows", exact=True)).to_be_visible()
    first = page.locator("details.row").first
    expect(first.locator("mark").first).to_have_text("amount")
    expect(first.locator("table")).to_be_hidden()
    first.locator("summary").first.click()
    expect(first.locator("tr.culprit")).to_contain_text("98.901")
    expect(first).to_contain_text("Judged in run scheduled__2026-03-01T00:15:00+00:00")
    expect(first).to_contain_text("2026-03-01 00:15:00 UTC")
    page.get_by_role("link", name="type_known").click()
    expect(page.get_by_text("20 rows", exact=True)).to_be_visible()
    expect(page.locator("details.row").first).to_contain_text("type is credit. Expected: Exactly Credit or Debit.")
    expect(page.locator("details.row").first).to_contain_text("amount -5 is negative, zero or more is allowed")
    expect(page.get_by_text("redrive --rule type_known --table silver.transactions_quarantine", exact=False)).to_be_visible()
    page.get_by_label("Batches").fill("3")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("--table silver.transactions_quarantine --first-batch 3")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Masked CSV").click()
    text = download.value.path().read_text()
    assert text.count("\n") == 21
    assert "type_known amount_not_negative" in text
    page.get_by_role("link", name="batch", exact=True).click()
    expect(page.get_by_role("link", name="3", exact=True)).to_be_visible()
    page.get_by_role("link", name="source", exact=True).click()
    page.get_by_role("link", name="transactions", exact=True).click()
    command = page.get_by_text("redrive --rule type_known --table silver.transactions_quarantine --first-batch 3 --source transactions")
    command.scroll_into_view_if_needed()
    keep(page, "pages-3-quarantine")


def test_a_tables_page_has_what_failed_first_with_its_trend(home: Settings, opened: Open) -> None:
    rows.fill(home, 4)
    rows.close_gate(home, 5)
    for number in range(1, 6):
        rows.judged(home, number, "silver.transactions", missing_ids=0, quarantined_per_thousand=800 if number == 5 else 0)
    rows.write(home, tables.DECISIONS, [rows.decision(5, "silver", "release anyway", "Ada", "a known fault")])
    page = opened("table?name=silver.transactions")
    failed = page.get_by_role("table").first
    expect(failed).to_contain_text("quarantined_per_thousand")
    expect(page.get_by_role("heading", name="1 expectation failed", exact=True)).to_be_visible()
    expect(failed).to_contain_text("800")
    expect(failed.locator("svg g")).to_have_count(5)  # a bar a run
    expect(failed.locator("svg .bad")).to_have_count(1)
    expect(failed.locator("svg .warn")).to_have_count(0)
    passed = page.get_by_text("No missing ids.")
    expect(passed).to_be_hidden()
    page.get_by_text("1 expectation passed").click()
    expect(passed).to_be_visible()
    expect(page.get_by_role("heading", name="Rows")).to_be_visible()
    expect(page.get_by_text("400 rows", exact=True)).to_be_visible()
    expect(page.get_by_text("release anyway, by Ada at 2026-03-01 00:26 UTC: a known fault").first).to_be_visible()
    verdicts = page.get_by_role("table").last.get_by_role("row")
    expect(verdicts).to_have_count(6)
    expect(verdicts.nth(1).get_by_role("cell").nth(4)).to_have_text("5")
    keep(page, "pages-4-table")
    page.get_by_role("link", name="bronze.transactions", exact=True).click()
    expect(page.get_by_text("Made from topic transactions. From it: silver.transactions,")).to_be_visible()


def test_bytes_are_those_of_the_released_versions(home: Settings, opened: Open) -> None:
    rows.fill(home, 1)
    rows.write(home, tables.BRONZE_TRANSACTIONS, [rows.bronze(3, 1)])
    rows.write(home, tables.RELEASES, [rows.release(2, 2)])
    page = opened("table?name=bronze.transactions")
    expect(page.get_by_role("heading", name="Bytes")).to_be_visible()
    sizes = [page.locator("section").last.locator("g title").nth(place).text_content() or "" for place in (0, 1)]
    assert [re.sub("[0-9.]+ (k?B)$", "\\1", size) for size in sizes] == [
        "release 1, 2026-03-01 00:06 UTC: kB",
        "release 2, 2026-03-01 00:11 UTC: kB",
    ]
    small, large = (float(re.findall("([0-9.]+) kB", size)[0]) for size in sizes)
    assert 0 < small < large


def test_a_runs_page_says_where_every_record_went(home: Settings, opened: Open) -> None:
    rows.fill(home, 3)
    rows.close_gate(home, 4)
    lost = rows.batch(4, "customers") | {"output": 90}
    rows.write(home, tables.BATCHES, [lost])
    page = opened(f"run?dag_id=medallion&run_id={rows.run_id(4).replace('+', '%2B')}")
    transactions, customers = (page.locator(".conserved").nth(place) for place in (0, 1))
    expect(transactions).to_contain_text("transactions: 100 records from bronze \u2713 every one is accounted for")
    expect(transactions).to_contain_text("as many as in the run before; in quarantine 80 %, before 1 %")
    expect(transactions.locator(".bar span")).to_have_count(3)
    expect(transactions.get_by_role("img", name="in silver 15, 15 %; duplicates 5, 5 %; in quarantine 80, 80 %")).to_be_visible()
    expect(customers).to_contain_text("\u2717 8 unaccounted for")
    expect(page.get_by_role("row").filter(has_text="quarantined_per_thousand")).to_contain_text("found 800, expected at most 500")
    expect(page.get_by_role("link", name="DAG run")).to_have_count(0)  # it is this run
    keep(page, "pages-5-run")
    expect(page.locator(".ask")).to_contain_text("Silver closed: silver.transactions. See the evidence, and what each choice does.")
    page.locator(".ask").get_by_role("link", name="Decisions").click()
    expect(page.get_by_text("version 4, batch 4.")).to_be_visible()


@pytest.mark.parametrize(("runs", "windows"), [(1, [(400, "dark"), (1920, "light")]), (200, [(1280, "dark"), (400, "light")])])
def test_every_page_fits_its_window(home: Settings, opened: Open, runs: int, windows: list[tuple[int, str]]) -> None:
    rows.fill(home, runs)
    rows.close_gate(home, runs + 1)
    run = f"run?dag_id=medallion&run_id={rows.run_id(runs).replace('+', '%2B')}"
    for width, scheme in windows:
        page = opened("", width, scheme)
        site = page.url
        for number, path in enumerate(("", "decisions", "quarantine", "table?name=silver.transactions", run, "explain")):
            page.goto(site + path)
            keep(page, f"pages-fit-{number}-{runs}-{width}-{scheme}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert (page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 17, 17)") == (scheme == "dark")


def test_on_a_narrow_screen_the_graph_begins_at_the_closed_gate(home: Settings, opened: Open) -> None:
    rows.fill(home, 2)
    page = opened("", 390)
    expect(page.get_by_text("It scrolls sideways.")).to_be_visible()
    expect(page.locator(".lineage [data-name='silver.customers_quarantine'] rect")).to_be_in_viewport(ratio=0.9)
    expect(page.locator(".tile.closed")).not_to_contain_text(",")  # it would stand alone on its line
    page.locator(".tiles").get_by_role("link", name="silver.customers_quarantine").click()
    expect(page.get_by_role("heading", name="silver.customers_quarantine")).to_be_visible()
    wide = opened("", 1400)
    expect(wide.get_by_text("It scrolls sideways.")).to_be_hidden()


def test_on_a_narrow_screen_a_verdict_is_read_without_scrolling(home: Settings, opened: Open) -> None:
    rows.fill(home, 2)
    page = opened(f"run?dag_id=medallion&run_id={rows.run_id(2).replace('+', '%2B')}", 390)
    expect(page.get_by_text("CLOSED", exact=True)).to_be_in_viewport(ratio=1)
    cell = page.locator("td[data-label=Batches]").first
    assert cell.evaluate("e => getComputedStyle(e, '::before').content") == '"Batches "'
    rows.close_gate(home, 3)
    rows.judged(home, 3, "silver.transactions", 500, quarantined_per_thousand=800)
    table = opened("table?name=silver.transactions", 390)
    expect(table.locator("td[data-label=Expected]").first).to_be_in_viewport(ratio=1)
    expect(table.locator("td.trend svg").first).to_be_in_viewport(ratio=1)
    keep(table, "pages-15-narrow-table")


def test_the_page_takes_airflows_colours(home: Settings, opened: Open) -> None:
    rows.fill(home, 1)
    page = opened(scheme="light")
    page.evaluate("localStorage.setItem('theme', 'dark')")
    page.reload()
    expect(page.locator("body")).to_have_css("background-color", "rgb(17, 17, 17)")


def test_the_rules_to_choose_from_are_those_of_the_chosen_table(home: Settings, opened: Open) -> None:
    rows.fill(home, 2)
    page = opened("quarantine?rule=parseable")
    page.get_by_label("Table").select_option("silver.customers_quarantine")
    expect(page).to_have_url(re.compile("table=silver.customers_quarantine"))
    expect(page.get_by_label("Rule")).to_have_value("")


def test_in_airflows_frame_links_to_airflow_leave_it_and_colours_change_at_once(home: Settings, opened: Open) -> None:
    rows.fill(home, 1)
    page = opened()
    page.goto(page.url.removesuffix("quality/"))
    frame = page.frame_locator("iframe")
    expect(frame.locator("body")).to_have_css("background-color", "rgb(255, 255, 255)")
    page.evaluate("localStorage.setItem('theme', 'dark')")
    expect(frame.locator("body")).to_have_css("background-color", "rgb(17, 17, 17)")
    frame.get_by_role("link", name="DAG run").first.click()
    page.wait_for_url("**/dags/medallion/runs/scheduled__2026-03-01T00%3A05%3A00%2B00%3A00")


def test_before_the_first_run_the_page_says_what_comes(home: Settings, opened: Open) -> None:
    page = opened()
    expect(page.locator(".notice")).to_contain_text("It is made by the first run of the DAG bronze_ingestion.")
    keep(page, "pages-6-no-warehouse")
    home.warehouse.mkdir(parents=True)
    page.reload()
    expect(page.locator(".tiles")).to_contain_text("no release yet")
    expect(page.locator(".tiles")).to_contain_text("none has judged yet")
    expect(page.locator(".card:visible").first).to_contain_text("not judged yet")
    keep(page, "pages-7-empty-warehouse")
    page.get_by_role("link", name="Decisions").click()
    expect(page.get_by_text("Nothing to decide yet: no gate has judged anything.")).to_be_visible()
    page.get_by_role("link", name="Quarantine").click()
    expect(page.get_by_text("No record of this topic has broken a rule.")).to_be_visible()


def test_a_broken_log_is_named_and_no_gate_is_called_open(home: Settings, opened: Open) -> None:
    rows.fill(home, 2)
    for log in (tables.QUALITY_RESULTS.path(home) / "_delta_log").iterdir():
        log.write_text("rubbish")
    page = opened()
    expect(page.locator(".notice.problem")).to_contain_text("control.quality_results cannot be read")
    expect(page.locator(".tile.closed")).to_contain_text("not known")
    expect(page.get_by_text("\u2713 open")).to_have_count(0)
    keep(page, "pages-8-broken-log")


def test_markup_in_values_runs_no_script(home: Settings, opened: Open) -> None:
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    rows.fill(home, 1)
    rows.close_gate(home, 2)
    rows.write(home, tables.TRANSACTIONS_QUARANTINE, [rows.quarantined(2, evil, 1, rows.transaction(amount=-1), [evil], evil)])
    rows.write(home, tables.DECISIONS, [rows.decision(2, "silver", "wait", evil, evil)])
    page = opened()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))  # an open one stops the page, and the test
    site = page.url
    for path in ("", "decisions", "quarantine", f"run?dag_id={evil}&run_id={evil}"):
        page.goto(site + path)
        expect(page.get_by_text("<img src=x").first).to_be_attached()
        expect(page.locator("img")).to_have_count(0)
    assert dialogs == []
