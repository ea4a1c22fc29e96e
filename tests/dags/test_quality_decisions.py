"""The page Decisions by mouse: a question that is asked again, and the evidence of a backfill."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from spark_jobs.lake import tables
from spark_jobs.lake.tables import ensure_tables
from spark_jobs.releases.decisions import keep_unused
from spark_jobs.runtime.settings import Settings
from tests.dags.conftest import Open
from tests.support import quality_rows as rows
from tests.support.browser import keep
from tests.support.quality_site import as_viewer

DAY = datetime(2013, 1, 5, tzinfo=UTC)
BACKFILL = "backfill__2013-01-05T00:00:00+00:00"


def test_an_answer_that_did_not_count_is_told_beside_the_question(home: Settings, opened: Open) -> None:
    rows.fill(home, 2)
    rows.close_gate(home, 3)
    page = opened("decisions")
    expect(page.get_by_text("did not count")).to_have_count(0)
    because = "the bank knows (not carried out: silver.accounts version 3, batches 1 to 2: unique_ids closed too)"
    keep_unused(home, "release anyway", "Ada", because, "decision__1")
    page.reload()
    told = page.locator(".notice").filter(has_text="did not count")
    expect(told).to_contain_text("Ada answered release anyway at ")
    expect(told).to_contain_text(because)
    keep(page, "pages-11-asked-again")
    expect(page.get_by_role("row").filter(has_text="release anyway (unused answer)")).to_contain_text("Ada")


def test_a_viewer_reads_what_waits_and_is_offered_no_answer(home: Settings, opened: Open) -> None:
    from include.quality_page.access import may_read
    from include.quality_page.app import app

    rows.fill(home, 2)
    rows.close_gate(home, 3)
    page = opened()
    expect(page.get_by_role("link", name="Decide", exact=True)).to_be_visible()
    app.dependency_overrides[may_read] = as_viewer
    page.reload()
    expect(page.get_by_role("link", name="Decide", exact=True)).to_have_count(0)
    page.locator(".ask").get_by_role("link", name="Decisions").click()
    expect(page.get_by_text("An operator answers in Airflow.")).to_be_visible()
    expect(page.get_by_text("80 of 100 records are in quarantine")).to_be_visible()
    expect(page.locator(".button")).to_have_count(0)
    keep(page, "pages-14-viewer")


def test_a_backfill_that_waits_for_a_decision_about_live_rows_says_so(
    home: Settings, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    from include.quality_page import runs

    rows.fill(home, 2)
    rows.close_gate(home, 3)
    task = runs.Task("rebuild", "deferred", DAY, None, 1, None)  # there is no database of Airflow here
    monkeypatch.setattr(runs, "tasks_of", lambda *_: [task])
    page = opened(f"run?dag_id=backfill_days&run_id={quote(BACKFILL, safe='')}")
    waits = page.locator(".ask")
    expect(waits).to_contain_text("live rows come first, and the gate of silver waits for a decision")
    waits.get_by_role("link", name="Decisions").click()
    expect(page.get_by_text("80 of 100 records are in quarantine")).to_be_visible()
    monkeypatch.setattr(runs, "tasks_of", lambda *_: [replace(task, state="success")])
    page.go_back()
    page.reload()
    expect(page.get_by_text("No gate has judged anything in this run")).to_be_visible()
    expect(waits).to_have_count(0)


def test_the_evidence_of_a_backfill_counts_the_rows_of_its_range(home: Settings, opened: Open) -> None:
    rows.fill(home, 2)
    ensure_tables(home, [tables.BACKFILLS])
    within, after = (int((DAY + timedelta(hours=hours)).timestamp() * 1000) for hours in (23, 24))
    old = [rows.quarantined(1, "transactions", at, rows.transaction(amount=-1, eventTime=within), ["amount_not_negative"]) for at in (1, 2)]
    live = [rows.quarantined(2, "transactions", at, rows.transaction(type="x", eventTime=after), ["type_known"]) for at in range(10, 50)]
    unknown = rows.quarantined(1, "transactions", 3, b"[1]", ["parseable"])
    rows.write(home, tables.TRANSACTIONS_QUARANTINE, [*old, *live, unknown])
    facts = {"number": 1, "backfill_id": "b", "run_id": BACKFILL, "part": "transactions", "rows": 8, "changed": 2}
    steps = [("begun", DAY - timedelta(days=1)), ("done", DAY - timedelta(days=1)), ("begun", DAY), ("done", DAY)]
    done = [
        facts | {"number": at, "state": state, "step_start": start, "step_end": start + timedelta(days=1), "recorded_at": rows.done_at(3)}
        for at, (state, start) in enumerate(steps)
    ]
    rows.write(home, tables.BACKFILLS, done)
    failed = rows.verdict(3, "silver.transactions", "quarantined_per_thousand") | {"run_id": BACKFILL, "_first_batch": 1, "_last_batch": 2}
    rows.write(home, tables.QUALITY_RESULTS, [failed | {"_found": ["250"], "_expected": ["at most 100"]}])
    page = opened("decisions")
    says = "2 of the 8 records of 2013-01-05 00:00 to 2013-01-06 00:00 UTC are in quarantine (25 %)"
    expect(page.get_by_text(says)).to_be_visible()
    section = page.locator("section").filter(has_text=says)
    expect(section).to_contain_text("Found 250, expected at most 100")
    expect(section.get_by_role("link", name="amount_not_negative")).to_be_visible()
    expect(section).to_contain_text("amount -1 is negative")
    expect(section.get_by_text("type_known")).to_have_count(0)  # those are the live run's
    choices = page.get_by_role("row")
    anyway = choices.filter(has_text="release anyway").first
    expect(anyway).to_contain_text("Readers get what was rebuilt: 4 changed rows of the tables, from 16 records judged again.")
    expect(anyway).not_to_contain_text("more row")  # nothing live waits for the decision
    back = choices.filter(has_text="roll back").first
    expect(back).to_contain_text("Silver and gold return to it: 4 rebuilt rows become what they were. Repair")
    rows.write(home, tables.BATCHES, [rows.batch(4, "transactions")])  # a live run brings more
    page.reload()
    expect(anyway).to_contain_text("from 16 records judged again. Readers get 98 more rows of silver by live runs (98 transactions)")
    expect(back).to_contain_text("4 rebuilt rows become what they were, and 100 records are taken from bronze again")
    keep(page, "pages-12-backfill")


def test_of_many_decisions_the_older_ones_are_folded(home: Settings, opened: Open) -> None:
    rows.fill(home, 1)
    rows.write(home, tables.DECISIONS, [rows.decision(number, "silver", "wait", "Ada", f"reason {number}") for number in range(1, 24)])
    page = opened("decisions")
    expect(page.get_by_text("reason 23", exact=True)).to_be_visible()
    expect(page.get_by_text("reason 3", exact=True)).to_be_hidden()
    page.get_by_text("3 older decisions").click()
    expect(page.get_by_text("reason 1", exact=True)).to_be_visible()


def test_on_a_narrow_screen_decisions_are_read_without_scrolling(home: Settings, opened: Open) -> None:
    rows.fill(home, 3)
    rows.write(home, tables.DECISIONS, [rows.decision(2, "gold", "release anyway", "Ivan", "a known fault of one branch")])
    page = opened("decisions", 390)
    expect(page.get_by_text("a known fault of one branch")).to_be_attached()
    assert page.locator(".wide").evaluate_all("boxes => boxes.filter(e => e.scrollWidth > e.clientWidth).length") == 0
