"""Questions to a person, by mouse in Airflow's pages: one that is asked again, one of a backfill, and the form of a backfill.

The closed verdicts are made up, and removed again: what is asked, and what an answer does, needs no bad data.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from playwright.sync_api import Page, expect

from include.demo.waiting import wait_for_dags
from include.stack import airflow
from include.stack.airflow_api import AirflowApi
from spark_jobs import control
from spark_jobs.lake.tables import DECISIONS, GOLD, QUALITY_RESULTS, SILVER, ensure_tables
from spark_jobs.runtime.settings import Settings
from tests.support.browser import keep, logged_in
from tests.support.ledger import await_that
from tests.support.questions import judge

pytestmark = [pytest.mark.integration, pytest.mark.airflow]

DAG = "quality_decision"
LIVE, BACKFILL = "manual__made_up", "backfill__2013-01-05T00:00:00+00:00"
RUN_SECONDS = 300


@pytest.fixture
def page(settings: Settings, api: AirflowApi) -> Iterator[Page]:
    """Airflow after the login; verdicts that the test has made up go again."""
    ensure_tables(settings, (*SILVER, *GOLD, QUALITY_RESULTS, DECISIONS))
    wait_for_dags(api, DAG, "backfill_days")
    with logged_in(settings.home) as page:
        yield page
    DeltaTable(str(QUALITY_RESULTS.path(settings))).delete(f"run_id in ('{LIVE}', '{BACKFILL}')")


def test_a_question_that_is_asked_again_says_why_the_answer_did_not_count(settings: Settings, api: AirflowApi, page: Page) -> None:
    judge(settings, run_id=LIVE, at=datetime.now(UTC))
    asked = api.trigger(DAG)
    await_question(settings.home, api, asked)
    judge(settings, run_id=LIVE, at=datetime.now(UTC) + timedelta(seconds=1), table="silver.accounts")
    answer(page, asked, "release anyway", "the bank has confirmed them")
    assert api.wait_for_run(DAG, asked, RUN_SECONDS) == "failed"
    await_that(lambda: api.runs(DAG)[0] != asked)
    next_run = api.runs(DAG)[0]
    assert next_run.startswith(f"decision__{LIVE}__")
    await_question(settings.home, api, next_run)
    open_question(page, next_run)
    again = page.get_by_text("Asked again.").locator("xpath=..")
    for part in (
        airflow.USER,
        "release anyway",
        "which did not count",
        "the bank has confirmed them",
        "silver.accounts version 3",
        "closed too",
    ):
        expect(again).to_contain_text(part)
    keep(page, "question-asked-again")
    page.goto("/plugin/quality")
    frame = page.frame_locator("iframe")
    frame.get_by_role("link", name="Decide").click()
    expect(frame.get_by_text("did not count")).to_contain_text("silver.accounts version 3")
    expect(frame.get_by_role("link", name="Answer in Airflow")).to_have_attribute("href", re.compile(f"/{DAG}/runs/{next_run}/"))
    keep(page, "question-asked-again-on-the-page")
    answer(page, next_run, "wait", "we look into both")
    assert api.wait_for_run(DAG, next_run, RUN_SECONDS) == "success"
    newest = max(control.read(settings, DECISIONS).to_pylist(), key=lambda row: row["decided_at"])
    assert (newest["choice"], newest["why"]) == ("wait", "we look into both")


def test_a_question_of_a_backfill_has_what_was_found_and_leads_to_its_run(settings: Settings, api: AirflowApi, page: Page) -> None:
    judge(settings, run_id=BACKFILL, at=datetime.now(UTC))
    asked = api.trigger(DAG)
    await_question(settings.home, api, asked)
    open_question(page, asked)
    row = page.get_by_role("row").filter(has_text="unique_ids")
    expect(row).to_contain_text("at most 0")
    expect(page.get_by_role("cell", name="\N{EN DASH}")).to_have_count(0)
    link = page.get_by_role("link", name=BACKFILL)
    expect(link).to_have_attribute("href", re.compile("/dags/backfill_days/runs/backfill__2013-01-05"))
    expect(page.get_by_role("link", name="silver.transactions")).to_have_attribute("href", re.compile("^http://.*/quality/data_docs/"))
    evidence = page.get_by_role("link", name="The evidence")
    expect(evidence).to_have_attribute("href", re.compile("/plugin/quality/quality/decisions$"))
    keep(page, "question-of-a-backfill")
    answer(page, asked, "wait", "the days are looked into")
    assert api.wait_for_run(DAG, asked, RUN_SECONDS) == "success"


def test_the_form_of_a_backfill_says_what_to_leave_empty(api: AirflowApi, page: Page) -> None:
    page.goto("/dags/backfill_days")
    page.get_by_test_id("trigger-dag-button").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("Leave empty in a backfill.").first).to_be_visible()
    expect(dialog.get_by_text("Run this Dag for a range of dates")).to_be_visible()
    keep(page, "form-of-a-backfill")


def await_question(home: Path, api: AirflowApi, run_id: str) -> None:
    """Return when somebody is asked, and Airflow's scheduler knows that the process that asks has ended."""
    noticed = re.compile(rf"Received executor event with state success .*task_id='ask', run_id='{re.escape(run_id)}'")
    scheduler = home / "stack" / "airflow" / "airflow-scheduler.log"
    await_that(lambda: noticed.search(scheduler.read_text(errors="replace")))
    await_that(lambda: api.task_states(DAG, run_id)["ask"] == "awaiting_input")


def open_question(page: Page, run_id: str) -> None:
    page.goto(f"/dags/{DAG}/runs/{run_id.replace('+', '%2B')}/tasks/ask/required_actions")
    page.get_by_text("Readers see").wait_for()


def answer(page: Page, run_id: str, choice: str, reason: str) -> None:
    """Open the question, give the reason, press the button."""
    open_question(page, run_id)
    page.locator("[name=element_reason]").fill(reason)
    page.get_by_role("button", name=choice, exact=True).click()
    page.get_by_text("Response received at").wait_for()
