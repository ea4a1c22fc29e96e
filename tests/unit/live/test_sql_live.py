"""Live tables in SQL: what the header becomes, and what is refused when the file is loaded, with its line. Needs no Spark."""

import re
from pathlib import Path

import pytest

from spark_jobs import run
from spark_jobs.lake import tables
from spark_jobs.live import places
from spark_jobs.live.sql_tables import find_tables, load
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import ROOT, read_settings

KNOWN = ("gold.daily_totals", "gold.live_daily_totals", "gold.live_transactions")
TEXT = """-- keys: window_start, type
-- time: window_start
-- columns: window_start timestamp, type string,
--    amount decimal(38, 2)
-- watermark: event_at
-- lateness: 2 minutes
select window.start as window_start, type, sum(amount) as amount
from {transactions}
group by window(event_at, '1 day'), type
"""
REFUSED: list[tuple[str, str, str]] = [
    ("-- watermark: event_at\n", "", "1: found no watermark in the header, expected lines `-- field: value`"),
    ("-- lateness: 2 minutes", "-- touches: all", "6: found the field touches, expected one of keys, time, columns, watermark, lateness,"),
    ("-- lateness: 2 minutes", "-- watermark: event_at", "6: found watermark a second time, expected each field once"),
    ("watermark: event_at", "watermark: event_on", "5: found watermark: event_on, expected event_at, the time of a transaction"),
    ("2 minutes", "0 minutes", "6: found lateness: 0 minutes, expected `N seconds`, `minutes`, `hours` or `days`"),
    ("2 minutes", "2", "6: found lateness: 2, expected"),
    ("2 minutes", "1 month", "6: found lateness: 1 month, expected"),
    ("keys: window_start, type", "keys: window_start, kind", "1: found keys: kind, expected columns of the table"),
    ("time: window_start", "time: type", "2: found time: type string, expected a column of type timestamp"),
    ("type string,", "type text,", "3: found columns: type text, expected string, boolean, int"),
    ("decimal(38, 2)", "double", "3: found columns: amount double, expected"),
    ("{transactions}", "silver", r"7: found a SELECT without \{transactions\}, expected \{transactions\}"),
    ("{transactions}", "{customers}", r"8: found \{customers\}, expected \{transactions\}, the only table that a live table reads"),
    ("{transactions}", "{gold.live_daily_totals}", r"8: found \{gold.live_daily_totals\}, expected"),
    ("{transactions}", "{transactions} where type = '{'", r"8: found \{, expected .*; a brace is \{\{ or \}\}"),
    ("{transactions}", "{transactions} a join {transactions} b", r"8: found \{transactions\} a second time, expected it once"),
    ("{transactions}", "delta.`/data/other`, {transactions}", r"8: found '\.`', expected one SELECT over the tables that its placeholders"),
    ("event_at, '1 day'), type", "event_at, '1 day'), type; select 1", "9: found ';', expected one SELECT"),
    ("select window", "delete from {transactions}; select window", "7: found 'delete from"),
]


@pytest.mark.parametrize(("old", "new", "found"), REFUSED, ids=[f"{number}" for number in range(len(REFUSED))])
def test_a_header_that_cannot_be_right_is_refused_with_its_line(old: str, new: str, found: str) -> None:
    assert old in TEXT
    with pytest.raises(SettingsError, match=rf"^dir/totals\.sql:{found}") as caught:
        load(Path("dir/totals.sql"), TEXT.replace(old, new), KNOWN)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["daily_totals", "transactions", "topics", "Totals", "to-tals"])
def test_a_name_that_is_none_or_another_table_s_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=rf"^{name}\.sql:1: found the table gold\.live_{name}.*, expected a new name in snake_case"):
        load(Path(f"{name}.sql"), TEXT, KNOWN)


def test_a_table_in_sql_is_declared_as_one_in_python() -> None:
    table = load(Path("totals.sql"), TEXT.rstrip() + " ;\n", KNOWN)
    assert (table.name, table.columns, table.keys) == ("gold.live_totals", ("window_start", "type", "amount"), ("window_start", "type"))
    assert table.time_column == "window_start"
    assert [field.type.type for field in table.delta_schema().fields] == ["timestamp", "string", "decimal(38,2)"]
    assert table.query.endswith("group by window(event_at, '1 day'), type")


@pytest.mark.parametrize(
    ("line", "setting", "lateness"),
    [("", "10", 10), ("", "3600", 3600), ("-- lateness: 2 minutes\n", "10", 120), ("-- lateness: 120 seconds\n", "120", 120)],
)
def test_a_table_waits_as_long_as_its_header_says_or_as_long_as_rows_are_accepted(line: str, setting: str, lateness: int) -> None:
    table = load(Path("totals.sql"), TEXT.replace("-- lateness: 2 minutes\n", line), KNOWN)
    assert table.lateness(read_settings({"LEDGER_ALLOWED_LATENESS_SECONDS": setting})) == lateness


def test_a_table_that_waits_less_than_rows_are_accepted_is_refused() -> None:
    table = load(Path("totals.sql"), TEXT, KNOWN)
    with pytest.raises(
        SettingsError,
        match=r"^totals\.sql:6: found lateness: 120 seconds, expected at least 121 seconds \(LEDGER_ALLOWED_LATENESS_SECONDS\), or no such",
    ):
        table.lateness(read_settings({"LEDGER_ALLOWED_LATENESS_SECONDS": "121"}))


def test_a_refused_file_takes_no_other_one_with_it(tmp_path: Path) -> None:
    """Nor is one that has the name of another, wherever it lies."""
    (tmp_path / "team").mkdir()
    (tmp_path / "broken.sql").write_text(TEXT.replace("-- time", "-- tine"))
    for file in ("good.sql", "team/good.sql"):
        (tmp_path / file).write_text(TEXT)
    found, refused = find_tables(tmp_path, KNOWN)
    assert [table.name for table in found] == ["gold.live_good"]
    assert refused == {
        "broken": f"{tmp_path}/broken.sql:2: found the field tine, expected one of keys, time, columns, watermark, lateness, description",
        "good": f"{tmp_path}/team/good.sql:1: found the table gold.live_good, which there is already, expected a new name in snake_case",
    }


@pytest.mark.parametrize("job", ["live", "upgrade --mode last-state", "savepoint list"])
def test_no_job_on_live_tables_runs_while_a_file_is_refused(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tables, "REFUSED_LIVE", {"a": "a.sql:2: found the field tine, expected time"})
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path / "home"))
    assert run.main(job.split()) == 2
    assert "a.sql:2: found the field tine, expected time" in caplog.text
    assert not (tmp_path / "home/warehouse").exists()


def test_all_other_jobs_run_while_a_live_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "REFUSED_LIVE", {"a": "a.sql:2: found the field tine, expected time"})
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path / "home"))
    assert run.main(["live_control", "status"]) == 0
    assert run.main(["maintenance", "--tables", "gold.daily_totals"]) == 0


def test_what_the_query_of_a_refused_file_has_yet_to_read_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read_settings({"LEDGER_HOME": str(tmp_path)})
    folder = places.root(settings) / "a"
    for part, text in (
        ("generation.json", '{"number": 1, "fingerprint": {}}'),
        ("1/offsets/4", 'v2\n{}\n{"reservoirVersion":7}'),
        ("1/commits/4", "v1\n{}"),
    ):
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        (folder / part).write_text(text)
    assert places.unread_from(settings, tables.LIVE_TRANSACTIONS) is None
    monkeypatch.setattr(places, "REFUSED_LIVE", {"a": "a.sql:2: found the field tine, expected time"})
    assert places.unread_from(settings, tables.LIVE_TRANSACTIONS) == 7
    assert places.unread_from(settings, tables.LIVE_DAILY_TOTALS) is None


def test_the_example_of_the_page_is_a_table_and_every_field_is_in_its_list() -> None:
    page = (ROOT / "include/docs/sql-products.md").read_text().partition("\n## A live table in SQL\n")[2]
    (example,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    twin = (ROOT / "tests/spark/live/sql/sql_hourly_debits.sql").read_text()
    assert load(Path("example.sql"), example, KNOWN) == load(Path("example.sql"), twin, KNOWN)
    head = page.partition("| field | value |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", head, re.MULTILINE) == ["keys", "time", "columns", "watermark", "lateness", "description"]
