"""The page "Quality" in a running Airflow: who may read it, the way from a failed run to the broken rows, and what no log may hold."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import psycopg2
import pytest
from deltalake import DeltaTable
from playwright.sync_api import expect

from include.demo import Clock, wait_for_dags, wait_for_ingestion
from include.producer import Message, publish
from include.stack import airflow
from include.stack.airflow_api import AirflowApi
from include.stack.endpoints import read_endpoints
from include.stack.processes import find_all
from spark_jobs import control, tables
from spark_jobs.decisions import decide
from spark_jobs.settings import Settings, read_settings
from spark_jobs.verdicts import RELEASE_ANYWAY, closed_verdicts
from tests.integration.browser import keep, logged_in
from tests.integration.ledger import await_that

pytestmark = [pytest.mark.integration, pytest.mark.airflow]

PERSON = {
    "fullName": "Zdenka Quarantinova",
    "social": "926-93-2157",
    "phone": "367-171-6840",
    "email": "zdenka.quarantinova@example.org",
    "address1": "387 Wellingtonova Ave.",
    "address2": "Unit 4711B",
}
PERSONAL = ("full_name", "social", "phone", "email", "address1", "address2")
BAD_ROWS = 150
PAGES = ("/", "/table?name=silver.transactions", "/quarantine", "/quarantine?table=silver.customers_quarantine", "/static/page.css")


@pytest.fixture(scope="module")
def settings(stack_home: Path) -> Settings:
    return read_settings({"LEDGER_HOME": str(stack_home)})


@pytest.fixture(scope="module")
def api(stack_home: Path) -> AirflowApi:
    return AirflowApi(read_endpoints(stack_home)["airflow_url"], airflow.USER, airflow.password_file(stack_home).read_text())


@pytest.fixture
def client(stack_home: Path) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=read_endpoints(stack_home)["airflow_url"], timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def failed_run(stack_home: Path, settings: Settings, api: AirflowApi) -> str:
    """A run of medallion that ended at the closed gate of silver, because most transactions were malformed."""
    wait_for_dags(api, "bronze_ingestion", "medallion")
    if closed_verdicts(settings, *tables.LAYERS):  # what another test left
        decide(settings, RELEASE_ANYWAY, who="a test", why="so that the next run is judged")
    assert publish(settings.broker(), bad_messages()).is_delivered
    api.unpause("bronze_ingestion")
    wait_for_ingestion(settings, api, Clock())
    run = api.trigger("medallion")
    api.unpause("medallion")
    state = api.wait_for_run("medallion", run, 400, Clock())
    pause(stack_home)
    assert (state, api.task_states("medallion", run)["silver_gate"]) == ("failed", "failed")
    return run


def bad_messages() -> list[Message]:
    """Customers, some of them malformed, and many malformed transactions: all full of what nobody may read in a log."""
    now = int(datetime.now(UTC).timestamp() * 1000)
    customer: dict[str, object] = {
        "customerId": "C90000001",
        "sex": "Female",
        **PERSON,
        "city": "Zlin",
        "state": "ZL",
        "zipcode": "76001",
        "districtId": "1",
    }
    customer |= {"birthDate": "1990-01-01", "updateTime": now}
    values = " ".join(PERSON.values())
    customers = [
        Message("customers", b"C90000001", json.dumps(customer).encode()),
        Message("customers", b"C90000002", json.dumps(customer).encode(), "malformed:key_matches"),
        Message("customers", values.encode(), json.dumps(customer).encode(), "malformed:key_matches"),
        Message("customers", b"C90000001", json.dumps(customer | {"districtId": values, "birthDate": values}).encode(), "malformed"),
        Message("customers", b"C90000001", json.dumps(customer).encode()[:-1], "malformed:parseable"),
    ]
    plain: dict[str, object] = {
        "transactionId": "T90000001",
        "accountId": "A90000001",
        "customerId": "C90000001",
        "eventTime": now,
        "type": "Credit",
    }
    plain |= {"operation": None, "amount": 1, "balance": 1}
    faults: list[dict[str, object]] = [{name: values} for name in plain]
    faults += [{"operation": [values]}, {values: values, "amount": -1}, {"amount": PERSON["phone"]}]
    broken = [json.dumps(plain | fault).encode() for fault in faults] + [values.encode(), b"[" + json.dumps(customer).encode()]
    rows = [Message("transactions", values.encode(), broken[number % len(broken)], "malformed") for number in range(BAD_ROWS)]
    return [*customers, *rows]


def pause(home: Path) -> None:
    """Pause the DAGs and end ingestion, so that the tests after these find the machine idle."""
    user = {"username": airflow.USER, "password": airflow.password_file(home).read_text()}
    with httpx.Client(base_url=read_endpoints(home)["airflow_url"], timeout=30, trust_env=False) as client:
        token = client.post("/auth/token", json=user).raise_for_status().json()["access_token"]
        client.headers["Authorization"] = f"Bearer {token}"
        for dag in ("bronze_ingestion", "medallion"):
            client.patch(f"/api/v2/dags/{dag}", json={"is_paused": True}).raise_for_status()
        for run in client.get("/api/v2/dags/bronze_ingestion/dagRuns?state=running").json()["dag_runs"]:
            client.patch(f"/api/v2/dags/bronze_ingestion/dagRuns/{run['dag_run_id']}", json={"state": "failed"}).raise_for_status()
    await_that(lambda: not [each for each in find_all(home, ["airflow-scheduler"]) if "spark_jobs/run.py" in " ".join(each.cmdline())], 60)


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
        keep(page, "1-failed-run")
        page.get_by_role("link", name="Quality").last.click()  # the tab; the first is in the navigation
        frame = page.frame_locator("iframe")
        closed = frame.get_by_role("row").filter(has_text="silver.transactions").filter(has_text="quarantined_per_thousand")
        expect(closed).to_contain_text(re.compile("CLOSED|overruled"))
        keep(page, "2-quality-of-the-run")
        closed.get_by_role("link", name="rows in quarantine").click()
        expect(frame.get_by_role("heading", name="Quarantine")).to_be_visible()
        expect(frame.get_by_text("amount_not_negative: found number").first).to_be_visible()
        expect(frame.get_by_text("transactionId").first).to_be_visible()
        assert not [value for value in PERSON.values() if value in frame.locator("body").inner_text()]
        keep(page, "3-broken-rows")

        page.get_by_role("link", name="Quality").first.click()
        expect(frame.locator(".chart .main-svg").first).to_be_visible()
        assert frame.locator(".chart").count() == 4
        expect(frame.locator(".run.closed, .run.overruled").first).to_be_visible()
        keep(page, "4-quality")
        frame.locator(".charts").scroll_into_view_if_needed()
        keep(page, "5-charts")
        row = frame.get_by_role("row").filter(has_text="silver.transactions").first
        row.get_by_role("link", name="report").click()
        expect(frame.get_by_text("quarantined_per_thousand").first).to_be_visible()
        keep(page, "6-report")
        page.go_back()
        row.get_by_role("link", name="DAG run").click()
        page.wait_for_url(re.compile("/dags/medallion/runs/"))  # in Airflow's own window


def test_no_log_report_or_page_holds_personal_data(stack_home: Path, settings: Settings, client: httpx.Client, failed_run: str) -> None:
    secret = personal_values(settings)
    assert set(PERSON.values()) <= secret  # silver holds them, and so do the values that were sent
    found: list[str] = []
    texts = 0
    for name, text in (*files(stack_home), *metadata(stack_home), *rows_for_readers(settings), *answers(client, stack_home, failed_run)):
        texts += 1
        found += [f"{name}: {value[:3]}..." for value in secret if value in text]
    assert found == []
    assert texts > 100


def personal_values(settings: Settings) -> set[str]:
    """Every name, social number, phone, email and address of silver's customers."""
    columns = ", ".join(PERSONAL)
    rows = control.query(DeltaTable(str(tables.SILVER_CUSTOMERS.path(settings))), f"select {columns} from t").to_pylist()
    return {value for row in rows for value in row.values() if value and len(value) > 6}


def files(home: Path) -> Iterator[tuple[str, str]]:
    """Every log and report: all files of the home but the data of Kafka, Postgres and the tables, and the checkpoints."""
    data = ("warehouse", "checkpoints", "stack/kafka", "stack/postgres")
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
