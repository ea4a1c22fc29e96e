"""The page "Quality" against what it was not made for: hostile values, tables that are missing or broken, and very many verdicts."""

import csv
import io
import json
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.settings import Settings
from tests.support import quality_rows as rows

RUN = "/run?dag_id=medallion&run_id=" + rows.run_id(3).replace("+", "%2B")
TRANSACTIONS, CUSTOMERS = "table=silver.transactions_quarantine", "table=silver.customers_quarantine"
EVERY_TABLE = [table.name for layer in tables.LAYERS.values() for table in layer]
PAGES = (
    *(
        "/",
        "/decisions",
        RUN,
        "/table?name=silver.transactions",
        "/table?name=silver.customers_quarantine",
        "/table?name=gold.daily_totals",
    ),
    *(f"/quarantine?by={by}&{table}" for by in ("rule", "batch", "source") for table in (TRANSACTIONS, CUSTOMERS)),
)
SHORT = (*PAGES[:4], f"/quarantine?{TRANSACTIONS}")
FILES = (f"/quarantine.csv?{TRANSACTIONS}", f"/quarantine.csv?{CUSTOMERS}")
EVIL = """<img src=x onerror=alert(1)>"'}}{{7*7}}</script><script>alert(2)</script>"""


def close_over(home: Settings, *hostile: rows.Row) -> None:
    """Runs 1 and 2 as ever; run 3 found rows of quarantine, and its gate is closed for that."""
    rows.fill(home, 2)
    rows.close_gate(home, 3)
    rows.write(home, tables.TRANSACTIONS_QUARANTINE, list(hostile))


def broken(offset: int, value: bytes, rule: str, found: str) -> rows.Row:
    return rows.quarantined(3, "transactions", offset, value, [rule], f"{rule}: found {found}")


def test_masked_values_stay_masked_on_every_page_and_in_the_files(home: Settings, reader: TestClient) -> None:
    secret = list(rows.PERSONAL.values())
    every = " ".join(secret)
    in_all_fields = rows.transaction(amount=every, type=every, eventTime=every)
    close_over(
        home,
        *(broken(5000 + at, rows.transaction(operation=value), f"gone_{at}", value) for at, value in enumerate(secret)),
        *(broken(6000 + at, rows.transaction(**{value: 1}), "amount_scale", value) for at, value in enumerate(secret)),
        broken(7000, in_all_fields, "type_known", every),
        broken(7001, every.encode(), "parseable", every) | {"key": every.encode()},
        broken(7002, every.encode("utf-16"), "parseable", every),
    )
    texts = {path: reader.get(path).text for path in (*PAGES, *FILES)}
    assert "transactions 0:7001" in texts[PAGES[6]] or "7001" in texts[FILES[0]]
    assert "districtId" in texts["/decisions"]  # a customer is among the examples
    assert [(path, value) for path, text in texts.items() for value in secret if value in text] == []


def test_markup_in_values_is_shown_as_text(home: Settings, reader: TestClient) -> None:
    rule = f"rule {EVIL}"
    close_over(
        home, rows.quarantined(3, f"transactions{EVIL}", 1, rows.transaction(amount=1.234), [rule, "amount_scale"], f"{rule}: found number")
    )
    failed = rows.verdict(3, "silver.customers", EVIL) | {
        "_found": [EVIL],
        "_expected": [EVIL],
        "report": f"file:///quality/data_docs/validations/{EVIL}.html",
    }
    rows.write(
        home, tables.QUALITY_RESULTS, [failed, failed | {"table": "gold.daily_totals", "layer": "gold", "run_id": f"scheduled__{EVIL}"}]
    )
    decided = rows.decision(2, EVIL, "wait", EVIL, EVIL) | {"run_id": f"manual__{EVIL}"}
    rows.write(home, tables.DECISIONS, [decided, rows.decision(3, "silver", "wait", EVIL, EVIL)])
    rows.write(home, tables.AUDITS, [rows.audited(1, "gold.daily_totals", 7, EVIL)])
    rows.judged(home, 3, "silver.transactions", **{EVIL: 5})
    paths = (
        *PAGES,
        "/run?dag_id=audit&run_id=audit 1",
        f"/run?dag_id={EVIL}&run_id={EVIL}",
        f"/quarantine?{TRANSACTIONS}&source=transactions",
    )
    texts = {path: reader.get(path).text for path in paths}
    assert sum("&lt;img src=x onerror=alert(1)&gt;" in text for text in texts.values()) >= 8
    for path, text in texts.items():
        tags = Tags(text).found
        assert len(tags) > 10, path
        assert [tag for tag, _ in tags if tag == "img"] == [], path
        assert [names for tag, names in tags if tag == "script" and "src" not in names] == [], path
        assert [name for _, names in tags for name in names if name.startswith("on")] == [], path
        assert "49" not in text.partition("onerror=alert(1)")[2][:40], path  # a template of Jinja in a value


class Tags(HTMLParser):
    """Every tag of a page with the names of its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, set[str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name for name, _ in attrs}))


def test_a_file_for_a_spreadsheet_holds_no_formula(home: Settings, reader: TestClient) -> None:
    starts = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", '=HYPERLINK("http://example.org";"x")')
    close_over(
        home,
        *(
            rows.quarantined(4, start, at, rows.transaction(amount=-5), [start]) | {"key": start.encode()}
            for at, start in enumerate(starts)
        ),
    )
    answer = reader.get(f"/quarantine.csv?{TRANSACTIONS}&first_batch=4")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="transactions_quarantine.csv"'
    head, *lines = csv.reader(io.StringIO(answer.text, newline=""))
    assert (len(head), len(lines)) == (10, len(starts))
    assert {line[0] for line in lines} == {f"'{start}" for start in starts}
    assert {line[7] for line in lines} == {f"'{start}" for start in starts}
    assert [cell for line in lines for cell in line if cell.startswith(tuple("=+-@\t\r\n"))] == []


def test_an_empty_warehouse_says_what_comes_and_how(home: Settings, reader: TestClient) -> None:
    for path in PAGES:
        answer = reader.get(path)
        assert answer.status_code == 200, path
        assert "It is made by the first run of the DAG bronze_ingestion" in answer.text, path
    home.warehouse.mkdir(parents=True)
    overview = reader.get("/").text
    assert "no release yet" in overview
    assert "none has judged yet" in overview
    assert "bronze has no records yet" in overview
    assert "open</span>" not in overview  # a gate that has not judged is not called open
    assert "Nothing to decide yet: no gate has judged anything." in reader.get("/decisions").text
    assert "Nobody has decided anything yet." in reader.get("/decisions").text
    assert "No record of this topic has broken a rule." in reader.get(f"/quarantine?{CUSTOMERS}").text
    assert (
        "No gate has judged this table yet. The DAG medallion judges it when it has run."
        in reader.get("/table?name=gold.daily_totals").text
    )
    assert [reader.get(path).text.count("\n") for path in FILES] == [1, 1]  # the head


def test_a_filter_that_leaves_nothing_leads_back(home: Settings, reader: TestClient) -> None:
    rows.fill(home, 2)
    text = reader.get(f"/quarantine?{CUSTOMERS}&rule=nope").text
    assert "No row of silver.customers_quarantine is like that." in text
    assert f'<a href="/quality/quarantine?{CUSTOMERS}">All of its rows</a>' in text


def test_a_table_without_verdicts_and_a_warehouse_without_gold(home: Settings, reader: TestClient) -> None:
    known = [name for name in EVERY_TABLE if not name.startswith("gold.")]
    rows.write(home, tables.QUALITY_RESULTS, [rows.verdict(number, name) for number in (1, 2) for name in known])
    rows.write(home, tables.BATCHES, [rows.batch(number, topic) for number in (1, 2) for topic in rows.TOPICS])
    text = reader.get("/").text
    assert (text.count('data-state="passed"'), text.count('data-state="new"')) == (len(known), len(tables.GOLD))
    assert "gold.daily_totals: not judged yet" in text  # in the graph
    assert "no release yet" in text
    assert '<span class="big passed">✓ open</span>' in text
    for name in EVERY_TABLE:
        answer = reader.get(f"/table?name={name}")
        assert answer.status_code == 200
        assert ("No gate has judged this table yet" in answer.text) == name.startswith("gold.")
    assert "every one is accounted for" in reader.get(RUN.replace("15%3A", "10%3A").replace("T00:15", "T00:10")).text


NO_VERDICTS = "verdicts or decisions cannot be read"
NOT_KNOWN = '<span class="big closed">not known</span>'


@pytest.mark.parametrize(
    ("table", "says", "never"),
    [
        (
            tables.QUALITY_RESULTS,
            NO_VERDICTS,
            ["✓ open", ">not judged yet</span>", ": not judged yet", "every gate is", "No gate has judged"],
        ),
        (tables.DECISIONS, NO_VERDICTS, ["✓ open", "every gate is open", "Nobody has decided"]),
        (tables.RELEASES, NOT_KNOWN, ["no release yet", "stay with nothing", "</b> of bronze"]),
        (tables.BATCHES, "Not known, as control.batches is not", ["None of the last runs had any", "<b>0 records</b>"]),
        (tables.BRONZE_TRANSACTIONS, NOT_KNOWN, ["the release has every record"]),
        (tables.TRANSACTIONS_QUARANTINE, "Not known, as silver.transactions_quarantine is not", [">0 rows<", "has broken a rule"]),
    ],
    ids=lambda value: value.name if isinstance(value, Table) else "",
)
def test_what_cannot_be_read_is_said_and_never_looks_well(
    home: Settings, reader: TestClient, table: Table, says: str, never: list[str]
) -> None:
    rows.fill(home, 2)
    rows.close_gate(home, 3)
    rows.write(home, tables.DECISIONS, [rows.decision(1, "silver", "release anyway", "Ada", "known")])
    for log in (table.path(home) / "_delta_log").iterdir():
        log.write_text("rubbish")
    texts = {path: reader.get(path) for path in SHORT}
    assert {answer.status_code for answer in texts.values()} == {200}
    told = {path: answer.text for path, answer in texts.items() if f"{table.name} cannot be read (" in answer.text}
    assert any(says in text for text in told.values())
    for path, text in told.items():
        assert "Traceback" not in text, path
        assert [words for words in never if words in text] == [], path
        assert text.count(f"{table.name} cannot be read (") == 1, path


def test_data_that_is_gone_is_said_like_a_log_that_is_broken(home: Settings, reader: TestClient) -> None:
    rows.fill(home, 1)
    files = list(tables.QUALITY_RESULTS.path(home).glob("*.parquet"))
    assert files
    for file in files:
        file.unlink()
    answer = reader.get("/")
    assert answer.status_code == 200
    assert "control.quality_results cannot be read (" in answer.text


def test_a_file_of_rows_that_cannot_be_read_is_refused(home: Settings, reader: TestClient) -> None:
    rows.fill(home, 1)
    (tables.CUSTOMERS_QUARANTINE.path(home) / "_delta_log/00000000000000000000.json").write_text("rubbish")
    answer = reader.get(f"/quarantine.csv?{CUSTOMERS}")
    assert answer.status_code == 503
    assert "silver.customers_quarantine cannot be read" in answer.text


@pytest.mark.parametrize(
    "kept",
    [
        "rubbish",
        "null",
        "[]",
        '{"results": 5}',
        '{"results": ["a", null, 5]}',
        '{"results": [{"success": true, "result": {"observed_value": 1}, "expectation_config": {"kwargs": {"min_value": "2013-01-01"}}}]}',
        '{"results": [{"result": {}, "expectation_config": {"kwargs": {"column": "x"}}}]}',
        "[" * 100_000,
    ],
    ids=["rubbish", "null", "list", "number", "strings", "a date", "no success", "deep"],
)
def test_results_that_are_none_leave_the_verdict(home: Settings, reader: TestClient, kept: str) -> None:
    rows.fill(home, 1)
    rows.judged(home, 1, "silver.customers_quarantine", quarantined_rows=5)
    (file,) = home.quality.rglob("*.json")
    assert "5" in reader.get("/table?name=silver.customers_quarantine").text
    file.write_text(kept)
    answer = reader.get("/table?name=silver.customers_quarantine")
    assert answer.status_code == 200
    assert "1 expectation failed" in answer.text
    assert "quarantined_rows" in answer.text


def test_results_outside_their_folder_are_not_read(home: Settings, reader: TestClient) -> None:
    away = {"results": [{"success": True, "result": {"observed_value": 7}, "expectation_config": {"kwargs": {"column": "stolen"}}}]}
    home.quality.mkdir(parents=True)
    Path(home.quality / "away.json").write_text(json.dumps(away))
    escape = rows.verdict(1, "silver.customers") | {"report": "file:///quality/data_docs/validations/../../away.html"}
    rows.write(home, tables.QUALITY_RESULTS, [escape])
    answer = reader.get("/table?name=silver.customers")
    assert answer.status_code == 200
    assert "stolen" not in answer.text


def test_ten_thousand_verdicts_and_every_gate_closed_take_less_than_a_second_a_page(home: Settings, reader: TestClient) -> None:
    rows.fill(home, 430, rows_a_run=5)
    rows.write(home, tables.QUALITY_RESULTS, [rows.verdict(431, name, "a", "b") for name in EVERY_TABLE])
    rows.write(home, tables.BATCHES, [rows.batch(431, topic, 5) for topic in rows.TOPICS])
    rows.close_gate(home, 431, hundreds=20)
    for number in range(401, 432):
        rows.judged(home, number, "silver.transactions", **{f"measure_{at}": 0 for at in range(20)})
    taken = {}
    for path in (*PAGES, "/table?name=silver.transactions&page=9", "/table?name=bronze.transactions", f"/quarantine?{CUSTOMERS}&page=40"):
        reader.get(path)  # imports what all need
        taken[path] = min(timed(reader, path) for _ in range(2))
    assert {path: seconds for path, seconds in taken.items() if seconds >= 1} == {}


def timed(reader: TestClient, path: str) -> float:
    """The seconds of processors that an answer takes: a busy machine does not count."""
    begun = time.process_time()
    assert reader.get(path).status_code == 200
    return time.process_time() - begun
