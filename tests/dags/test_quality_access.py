"""The page "Quality" for those who may see figures only: no route without an entry in the table, and no value on any page."""

import pytest
from fastapi import HTTPException, Request
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from include.orchestration.decisions import question
from include.quality_page.access import FIGURES, NEEDS, VALUES, may_read
from include.quality_page.app import app
from spark_jobs.control.verdicts import read_verdict
from spark_jobs.lake import tables
from spark_jobs.runtime.settings import Settings
from tests.support import quality_rows as rows

RUN = rows.run_id(3).replace("+", "%2B")
PAGES = (
    *("/", "/table?name=silver.transactions", "/table?name=gold.daily_totals", f"/run?dag_id=medallion&run_id={RUN}"),
    *("/run?dag_id=audit&run_id=audit 3", "/decisions", "/quarantine?table=silver.transactions_quarantine"),
    "/quarantine?table=silver.transactions_quarantine&rule=amount_scale&by=source",
)
FIRST = "transactions/0/7 of 98.901"
VALUES_SENT = ("98.901", "A00000001", "C00000001", "T4711", FIRST)


def test_every_route_of_the_page_is_in_the_table_and_no_other() -> None:
    assert {route.path for route in app.routes if isinstance(route, APIRoute)} == set(NEEDS)
    assert set(NEEDS.values()) == {FIGURES, VALUES}
    with pytest.raises(HTTPException, match="403"):
        may_read(Request({"type": "http", "route": APIRoute("/new", lambda: None)}), user=None)  # type: ignore[arg-type]  # not asked


def fill(home: Settings) -> None:
    """Run 3 found rows of quarantine, and its gate is closed for one that it names; an audit names another."""
    rows.fill(home, 2)
    rows.close_gate(home, 3)
    named = rows.verdict(3, "gold.daily_totals", "large_amounts") | {"_found": [f"1; first: {FIRST}"], "_expected": ["at most 0"]}
    rows.write(home, tables.QUALITY_RESULTS, [named])
    rows.write(home, tables.AUDITS, [rows.audited(3, "gold.daily_totals", None, "T4711: credits 98.901")])


def test_a_viewer_sees_every_figure_and_no_value(home: Settings, viewer: TestClient) -> None:
    fill(home)
    texts = {path: viewer.get(path).text for path in PAGES}
    assert [(path, value) for path, text in texts.items() for value in VALUES_SENT if value in text] == []
    assert [path for path, text in texts.items() if "Your role sees figures." not in text] == []
    assert [path for path, text in texts.items() if "/data_docs/" in text or "/explain" in text or "quarantine.csv" in text] == []
    assert "large_amounts: found 1, expected at most 0" in texts["/table?name=gold.daily_totals"]
    assert "quarantined_per_thousand. Found 800, expected at most 500." in texts["/decisions"]
    assert "The rows, masked, are for operators." in texts[PAGES[6]]
    assert "80 rows" in texts[PAGES[6]]


def test_a_viewer_is_offered_nothing_that_only_operators_can_do(home: Settings, viewer: TestClient) -> None:
    fill(home)
    texts = {path: viewer.get(path).text for path in PAGES}
    offers = ("quality_decision", ">Decide<", "spark_jobs.run", 'id="redrive"')
    assert [(path, offer) for path, text in texts.items() for offer in offers if offer in text] == []
    assert '<a class="button" href="/quality/decisions">Decisions</a>' in texts["/"]
    assert "An operator answers in Airflow." in texts["/decisions"]


def test_an_operator_sees_the_same_values_in_the_same_places(home: Settings, reader: TestClient) -> None:
    fill(home)
    texts = {path: reader.get(path).text for path in PAGES}
    assert [value for value in VALUES_SENT if not any(value in text for text in texts.values())] == []
    assert f"large_amounts: found 1; first: {FIRST}, expected at most 0" in texts["/table?name=gold.daily_totals"]
    assert not any("Your role sees figures." in text for text in texts.values())


def test_the_question_names_no_row_as_viewers_read_it_in_airflow() -> None:
    named = rows.verdict(3, "gold.daily_totals", "large_amounts") | {"_found": [f"1; first: {FIRST}"], "_expected": ["at most 0"]}
    asked = question([read_verdict({**named, "id": None}, [])], 1, "http://airflow.example")
    assert "| gold.daily_totals | large_amounts | `1` | `at most 0` |" in asked
    assert FIRST not in asked
