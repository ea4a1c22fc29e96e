"""The page "Quality" says what runs now, and how far it has come."""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fastapi.testclient import TestClient
from playwright.sync_api import expect

from spark_jobs.lake import tables
from spark_jobs.runtime.atomic_files import write_whole
from spark_jobs.runtime.settings import Settings
from tests.dags.conftest import Open
from tests.support import quality_rows as rows
from tests.support.browser import keep


def test_a_job_under_way_is_told_with_its_run(home: Settings, reader: TestClient) -> None:
    rows.fill(home, 1)
    facts = {"job": "backfill", "run_id": "backfill__2013-01-05T00:00:00+00:00", "says": "3 of 10 days in 0:01:00", "said_at": time.time()}
    file = home.checkpoints / "progress" / "backfill-1.json"
    write_whole(file, json.dumps(facts))
    text = reader.get("/").text
    assert "<b>Under way:</b> backfill, 3 of 10 days in 0:01:00" in text
    assert "/run?dag_id=backfill_days&amp;run_id=backfill__2013-01-05" in text
    write_whole(file, json.dumps(facts | {"job": "maintenance", "link": "http://127.0.0.1:4040"}))
    text = reader.get("/").text
    assert '<a href="http://127.0.0.1:4040" target="_blank" rel="noopener">Spark' in text
    assert "dag_id=backfill_days" not in text  # this run is none that the page knows
    file.unlink()
    assert "Under way" not in reader.get("/").text


def test_the_page_of_a_backfills_run_has_its_steps(home: Settings, reader: TestClient) -> None:
    run_id = "backfill__2013-01-05T00:00:00+00:00"
    days = [datetime(2013, 1, day, tzinfo=UTC) for day in (5, 6, 7)]
    rows.write(home, tables.BACKFILLS, [_step(run_id, number, state, *days[number : number + 2]) for number in (0, 1) for state in _STATES])
    rows.write(home, tables.BACKFILLS, [_step("another", 3, "done", *days[:2])])
    text = reader.get(f"/run?dag_id=backfill_days&run_id={run_id.replace('+', '%2B')}").text
    assert '<span class="big">2,468 rows</span> judged again in 2 steps, 6 rows of the tables changed.' in text
    assert text.count("<td>transactions</td>") == 2
    assert "2013-01-06 00:00:00</time></td><td><time" in text


_STATES = ("begun", "done")


def _step(run_id: str, number: int, state: str, start: datetime, end: datetime) -> dict[str, object]:
    counts = {"rows": 1234, "changed": 3} if state == "done" else {}
    facts = {"number": number, "backfill_id": "b", "run_id": run_id, "state": state, "part": "transactions"}
    return facts | counts | {"step_start": start, "step_end": end, "recorded_at": end}


def test_a_page_refreshes_itself_while_a_job_is_under_way_and_keeps_what_is_open(home: Settings, opened: Open) -> None:
    rows.fill(home, 2)
    file = under_way(home, "silver", "1 of 3 topics")
    page = opened(clocked=True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    expect(page.get_by_text("Under way: silver, 1 of 3 topics")).to_be_visible()
    card = page.locator(".card").filter(has=page.get_by_role("link", name="gold.debit_share", exact=True))
    card.get_by_text("4 columns").click()
    page.evaluate("window.scrollBy(0, 300)")
    top = page.evaluate("window.scrollY")
    under_way(home, "silver", "2 of 3 topics")
    page.clock.run_for(10_500)
    expect(page.get_by_text("Under way: silver, 2 of 3 topics")).to_be_attached()
    expect(card.locator("details")).to_have_attribute("open", "")
    expect(card.locator("summary")).to_be_focused()
    assert page.evaluate("window.scrollY") == top
    page.locator(".lineage [data-name='silver.customers']").hover()
    expect(page.locator("path.lit")).to_have_count(2)  # what the mouse does is heard on the new page, too
    file.unlink()
    rounds = [len(asked)]
    while len(rounds) < 5 or rounds[-1] != rounds[-5]:  # for a minute, as the next job may begin; a busy machine may be slow to answer
        page.clock.run_for(10_500)
        page.wait_for_timeout(1_000)
        rounds.append(len(asked))
    assert rounds[-1] >= 6
    expect(page.get_by_text("Under way")).to_have_count(0)


def test_a_page_of_which_nothing_is_under_way_asks_for_nothing(home: Settings, opened: Open) -> None:
    rows.fill(home, 1)
    page = opened(clocked=True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(120_000)
    page.wait_for_timeout(500)
    assert asked == []


def test_the_page_of_a_run_refreshes_itself_for_that_run_only(home: Settings, reader: TestClient) -> None:
    rows.fill(home, 1)
    under_way(home, "silver", "1 of 3 topics")
    run = f"/run?dag_id=medallion&run_id={rows.run_id(1).replace('+', '%2B')}"
    assert "data-under-way" in reader.get(run).text
    assert "data-under-way" not in reader.get("/run?dag_id=medallion&run_id=scheduled__2026").text
    by_hand = reader.get(f"/run?dag_id=medallion&run_id={'0a' * 16}").text
    assert f"<h1>A job that was started by hand: {'0a' * 16}</h1>" in by_hand
    assert f"<title>A job that was started by hand: {'0a' * 16}</title>" in by_hand


def test_topics_have_the_age_of_the_newest_record_that_bronze_has_taken(home: Settings, opened: Open) -> None:
    rows.fill(home, 1)
    now = datetime.now(UTC)
    rows.write(home, tables.BRONZE_TRANSACTIONS, [rows.bronze(3, 7000) | {"_timestamp": now - timedelta(minutes=5)}])
    page = opened()
    fresh = page.locator(".lineage [data-name='kafka.transactions']")
    expect(fresh.locator(".age")).to_have_text("5 min")
    assert "is-old" not in (fresh.get_attribute("class") or "")
    expect(page.locator(".lineage [data-name='kafka.accounts'] title")).to_have_text("topic accounts: bronze has taken no record")
    keep(page, "pages-13-fresh-topics")


def under_way(home: Settings, job: str, says: str) -> Path:
    facts = {"job": job, "run_id": rows.run_id(1), "says": says, "said_at": time.time()}
    write_whole(file := home.checkpoints / "progress" / f"{job}-1.json", json.dumps(facts))
    return file
