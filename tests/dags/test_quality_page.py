"""The page "Quality": nothing without a login, what it says, and what it must never say."""

import re

import pytest
from airflow import plugins_manager
from fastapi.testclient import TestClient

from include.quality_page.access import NEEDS
from include.quality_page.app import app
from spark_jobs.lake import tables
from spark_jobs.runtime.settings import ROOT, Settings
from tests.support import quality_rows as rows

RUN = "/run?dag_id=medallion&run_id=" + rows.run_id(3).replace("+", "%2B")
CUSTOMERS = "/quarantine?table=silver.customers_quarantine"
TABLES = sum(map(len, tables.LAYERS.values()))
PAGES = (
    "/",
    "/table?name=silver.customers_quarantine",
    RUN,
    CUSTOMERS,
    "/quarantine",
    "/decisions",
    "/explain",
    "/quarantine.csv",
    "/data_docs/index.html",
)


def test_no_route_answers_without_a_login(home: Settings, anyone: TestClient) -> None:
    rows.fill(home, 1)
    assert len(app.routes) == len(NEEDS)  # nothing beside them: mounts and generated pages ask no login
    answers = {path: anyone.get(path).status_code for path in (*PAGES, "/data_docs/", "/data_docs/a/b.html", "/static/page.css", "/table")}
    assert set(answers.values()) == {401}, answers
    assert anyone.get("/anything").status_code == 404


def test_airflow_finds_the_plugin_and_imports_nothing_of_ours_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow.settings.PLUGINS_FOLDER", str(ROOT / "include/plugins"))
    plugins, errors = plugins_manager._get_plugins.__wrapped__()
    assert errors == {}
    (plugin,) = [each for each in plugins if each.name == "quality"]
    assert [each["url_prefix"] for each in plugin.fastapi_apps] == ["/quality"]
    assert [(each["destination"], each["href"].split("?")[0]) for each in plugin.external_views] == [
        ("nav", "quality/"),
        ("nav", "quality/operations"),
        ("dag_run", "quality/run"),
    ]
    text = (ROOT / "include/plugins/quality.py").read_text()
    assert "\nfrom include" not in text
    assert "\nimport include" not in text


def test_every_table_with_its_last_runs_and_the_charts(home: Settings, reader: TestClient) -> None:
    rows.fill(home, 3)
    text = reader.get("/").text
    assert 'Readers see<span class="big">release 3</span>' in text
    for layer in tables.LAYERS.values():
        for table in layer:
            assert f">{table.name}</a>" in text.replace("<wbr>", "")
    assert text.count('class="run passed"') == TABLES * 3 - 1
    assert text.count('class="run closed"') == 1
    assert text.count('<svg class="chart " ') == 4
    assert "rule=district_id_whole" in text
    assert '/quality/data_docs/validations/silver/customers_quarantine/run/3.html"' in text
    assert "/dags/medallion/runs/scheduled__2026-03-01T00%3A15%3A00%2B00%3A00" in text
    assert "http://" not in text.replace("http://airflow.example", "")


def test_gold_tables_lead_to_the_page_that_explains_a_cell(home: Settings, reader: TestClient) -> None:
    rows.fill(home, 1)
    overview = reader.get("/").text
    assert overview.count('">explain</a>') == len(tables.GOLD)
    assert '<a href="/quality/explain?table=gold.weekly_top_customers">explain</a>' in overview
    assert '"/quality/explain?table=gold.weekly_top_customers"' in reader.get("/table?name=gold.weekly_top_customers").text
    assert "explain?table" not in reader.get("/table?name=silver.customers").text


def test_an_overruled_verdict_shows_who_and_why(home: Settings, reader: TestClient) -> None:
    rows.fill(home, 3)
    table = "/table?name=silver.customers_quarantine"
    assert ">CLOSED<" in reader.get(table).text
    rows.write(home, tables.DECISIONS, [rows.decision(3, "silver", "wait", "Olga", "asked the bank")])
    assert ">CLOSED<" in reader.get(table).text
    assert "wait, by Olga" in reader.get(table).text
    rows.write(home, tables.DECISIONS, [rows.decision(3, "silver", "release anyway", "Ivan", "known <b>rows</b>", minutes=2)])
    for page in (table, "/", RUN):
        text = reader.get(page).text
        assert ">overruled<" in text
        assert "release anyway, by Ivan at 2026-03-01 00:17 UTC: known &lt;b&gt;rows&lt;/b&gt;" in text
        assert ">CLOSED<" not in text


def test_from_a_run_to_its_broken_rows(home: Settings, reader: TestClient) -> None:
    rows.fill(home, 3, rows_a_run=2)
    run = reader.get(RUN).text
    way = "/quality/quarantine?table=silver.customers_quarantine&amp;first_batch=3&amp;last_batch=3"
    assert run.index("quarantined_rows") < run.index(way) < run.index("bronze.transactions")  # closed gates come first
    text = reader.get(way.removeprefix("/quality").replace("&amp;", "&")).text
    assert "2 rows" in text
    assert "customers 0:3001" in text
    assert "customers 0:2001" not in text
    assert "<mark>districtId</mark> is a text of 1 character. Expected: A whole number that fits 32 bits" in text
    assert "No gate has judged anything" in reader.get(RUN.replace("medallion", "bronze_ingestion")).text


def test_the_newest_audit_is_told_and_what_differs(home: Settings, reader: TestClient) -> None:
    rows.fill(home, 1)
    assert "Nothing was audited yet" in reader.get("/").text
    rows.write(home, tables.AUDITS, [rows.audited(1, "gold.daily_totals"), rows.audited(1, "silver.accounts")])
    text = reader.get("/").text
    assert "2026-03-01 00:05:00</time> UTC, the tables as they were then: " in text
    assert "all 2 tables agree</span> with bronze; 2,000 rows compared in 3 s." in text
    assert "Rows that differ" not in text
    damaged = "window_start 2013-01-01 <b>: found amount 2.00, expected 1.00"
    rows.write(home, tables.AUDITS, [rows.audited(2, "gold.daily_totals", 7, damaged), rows.audited(2, "silver.accounts", 7)])
    for page in ("/", "/run?dag_id=audit&run_id=audit 2"):
        text = reader.get(page).text
        assert "UTC, release 7: " in text
        assert "1 of 2 tables DIFFER</span> from what bronze says; 2,000 rows compared in 3 s." in text
        assert "window_start 2013-01-01 &lt;b&gt;: found amount 2.00, expected 1.00" in text
    assert text.index(">gold.daily_totals<") < text.index(">silver.accounts<")  # the tab of a run has them all, those that differ first
    assert "all 2 tables agree" in reader.get("/run?dag_id=audit&run_id=audit 1").text
    assert "No gate has judged anything" in reader.get("/run?dag_id=audit&run_id=audit 3").text


def test_a_job_that_was_started_by_hand_has_no_dag_run(home: Settings, reader: TestClient) -> None:
    rows.write(home, tables.QUALITY_RESULTS, [rows.verdict(1, "silver.customers") | {"run_id": "0123456789abcdef" * 2, "report": None}])
    text = reader.get("/table?name=silver.customers").text
    assert "run 0123456789abcdef" in text
    assert "/runs/" not in text


@pytest.mark.parametrize("path", PAGES)
def test_no_page_shows_personal_data(home: Settings, reader: TestClient, path: str) -> None:
    rows.fill(home, 1)
    personal = " ".join(rows.PERSONAL.values())
    hostile = [
        rows.quarantined(
            2, "transactions", 1, rows.customer(), ["transaction_id_present"], f"transaction_id_present: found string {personal}"
        ),
        rows.quarantined(2, "transactions", 2, personal.encode(), ["parseable"], personal),
        rows.quarantined(2, "transactions", 3, b"[" + rows.customer() + b"]", ["parseable"]) | {"key": personal.encode()},
        rows.quarantined(
            2, "transactions", 4, rows.customer(amount=rows.PERSONAL["phone"], type=rows.PERSONAL["fullName"]), ["type_known"]
        ),
    ]
    rows.write(home, tables.TRANSACTIONS_QUARANTINE, hostile)
    text = reader.get(path).text
    assert [value for value in rows.PERSONAL.values() if value in text] == []


def test_rows_are_paged_newest_first_and_filtered(home: Settings, reader: TestClient) -> None:
    rows.fill(home, 3, rows_a_run=40)
    other = [
        rows.quarantined(9, "customers", 9000, None, ["key_present", "parseable"]),
        rows.quarantined(9, "customers", 9001, b"{", ["parseable"]),
    ]
    rows.write(home, tables.CUSTOMERS_QUARANTINE, other)
    first, third = (reader.get(f"{CUSTOMERS}&page={page}").text for page in (1, 3))
    assert "122 rows" in first
    assert "Page 1 of 3" in first
    assert first.index("customers 0:9000 ") < first.index("customers 0:3000 ")
    assert "no value" in first
    assert "customers 0:1039 " in third
    assert "parseable (2)" in first
    assert "district_id_whole (120)" in first
    chosen = reader.get(f"{CUSTOMERS}&rule=key_present&first_batch=9").text
    assert '<span class="big">1 row</span>' in chosen
    assert "customers 0:9001" not in chosen


@pytest.mark.parametrize(
    "path",
    [
        "/quarantine?table=silver.customers",
        "/quarantine?rule=x'%20or%20true",
        "/quarantine?first_batch=-1",
        "/quarantine?page=0",
        "/table?name=control.batches",
        "/data_docs/../secret",
        "/data_docs/%2e%2e/secret",
        "/data_docs/..%2fsecret",
        "/data_docs//etc/passwd",
        "/data_docs/link.html",
        "/data_docs/%00",
        "/data_docs/" + "x" * 5000,
        "/data_docs/validations",
        "/static/app.py",
        "/static/..%2fapp.py",
    ],
)
def test_what_nobody_may_ask_for(home: Settings, reader: TestClient, path: str) -> None:
    (home.quality / "data_docs/validations").mkdir(parents=True)
    (home.quality / "secret").write_text("secret")
    (home.quality / "data_docs/link.html").symlink_to(home.quality / "secret")
    answer = reader.get(path)
    assert answer.status_code in (404, 422)
    assert "secret" not in answer.text.replace(path, "")


def test_reports_are_served_and_load_nothing_from_elsewhere(home: Settings, reader: TestClient) -> None:
    page = home.quality / "data_docs/validations/a b/1.html"
    page.parent.mkdir(parents=True)
    page.write_text('<head><script src="https://example.org/x.js"></script></head><p>report ä')
    answer = reader.get("/data_docs/validations/a%20b/1.html")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    own = (
        re.escape('<script src="/quality/static/page.js?v=')
        + "[0-9]+"
        + re.escape('"></script><link rel="stylesheet" href="/quality/static/page.css')
    )
    assert re.search(own, answer.text)
    assert re.search(r'/quality/static/data_docs[.]css[?]v=[0-9]+"></head><p>report ä', answer.text)
    for path in ("/data_docs/validations/a%20b/1.html", "/", "/static/page.js"):
        policy = dict(part.strip().split(" ", 1) for part in reader.get(path).headers["content-security-policy"].split(";"))
        assert (policy["default-src"], policy["script-src"], policy["frame-ancestors"]) == ("'none'", "'self'", "'self'")
        assert "http" not in str(policy)


def test_a_report_that_was_removed_is_told(home: Settings, reader: TestClient) -> None:
    answer = reader.get("/data_docs/validations/silver/customers/run/1.html")
    assert answer.status_code == 404
    assert "Reports go with the verdicts that name them, 8 days after" in answer.text
    assert "LEDGER_RELEASE_DAYS" in answer.text
    assert 'href="/quality/"' in answer.text


def test_the_overview_stands_for_the_index_of_the_reports(home: Settings, reader: TestClient) -> None:
    for path in ("/data_docs/index.html", "/data_docs/"):
        answer = reader.get(path)
        assert (answer.status_code, answer.headers["location"]) == (307, "/quality/")


def test_nothing_yet_is_told(home: Settings, reader: TestClient) -> None:
    for path in ("/", RUN, CUSTOMERS, "/table?name=silver.customers"):
        assert f"found no warehouse at {home.warehouse}" in reader.get(path).text
    home.warehouse.mkdir(parents=True)
    text = reader.get("/").text
    assert "found no warehouse" not in text
    assert text.count('data-state="new"') == TABLES
    assert text.count("None of the last runs had any") == 4


def test_a_table_that_cannot_be_read_is_named_and_the_rest_is_shown(home: Settings, reader: TestClient) -> None:
    rows.fill(home, 2)
    for log in (home.warehouse / "silver/customers_quarantine/_delta_log").iterdir():
        log.write_text("rubbish")
    for path in ("/", CUSTOMERS):
        answer = reader.get(path)
        assert answer.status_code == 200
        assert answer.text.count("silver.customers_quarantine cannot be read") == 1
    text = reader.get("/").text
    assert (text.count('<svg class="chart " '), text.count("None of the last runs had any")) == (4, 0)


def test_unusable_settings_are_an_error_of_the_page(reader: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_LARGE_CREDIT", "much")
    answer = reader.get("/")
    assert (answer.status_code, "LEDGER_LARGE_CREDIT" in answer.text) == (500, True)


def test_ten_thousand_results_are_a_page_of_less_than_a_megabyte(home: Settings, reader: TestClient) -> None:
    rows.fill(home, 440, rows_a_run=20)
    text = reader.get("/").text
    assert text.count('class="run ') == TABLES * 20
    assert len(text) < 1_000_000
