"""The page Quarantine starts a re-drive in Airflow, by mouse in Chromium. Airflow's interface is answered by the test."""

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from spark_jobs.runtime.settings import Settings
from tests.dags.conftest import Open
from tests.support import quality_rows as rows
from tests.support.browser import keep

RUNS = "**/api/v2/dags/redrive_rows/dagRuns"


@pytest.fixture
def page(home: Settings, opened: Open) -> Page:
    rows.fill(home, 2)
    rows.close_gate(home, 3)
    return opened("quarantine")


def answer(page: Page, status: int, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Have Airflow answer so; gives what it was asked."""
    asked: list[dict[str, Any]] = []

    def fulfil(route: Route) -> None:
        assert route.request.method == "POST"
        assert route.request.headers["content-type"] == "application/json"
        asked.append(json.loads(route.request.post_data or ""))
        route.fulfill(status=status, content_type="application/json", body=json.dumps(body))

    page.route(RUNS, fulfil)
    return asked


def choose(page: Page) -> None:
    page.get_by_role("link", name="type_known").click()
    page.get_by_label("Batches").fill("3")
    page.get_by_role("button", name="Show").click()


def test_a_re_drive_is_started_with_the_choice_filled_in(page: Page) -> None:
    asked = answer(page, 200, {"dag_run_id": "manual__2026-03-01T00:20:00+00:00"})
    start = page.get_by_role("button", name="Start in Airflow")
    expect(start).to_be_disabled()  # no rule is chosen
    choose(page)
    expect(page.get_by_text("the 20 rows chosen above, and nothing else")).to_be_visible()
    dry_run = page.get_by_label("Dry run")
    expect(dry_run).to_be_checked()
    start.click()
    expect(page.get_by_role("status")).to_contain_text("Dry run started: manual__2026-03-01T00:20:00+00:00")
    keep(page, "pages-redrive")
    dry_run.uncheck()
    start.click()
    expect(page.get_by_role("status")).to_have_text("✓ Started: manual__2026-03-01T00:20:00+00:00")
    chosen = {"rule": "type_known", "table": "silver.transactions_quarantine", "first_batch": 3, "last_batch": None, "source": ""}
    assert asked == [{"logical_date": None, "conf": chosen | {"dry_run": dry}} for dry in (True, False)]
    page.get_by_role("status").get_by_role("link").click()
    page.wait_for_url(re.compile(r"/dags/redrive_rows/runs/manual__2026-03-01T00%3A20%3A00%2B00%3A00$"))


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (403, {"detail": "Forbidden"}, "Airflow does not let you trigger it: that takes the role user, or more."),
        (400, {"detail": "'x' does not match"}, "Airflow did not start it (400): 'x' does not match"),
        (422, {"detail": [{"msg": "<b>no</b>"}]}, 'Airflow did not start it (422): [{"msg":"<b>no</b>"}]'),
    ],
)
def test_what_airflow_refuses_is_told(page: Page, status: int, body: dict[str, Any], says: str) -> None:
    answer(page, status, body)
    choose(page)
    page.get_by_role("button", name="Start in Airflow").click()
    expect(page.get_by_role("status")).to_have_text(says)
    expect(page.get_by_role("button", name="Start in Airflow")).to_be_enabled()


def test_an_airflow_that_does_not_answer_is_told(page: Page) -> None:
    page.route(RUNS, lambda route: route.abort())
    choose(page)
    page.get_by_role("button", name="Start in Airflow").click()
    expect(page.get_by_role("status")).to_have_text("Airflow did not answer.")
