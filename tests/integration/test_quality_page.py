"""The page "Quality" in a running Airflow: who may read it, the way from a failed run to the broken rows, and what no log may hold."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg2
import pytest
from deltalake import DeltaTable
from playwright.sync_api import expect

from include.demo.waiting import Clock, wait_for_dags
from include.producer import publish
from include.stack import airflow
from include.stack.airflow_api import AirflowApi
from spark_jobs import control
from spark_jobs.lake import tables
from spark_jobs.runtime.settings import Settings, read_endpoints
from tests.support import personal
from tests.support.browser import keep, logged_in
from tests.support.ledger import Ledger

pytestmark = [pytest.mark.integration, pytest.mark.airflow]

BAD_ROWS = 150
CUSTOMERS = "table=silver.customers_quarantine"
PAGES = (
    *("/", "/table?name=silver.transactions", "/decisions", "/static/page.css"),
    *("/quarantine", f"/quarantine?{CUSTOMERS}", "/quarantine.csv", f"/quarantine.csv?{CUSTOMERS}"),
)


@pytest.fixture
def client(stack_home: Path) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=read_endpoints(stack_home)["airflow_url"], timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def failed_run(settings: Settings, api: AirflowApi) -> str:
    """A run of medallion that ended at the closed gate of silver: one that another test left, or one of mostly malformed rows."""
    wait_for_dags(api, "medallion")
    ended_at_silver = (run for run in api.runs("medallion", "failed") if api.task_states("medallion", run)["silver_gate"] == "failed")
    if personal_values(settings) and (run := next(ended_at_silver, None)):
        return run
    assert publish(settings.broker(), personal.messages(BAD_ROWS)).is_delivered
    Ledger(settings.home, settings.broker().servers).run("bronze --available-now")
    run = api.trigger("medallion")
    api.unpause("medallion")
    state = api.wait_for_run("medallion", run, 900, Clock())
    api._call("PATCH", "/dags/medallion", {"is_paused": True})
    assert (state, api.task_states("medallion", run)["silver_gate"]) == ("failed", "failed")
    return run


def log_in(client: httpx.Client, home: Path) -> str:
    user = {"username": airflow.USER, "password": airflow.password_file(home).read_text()}
    return str(client.post("/auth/token", json=user).raise_for_status().json()["access_token"])


def test_only_who_is_logged_in_may_read(stack_home: Path, client: httpx.Client) -> None:
    token = log_in(client, stack_home)
    for path in PAGES:
        assert client.get(f"/quality{path}").status_code == 401
        assert client.get(f"/quality{path}", headers={"Authorization": "Bearer x.y.z"}).status_code == 403
        assert client.get(f"/quality{path}", headers={"Cookie": "_token=x.y.z"}).status_code in (401, 403)
        assert client.get(f"/quality{path}", headers={"Cookie": f"_token={token}"}).status_code == 200
    assert client.get("/quality/data_docs/index.html").status_code == 401


def test_from_a_failed_run_to_the_broken_rows(stack_home: Path, settings: Settings, failed_run: str) -> None:
    with logged_in(stack_home) as page:
        page.goto(f"/dags/medallion/runs/{failed_run}")
        expect(page.get_by_text("Failed").first).to_be_visible()
        keep(page, "quality-1-failed-run")
        page.get_by_role("link", name="Quality").last.click()  # the tab; the first is in the navigation
        frame = page.frame_locator("iframe")
        closed = frame.get_by_role("row").filter(has_text="quarantined_per_thousand").first
        expect(closed).to_contain_text(re.compile("CLOSED|overruled"))
        gate = frame.get_by_role("row").filter(has=frame.get_by_role("cell", name="silver_gate", exact=True))
        expect(gate).to_contain_text("failed")
        expect(gate).to_contain_text(re.compile("[0-9]+ (seconds|minutes)"))
        expect(frame.locator(".conserved").first).to_contain_text("every one is accounted for")
        keep(page, "quality-2-quality-of-the-run")
        closed.get_by_role("link", name="rows in quarantine").click()
        expect(frame.get_by_role("heading", name="Quarantine")).to_be_visible()
        broken = frame.locator("details.row").filter(has_text=re.compile("The value is [0-9,]+ bytes, not JSON[.] Expected: ")).first
        expect(broken).to_be_visible()
        broken.locator("summary").first.click()
        expect(broken.get_by_text("Broken: parseable")).to_be_visible()
        keep(page, "quality-3-broken-rows")

        page.get_by_role("link", name="Quality").first.click()
        expect(frame.locator(".tiles .tile")).to_have_count(4)
        expect(frame.locator(".lineage [data-name='silver.transactions']")).to_be_visible()
        expect(frame.locator(".charts .chart a").first).to_be_visible()
        expect(frame.locator(".charts h3")).to_have_text(["Volume", "Quarantine", "Late transactions", "Freshness"])
        judged = frame.locator(".run.closed, .run.overruled").and_(frame.locator("[title*=quarantined_per_thousand]")).last
        expect(judged).to_be_visible()
        keep(page, "quality-4-page")
        frame.locator(".charts").scroll_into_view_if_needed()
        keep(page, "quality-5-charts")
        judged.click()
        expect(frame.locator(".alert", has_text="quarantined_per_thousand").first).to_be_visible()
        keep(page, "quality-6-report")
        frame.get_by_role("link", name="Home").click()  # what the browser goes back to from a page in a frame is not always the same
        frame.get_by_role("link", name="DAG run").first.click()
        page.wait_for_url(re.compile("/dags/medallion/runs/"))  # in Airflow's own window


@pytest.mark.usefixtures("failed_run")
def test_a_re_drive_is_started_from_the_page_with_the_readers_own_login(stack_home: Path, api: AirflowApi) -> None:
    with logged_in(stack_home) as page:
        page.goto("/quality/quarantine?table=silver.transactions_quarantine&rule=parseable")
        page.get_by_role("button", name="Start in Airflow").click()
        started = page.get_by_role("status").get_by_role("link")
        expect(started).to_be_visible()
        run = started.inner_text()
        keep(page, "quality-7-redrive")
    assert api.wait_for_run("redrive_rows", run, 300, Clock()) == "success"
    log = next((stack_home / f"stack/airflow/logs/dag_id=redrive_rows/run_id={run}").rglob("*.log")).read_text()
    assert re.search(r"dry run: silver.transactions_quarantine: [0-9,]+ rows break parseable", log)
    assert "dry run: nothing was changed" in log


def test_no_log_report_or_page_holds_personal_data(stack_home: Path, settings: Settings, client: httpx.Client, failed_run: str) -> None:
    secret = personal_values(settings)
    assert set(personal.PERSON.values()) <= secret  # silver holds what was sent
    found: list[str] = []
    texts = 0
    for name, text in (*files(stack_home), *metadata(stack_home), *rows_for_readers(settings), *answers(client, stack_home, failed_run)):
        texts += 1
        found += [f"{name}: {value[:3]}..." for value in secret if value in text]
    assert found == []
    assert texts > 100


def personal_values(settings: Settings) -> set[str]:
    """Every name, social number, phone, email and address of silver's customers; shorter ones may be a word of ours."""
    path = str(tables.SILVER_CUSTOMERS.path(settings))
    columns = ", ".join(personal.COLUMNS)
    rows = control.query(DeltaTable(path), f"select {columns} from t").to_pylist() if DeltaTable.is_deltatable(path) else []
    return {value for row in rows for value in row.values() if value and len(value) > 6}


def files(home: Path) -> Iterator[tuple[str, str]]:
    """Every log and report: all files of the home but the data of Kafka, Postgres, Spark and the tables, and the checkpoints."""
    data = ("warehouse", "checkpoints", "scratch", "stack/kafka", "stack/postgres")
    for file in sorted(home.rglob("*")):
        name = str(file.relative_to(home))
        if file.is_file() and (not name.startswith(data) or (file.suffix == ".log" and "data" not in file.parts)):
            yield name, file.read_text(errors="replace")


def metadata(home: Path) -> Iterator[tuple[str, str]]:
    """Every row of Airflow's database: XCom, rendered fields, notes, logs of events."""
    file = home / "stack/airflow/metadata.url"
    connection = psycopg2.connect(file.read_text().replace("postgresql+psycopg2", "postgresql"))
    with connection, connection.cursor() as cursor:
        cursor.execute("select table_name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'")
        names = [name for (name,) in cursor.fetchall()]
        assert "xcom" in names
        for name in names:
            cursor.execute(f'select t::text from "{name}" t')
            yield f"metadata {name}", "\n".join(text for (text,) in cursor.fetchall())
    connection.close()


def rows_for_readers(settings: Settings) -> Iterator[tuple[str, str]]:
    """Every row of gold and of the control tables, corrections apart: they hold values as silver does."""
    for table in (*tables.GOLD, *(table for table in tables.CONTROL if table != tables.CORRECTIONS)):
        path = str(table.path(settings))
        if DeltaTable.is_deltatable(path):
            yield table.name, str(control.query(DeltaTable(path), "select * from t").to_pylist())


def answers(client: httpx.Client, home: Path, run: str) -> Iterator[tuple[str, str]]:
    """Every page about the quarantine and the run."""
    client.headers["Authorization"] = f"Bearer {log_in(client, home)}"
    paths = [*PAGES, f"/run?dag_id=medallion&run_id={run.replace('+', '%2B')}"]
    paths += [
        f"/quarantine?table=silver.{topic}_quarantine&page={page}"
        for topic in ("transactions", "customers", "accounts")
        for page in (1, 2, 3)
    ]
    for path in paths:
        yield path, client.get(f"/quality{path}").raise_for_status().text
