"""A closed gate and its operator: bad rows close silver's gate, and somebody decides by mouse in Airflow's pages.

Bronze is filled by a job of its own, so that each test knows what the next run of `medallion` finds.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from include.demo.reconciliation import reconcile
from include.demo.waiting import wait_for_dags
from include.producer import Disturbances, Message, generated_sources, plan_messages, publish
from include.stack import airflow
from include.stack.airflow_api import AirflowApi
from spark_jobs import control
from spark_jobs.lake.tables import DECISIONS, GOLD, SILVER
from spark_jobs.releases.releases import latest_release, newest_release
from spark_jobs.runtime.settings import Settings, read_endpoints
from tests.integration.conftest import WEBHOOK_TOKEN, Alerts
from tests.support.browser import keep, logged_in
from tests.support.ledger import Ledger, await_that
from tests.support.waves import new

pytestmark = [pytest.mark.integration, pytest.mark.airflow]

GARBAGE = 400
OPERATOR = "operator"
RUN_SECONDS = 600


@pytest.fixture
def page(settings: Settings) -> Iterator[Page]:
    with logged_in(settings.home, OPERATOR) as page:
        yield page


@pytest.fixture
def medallion(settings: Settings, api: AirflowApi, warm: None) -> Iterator[str]:
    """The DAG, switched on for the test."""
    wait_for_dags(api, "medallion", "quality_decision")
    api.unpause("medallion")
    yield "medallion"
    api._call("PATCH", "/dags/medallion", {"is_paused": True})


def test_an_operator_waits_and_then_releases_anyway(
    settings: Settings, api: AirflowApi, alerts: Alerts, medallion: str, page: Page
) -> None:
    before, told, known = released(settings), (len(alerts.webhook.received), len(alerts.mail.received)), api.runs(medallion)
    fill_bronze(settings, garbage("first"))
    closed = await_run(api, known, "failed")
    assert states(api, medallion, closed) == {
        **dict.fromkeys(["silver", "bronze_gate", "ask_for_decision"], "success"),
        **dict.fromkeys(["gold", "gold_gate", "release"], "upstream_failed"),
        "silver_gate": "failed",
    }
    assert "is closed: failed silver.transactions" in log(settings, medallion, closed, "silver_gate")
    assert not re.search("Traceback|error_detail", log(settings, medallion, closed, "silver_gate"))
    assert released(settings) == before
    (asked,) = [each for each in api.runs("quality_decision") if closed in each]

    await_question(settings, api, asked)
    answer(page, "wait", "the bank looks into it", "decision-wait")
    assert api.wait_for_run("quality_decision", asked, RUN_SECONDS) == "success"
    assert states(api, "quality_decision", asked) == {
        "ask": "success",
        "decide": "success",
        "start_medallion": "skipped",
        "ask_again": "skipped",
    }
    assert newest_decision(settings) == ("wait", OPERATOR, "the bank looks into it", closed)
    rows = content(settings)

    waiting = run(api, medallion, "failed")
    assert states(api, medallion, waiting)["silver"] == "failed"
    assert set(states(api, medallion, waiting).values()) == {"failed", "upstream_failed", "skipped"}  # nobody is asked twice
    line = log(settings, medallion, waiting, "silver")
    for part in (
        "waiting, as was decided",
        f"{OPERATOR} decided to wait at",
        "the bank looks into it",
        "quality_decision is triggered again",
    ):
        assert part in line
    assert not re.search("Traceback|error_detail", line)
    assert content(settings) == rows

    again = api.trigger("quality_decision")
    await_question(settings, api, again)
    answer(page, "release anyway", """they are known: "{{ 7 * 7 }}"; $(id)""", "decision-release-anyway")
    assert api.wait_for_run("quality_decision", again, RUN_SECONDS) == "success"
    assert newest_decision(settings) == ("release anyway", OPERATOR, """they are known: "{{ 7 * 7 }}"; $(id)""", closed)
    started = xcom(settings, "quality_decision", again, "start_medallion", "trigger_run_id")
    assert api.wait_for_run(medallion, started, RUN_SECONDS) == "success"
    release = newest_release(settings)
    assert release.release_id == before + 1
    assert reconcile(settings, release).differences == []

    webhook, mail = alerts.webhook.received[told[0] :], alerts.mail.received[told[1] :]
    ((path, body),), ((_, recipients, message),) = webhook, mail  # once, however many runs have failed since
    assert (path, recipients) == (f"/hook/{WEBHOOK_TOKEN}", ["operators@example.org"])
    letter = message.get_body()
    assert letter is not None
    for text in (body["text"], letter.get_content()):
        assert "gate silver is closed: failed silver.transactions" in text
        assert "/quality/data_docs/validations/silver/transactions/" in text
        assert "file://" not in text
        assert "What to do: decide in Airflow" in text
        assert "/dags/medallion/runs/" in text
    assert [file for file in (settings.home / "stack").rglob("*.log") if WEBHOOK_TOKEN in file.read_text(errors="replace")] == []


@pytest.mark.soak
def test_an_operator_rolls_back(settings: Settings, api: AirflowApi, medallion: str, page: Page) -> None:
    known = api.runs(medallion)
    fill_bronze(settings, good("r", 500))
    await_run(api, known, "success")
    before, rows, known = released(settings), content(settings), api.runs(medallion)
    fill_bronze(settings, garbage("second"))
    closed = await_run(api, known, "failed")
    (asked,) = [each for each in api.runs("quality_decision") if closed in each]
    assert content(settings) != rows

    fill_bronze(settings, good("s", 20 * GARBAGE))  # the cause is mended: among so many, the bad rows are few
    api._call("PATCH", "/dags/medallion", {"is_paused": True})  # its run must not hide what the roll-back did
    await_question(settings, api, asked)
    answer(page, "roll back", "the source has been mended", "decision-roll-back")
    assert api.wait_for_run("quality_decision", asked, RUN_SECONDS) == "success"
    assert newest_decision(settings) == ("roll back", OPERATOR, "the source has been mended", closed)
    assert content(settings) == rows
    assert released(settings) == before

    api.unpause(medallion)
    started = xcom(settings, "quality_decision", asked, "start_medallion", "trigger_run_id")
    assert api.wait_for_run(medallion, started, RUN_SECONDS) == "success"
    release = newest_release(settings)
    assert release.release_id == before + 1
    assert reconcile(settings, release).differences == []  # nothing is lost, nothing is there twice


def garbage(name: str) -> list[Message]:
    """Values that are no JSON, so that every row goes to quarantine."""
    return [Message("transactions", f"{name}-{number}".encode(), b"not json") for number in range(GARBAGE)]


def good(prefix: str, count: int) -> list[Message]:
    """Customers, accounts and transactions, under ids of their own."""
    plan = plan_messages(generated_sources(count, seed=5), Disturbances(seed=5))
    return [new(each, f"{prefix}{each.key.decode()}") if each.topic == "transactions" else each for each in plan]


def fill_bronze(settings: Settings, messages: list[Message]) -> None:
    assert publish(settings.broker(), messages).is_delivered
    Ledger(settings.home, settings.broker().servers).run("bronze --available-now")


def await_run(api: AirflowApi, known: list[str], expected: str) -> str:
    """Wait for the end of the run of medallion that new batches start, the only one that was not there before."""
    await_that(lambda: len(api.runs("medallion")) > len(known))
    (run_id,) = set(api.runs("medallion")) - set(known)
    assert run_id.startswith("asset_triggered__")
    assert api.wait_for_run("medallion", run_id, RUN_SECONDS) == expected, states(api, "medallion", run_id)
    return run_id


def run(api: AirflowApi, dag: str, expected: str) -> str:
    """Trigger a run and wait for its end."""
    run_id = api.trigger(dag)
    assert api.wait_for_run(dag, run_id, RUN_SECONDS) == expected, states(api, dag, run_id)
    return run_id


def states(api: AirflowApi, dag: str, run_id: str) -> dict[str, str | None]:
    return api.task_states(dag, run_id)


def await_question(settings: Settings, api: AirflowApi, run_id: str) -> None:
    """Return when somebody is asked (an empty list of required actions does not refresh itself), and Airflow's scheduler knows it.

    An answer before it has noticed that the process that asks has ended makes it take the task for broken, and ask again.
    """
    noticed = re.compile(rf"Received executor event with state success .*task_id='ask', run_id='{re.escape(run_id)}'")
    scheduler = settings.home / "stack" / "airflow" / "airflow-scheduler.log"
    await_that(lambda: states(api, "quality_decision", run_id)["ask"] == "awaiting_input")
    await_that(lambda: noticed.search(scheduler.read_text(errors="replace")))


def answer(page: Page, choice: str, reason: str, name: str) -> None:
    """Open the one required action from the list, read it, give the reason, press the button."""
    page.goto("/required_actions?response_received=false")
    page.get_by_role("link", name=re.compile("^The gate of silver is closed")).click()
    page.get_by_text("Readers see").wait_for()
    button = page.get_by_role("button", name=choice, exact=True)
    expect(button).to_be_disabled()  # a reason is required
    page.locator("[name=element_reason]").fill(reason)
    expect(button).to_be_enabled()
    keep(page, name)
    button.click()
    page.get_by_text("Response received at").wait_for()
    keep(page, f"{name}-done")


def released(settings: Settings) -> int:
    """The number of the newest release, 0 where there is none."""
    release = latest_release(settings)
    return release.release_id if release else 0


def newest_decision(settings: Settings) -> tuple[str, str, str, str]:
    row = max(control.read(settings, DECISIONS).to_pylist(), key=lambda row: row["decided_at"])
    return row["choice"], row["who"], row["why"], row["run_id"]


def content(settings: Settings) -> dict[str, list[str]]:
    """Every row of silver and gold as it is now."""
    ledger = Ledger(settings.home)
    return {table.name: sorted(map(repr, ledger.rows(table))) for table in (*SILVER, *GOLD) if ledger.exists(table)}


def get(settings: Settings, path: str) -> Any:
    """Any other call of Airflow's REST API."""
    with httpx.Client(base_url=read_endpoints(settings.home)["airflow_url"], timeout=30, trust_env=False) as client:
        user = {"username": airflow.USER, "password": airflow.password_file(settings.home).read_text()}
        token = client.post("/auth/token", json=user).raise_for_status().json()["access_token"]
        return client.get(f"/api/v2{path}", headers={"Authorization": f"Bearer {token}"}).raise_for_status().json()


def xcom(settings: Settings, dag: str, run_id: str, task: str, key: str) -> str:
    return str(get(settings, f"/dags/{dag}/dagRuns/{run_id}/taskInstances/{task}/xcomEntries/{key}?deserialize=true")["value"])


def log(settings: Settings, dag: str, run_id: str, task: str) -> str:
    folder = settings.home / "stack/airflow/logs" / f"dag_id={dag}" / f"run_id={run_id}" / f"task_id={task}"
    return "".join(file.read_text() for file in Path(folder).glob("*.log"))
