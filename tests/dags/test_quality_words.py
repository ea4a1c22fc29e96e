"""The page "Quality" says what is so: verdicts in the report's words, jobs that add up, filters that hold for their table."""

import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from spark_jobs.lake import tables
from spark_jobs.runtime.settings import Settings
from tests.support import quality_rows as rows

# Of a run, as Airflow's database has them.
TASKS = (
    "'silver_gate', 'failed', '2026-03-01 00:16:30.000000', 4.0, 2",
    "'gold', null, null, null, 0",
    "'silver', 'success', '2026-03-01 00:15:01.000000', 75.2, 1",
)
RUN = "/run?dag_id=medallion&run_id=" + rows.run_id(3).replace("+", "%2B")


def test_a_passed_table_with_a_warning_is_called_so_and_says_what_was_found(home: Settings, reader: TestClient) -> None:
    warned = rows.verdict(1, "gold.account_days", "unbalanced_days_of_1000 (warning)") | {"success": True}
    rows.write(home, tables.QUALITY_RESULTS, [warned | {"_found": ["400"], "_expected": ["at most 300"]}])
    for page in ("/", "/table?name=gold.account_days", RUN.replace("15%3A", "05%3A").replace("15:", "05:")):
        shown = reader.get(page).text
        assert '<span class="state warned">passed, 1 warning</span>' in shown
        assert '<div class="warning">unbalanced_days_of_1000 (warning): found 400, expected at most 300</div>' in shown


def test_gold_leads_to_no_rows_in_quarantine_of_other_tables(home: Settings, reader: TestClient) -> None:
    rows.write(home, tables.QUALITY_RESULTS, [rows.verdict(1, name, "x") for name in ("gold.daily_totals", "silver.transactions")])
    assert reader.get("/").text.count("rows in quarantine") == 1
    assert "rows in quarantine" not in reader.get("/table?name=gold.daily_totals").text


def test_what_a_runs_jobs_did_adds_up(home: Settings, reader: TestClient) -> None:
    counts = {"input": 10, "output": 3, "duplicates": 0, "quarantined": 1, "superseded": 2, "no_change": 4}
    whole, lost = rows.batch(3, "customers") | counts, rows.batch(3, "accounts") | counts | {"no_change": 3}
    gold = {
        "run_id": rows.run_id(3),
        "job": "gold",
        "table": "gold.daily_totals",
        "first_batch": 0,
        "last_batch": 0,
        "input": 0,
        "output": 5,
    }
    rows.write(home, tables.BATCHES, [whole, lost, gold | {"input": 0, "output": 5}])
    assert [cells(reader, name) for name in ("silver.customers", "silver.accounts", "gold.daily_totals")] == [
        ["3", "10", "3", "0", "1", "2", "4", "✓"],
        ["3", "10", "3", "0", "1", "2", "3", "✗ 1"],
        ["none yet", "0", "5", *5 * ["\u2013"]],
    ]


def test_a_runs_tasks_have_seconds_and_rows(home: Settings, reader: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows.write(home, tables.BATCHES, [rows.batch(3, topic) for topic in rows.TOPICS])
    assert "Its tasks" not in reader.get(RUN).text  # Airflow's database cannot be read: the rest is shown
    engine = create_engine(f"sqlite:///{tmp_path}/airflow.db")
    ids = {"dag": "medallion", "run": rows.run_id(3)}
    with engine.begin() as database:
        database.execute(text("create table task_instance (dag_id, run_id, task_id, state, start_date, duration, try_number)"))
        for task in TASKS:
            database.execute(text(f"insert into task_instance values (:dag, :run, {task})"), ids)
    monkeypatch.setattr("airflow.utils.session.create_session", lambda: Session(engine))
    tasks = reader.get(RUN).text.partition("Its tasks")[2].partition("</table>")[0]
    assert [[re.sub("<.*?>", "", cell) for cell in re.findall("<td.*?</td>", row)] for row in tasks.split("<tr>")[2:]] == [
        ["silver", "success", "2026-03-01 00:15:01", "75 seconds", "300", "1"],
        ["silver_gate", "failed", "2026-03-01 00:16:30", "4 seconds", "\u2013", "2"],
        ["gold", "waiting", "\u2013", "\u2013", "\u2013", "0"],
    ]


def cells(reader: TestClient, table: str) -> list[str]:
    """What stands behind a table's name in "What its jobs did"."""
    jobs = reader.get(RUN).text.partition("What its jobs did")[2]
    (row,) = [row for row in jobs.split("<tr>") if f"<td>{table}</td>" in row]
    return [re.sub("<.*?>", "", cell).strip() for cell in re.findall("<td.*?</td>", row)][3:]


def test_a_filter_chosen_for_one_table_does_not_stay_for_the_next(home: Settings, reader: TestClient) -> None:
    rows.fill(home, 2)
    rows.write(home, tables.TRANSACTIONS_QUARANTINE, [rows.quarantined(1, "transactions", 1, b"{", ["parseable"])])
    form = "/quarantine?chosen_for=silver.customers_quarantine&rule=district_id_whole&first_batch=9&last_batch="
    other = reader.get(f"{form}&table=silver.transactions_quarantine").text
    assert '<span class="big">1 row</span>' in other
    assert "district_id_whole" not in other
    assert 'placeholder="the first"' in other  # an empty field, where 0 to 0 would mean all
    assert 'value="0"' not in other
    assert '<span class="big">0 rows</span>' in reader.get(f"{form}&table=silver.customers_quarantine").text


def test_a_warning_is_not_called_a_failure(home: Settings, reader: TestClient) -> None:
    rows.fill(home, 1)
    warned = rows.verdict(2, "silver.transactions", "quarantined_per_thousand", "unknown_customers_per_thousand (warning)")
    rows.write(home, tables.QUALITY_RESULTS, [warned])
    assert "<h2>1 expectation failed, 1 warning</h2>" in reader.get("/table?name=silver.transactions").text


def test_ages_in_the_graph_are_whole_numbers() -> None:
    from include.quality_page.lineage import _short

    assert [_short(seconds) for seconds in (0.2, 2.29, 119.6, 4000 * 86400)] == ["0 s", "2 s", "2 min", "10 y"]
