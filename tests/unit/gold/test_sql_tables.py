"""Gold tables in SQL: what the header becomes, and what is refused when the file is loaded, with its line. Needs no Spark."""

import re
from pathlib import Path

import pytest
from deltalake import DeltaTable

from expectations.suites import SuiteError, read_suite
from spark_jobs import run
from spark_jobs.control.judged_rows import Written
from spark_jobs.explain import job as explain
from spark_jobs.gold.declaration import GoldTable
from spark_jobs.gold.selects import Selected
from spark_jobs.gold.sql_tables import find_tables, load
from spark_jobs.gold.strategies import Windows
from spark_jobs.gold.tables import daily_totals, debit_share
from spark_jobs.lake import tables
from spark_jobs.releases import gates
from spark_jobs.runtime.errors import AuditDifference, SettingsError
from spark_jobs.runtime.settings import ROOT, Settings
from tests.support.warehouse import LOADED, good_rows, settings_of, write

IN_SQL = ROOT / "tests/spark/gold/sql"
KNOWN = {table.name: table for table in (daily_totals.TABLE, debit_share.TABLE)}
TEXT = """-- keys: window_start, type
-- time: window_start
-- columns: window_start timestamp, type string,
--    amount decimal(38, 2)
-- touches: windows of 1 day
select date_trunc('day', event_at) as window_start, type, sum(amount) as amount
from {transactions}
group by 1, 2
"""
TYPES = "expected string, boolean, int, bigint, date, timestamp or decimal"

REFUSED: list[tuple[str, str, str]] = [
    ("-- keys: window_start, type\n", "", "1: found no keys in the header"),
    (
        "-- touches: windows of 1 day",
        "-- touch: all",
        "5: found the field touch, expected one of keys, time, columns, touches, description",
    ),
    ("-- time: window_start", "-- keys: type", "2: found keys a second time"),
    ("-- time: window_start", "-- The time of it.", "2: found '-- The time of it.', expected `-- field: value`"),
    ("-- time: window_start", "-- time:", "2: found '-- time:', expected"),
    ("window_start, type\n", "window_start, kind\n", "1: found keys: kind, expected columns of the table"),
    ("window_start, type\n", "window_start, type, type\n", "1: found keys: type, expected columns of the table, each once"),
    ("-- time: window_start", "-- time: window_end", r"2: found time: window_end \(no such column\), expected"),
    ("-- time: window_start", "-- time: type", "2: found time: type string, expected a column of type timestamp, or a date called `day`"),
    ("columns: window_start timestamp", "columns: window_start date", "2: found time: window_start date, expected"),
    ("type string,", "type string, type string,", "3: found columns: type more than once"),
    ("type string,", "type,", "3: found columns: 'type', expected `name type, name type, ...`"),
    ("type string,", "type text,", f"3: found columns: type text, {TYPES}"),
    ("decimal(38, 2)", "double", f"3: found columns: amount double, {TYPES}"),
    ("decimal(38, 2)", "decimal(39, 2)", rf"3: found columns: amount decimal\(39,2\), {TYPES}"),
    ("type string,", "type string not null,", f"3: found columns: type string not null, {TYPES}"),
    ("type string,", "_type string,", "3: found columns: _type, expected names"),
    ("windows of 1 day", "windows of 0 days", "5: found touches: windows of 0 days, expected `all`, `rows by COLUMN` or `windows of"),
    ("windows of 1 day", "windows of 1 month", "5: found touches: windows of 1 month, expected `all`"),
    ("windows of 1 day", "windows of 367 days", "5: found touches: .*, of at most 366 days"),
    ("windows of 1 day", "windows", "5: found touches: windows, expected"),
    ("windows of 1 day", "rows by customer_id", "5: found touches: rows by customer_id, expected rows by a column of the table and of"),
    ("windows of 1 day", "rows by amount", "5: found touches: rows by amount, expected .*: here type"),
    (
        "keys: window_start, type",
        "keys: type",
        r"5: found touches: windows of 1 day, expected the start of the window as time, .* one of the keys",
    ),
    ("{transactions}", "silver", r"6: found a SELECT without \{transactions\}"),
    (
        "{transactions}",
        "{transactions} join {customer} using (customer_id)",
        r"7: found \{customer\}, expected \{transactions\}, \{customers\}",
    ),
    ("{transactions}", "{transactions} join {gold.unknown} using (type)", r"7: found \{gold.unknown\}, expected"),
    ("{transactions}", "{gold.debit_share}", r"7: found \{gold.debit_share\}, expected .* a table that is not made of another one"),
    ("{transactions}", "{gold.daily_totals}", "5: found touches: windows of 1 day, expected all, because the SELECT reads another table"),
    ("{transactions}", "{transactions} where type = '}'", r"7: found \}, expected .*; a brace is \{\{ or \}\}"),
    ("{transactions}", "delta.`/data/other`, {transactions}", r"7: found '\.`', expected one SELECT over the tables that its placeholders"),
    ("group by 1, 2", "group by 1, 2; select 1", "8: found ';', expected one SELECT"),
    ("select date", "delete from {transactions}; select date", "6: found 'delete from"),
    ("select date_trunc", "with a as (select 1) insert into b select date_trunc", "6: found 'insert into', expected one SELECT"),
]


@pytest.mark.parametrize(("old", "new", "found"), REFUSED, ids=[f"{number}" for number in range(len(REFUSED))])
def test_a_header_that_cannot_be_right_is_refused_with_its_line(old: str, new: str, found: str) -> None:
    assert old in TEXT
    with pytest.raises(SettingsError, match=rf"^dir/totals\.sql:{found}") as caught:
        load(Path("dir/totals.sql"), TEXT.replace(old, new), KNOWN)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["daily_totals", "live_totals", "Totals", "to-tals"])
def test_a_name_that_is_none_or_another_table_s_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=rf"^{name}\.sql:1: found the table gold\.{name}.*, expected a new name in snake_case"):
        load(Path(f"{name}.sql"), TEXT, KNOWN)


def test_a_table_in_sql_is_declared_as_one_in_python() -> None:
    table = load(Path("totals.sql"), TEXT + ";\n", KNOWN)
    assert (table.name, table.columns, table.keys) == ("gold.totals", ("window_start", "type", "amount"), ("window_start", "type"))
    assert (table.time_column, table.of_windows, table.follows) == ("window_start", True, (tables.SILVER_TRANSACTIONS,))
    assert [field.type.type for field in table.delta_schema().fields] == ["timestamp", "string", "decimal(38,2)"]
    assert table.query.endswith("group by 1, 2")


def test_the_example_of_the_page_is_a_table_and_every_field_is_in_its_list() -> None:
    page = (ROOT / "include/docs/sql-products.md").read_text().partition("\n## A live table in SQL\n")[0]
    (example,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    twin = load(Path("example.sql"), (ROOT / "tests/spark/gold/added/operation_totals.sql").read_text(), KNOWN)
    table = load(Path("example.sql"), example, KNOWN)
    assert (table.ddl, table.query) == (twin.ddl, twin.query)
    head = page.partition("| field | value |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", head, re.MULTILINE) == ["keys", "time", "columns", "touches", "description"]


def test_semicolons_quotes_and_braces_within_texts_and_comments_mean_nothing() -> None:
    select = (
        "select ';' as type -- insert into; it's\n from {transactions} where type rlike '^a{{2}}$' /* ; */ and operation <> \"it's;\" ;\n"
    )
    table = load(Path("totals.sql"), TEXT[: TEXT.index("select")].replace("windows of 1 day", "all") + select, KNOWN)
    assert isinstance(table, GoldTable)
    assert "rlike '^a{2}$$'" in table.cell.made  # as explain fills it in


@pytest.mark.parametrize(
    ("length", "days"),
    [("30 minutes", 0), ("1 hour", 0), ("5 hours", 1), ("24 hours", 0), ("1 day", 0), ("36 hours", 2), ("2 days", 1), ("7 days", 6)],
)
def test_silver_is_read_for_as_many_days_around_as_a_window_can_reach(length: str, days: int) -> None:
    strategy = load(Path("totals.sql"), TEXT.replace("1 day", length), KNOWN).strategy
    assert isinstance(strategy, Selected)
    windows = strategy.geometry(lambda rows: rows)
    assert isinstance(windows, Windows)
    assert (windows.days, windows.column) == (days, "window_start")


def test_a_table_that_reads_others_follows_what_they_follow(tmp_path: Path) -> None:
    """It comes after the table that it is made of, whatever the files are called."""
    first = TEXT.replace("{transactions}", "{transactions} join {accounts} using (account_id)")
    second = TEXT.replace("{transactions}", "{gold.z_first}").replace("windows of 1 day", "all")
    (tmp_path / "z_first.sql").write_text(first)
    (tmp_path / "a_second.sql").write_text(second)
    (tmp_path / "broken.sql").write_text(TEXT.replace("-- time", "-- tine"))
    found, refused = find_tables(tmp_path, {})
    assert [table.name for table in found] == ["gold.z_first", "gold.a_second"]
    assert {table.follows for table in found} == {(tables.SILVER_TRANSACTIONS, tables.SILVER_ACCOUNTS)}
    assert found[1].made_of is found[0]
    assert refused == [f"{tmp_path}/broken.sql:2: found the field tine, expected one of keys, time, columns, touches, description"]


def test_no_job_runs_while_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(tables, "REFUSED", ["a.sql:2: found the field tine, expected time"])
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path / "home"))
    assert run.main(["gate", "gold"]) == 2
    assert "a.sql:2: found the field tine, expected time" in caplog.text
    assert not (tmp_path / "home/warehouse").exists()


def lake_with(home: Path, name: str, monkeypatch: pytest.MonkeyPatch, *changes: tuple[str, str]) -> tuple[Settings, GoldTable]:
    """Silver and gold of good rows, and a table in SQL that holds what its twin in Python does."""
    text = (IN_SQL / f"sql_{name}.sql").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    table = load(Path(f"sql_{name}.sql"), text, {"gold.sql_daily_totals": daily_totals.TABLE} if "{gold." in text else {})
    settings, rows = settings_of(home), good_rows()
    monkeypatch.setattr(tables, "GOLD", (*tables.GOLD, table))
    monkeypatch.setitem(tables.LAYERS, "gold", tables.GOLD)
    monkeypatch.setitem(tables.BY_NAME, table.name, table)
    write(settings, rows | {table.name: rows[f"gold.{name}"]})
    tables.ensure_tables(settings, (*tables.GOLD, *tables.CONTROL))
    return settings, table


@pytest.mark.parametrize("name", ["daily_totals", "customer_activity"])
def test_a_cell_is_explained_by_the_rows_that_make_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same rows as behind the twin in Python; those of the window that have other keys stand beside it."""
    settings, table = lake_with(tmp_path, name, monkeypatch)
    explain.run(settings, f"gold.{name}", "true")
    expected = capsys.readouterr().out
    explain.run(settings, table.name, "true")
    told = capsys.readouterr().out
    counts = re.findall("  rows: [0-9]+ of", expected)
    assert counts
    assert re.findall("  rows: [0-9]+ of", told) == counts
    assert told.count("  sums: equal, ") == len(counts)
    assert ("beside the cell" in told) == (name == "daily_totals")


def test_a_cell_that_the_rows_do_not_make_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, table = lake_with(tmp_path, "daily_totals", monkeypatch, ("count(*)", "count(*) + 1"))
    with pytest.raises(AuditDifference, match="found 2 of 2 cells that are not what silver makes"):
        explain.run(settings, table.name, "true")


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("daily_totals", ("count(*)", "count_if(true)"), "DataFusion, which computes it here in place of Spark, does not run its SELECT"),
        ("daily_totals", ("count(*)", "count(mask_name(type))"), "DataFusion, which computes it here in place of Spark, does not run its"),
        (
            "daily_totals",
            ("from {transactions}", "from {transactions} cross join split_words(table(select '', '')) as w"),
            "DataFusion, which computes it here in place of Spark, does not run its SELECT",
        ),
        ("debit_share", ("all", "all"), "its SELECT reads another table of gold"),
    ],
)
def test_a_cell_that_cannot_be_made_here_shows_its_rows_and_says_why(
    name: str, change: tuple[str, str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, table = lake_with(tmp_path, name, monkeypatch, change)
    explain.run(settings, table.name, "true")
    told = capsys.readouterr().out
    assert f"  sums: not computed again: {why}" in told
    assert "transactions 0:" in told  # a record of Kafka
    assert "run audit computes the whole table again" in told


def test_a_gate_judges_a_table_without_a_suite_by_its_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, table = lake_with(tmp_path, "daily_totals", monkeypatch)

    def failed() -> list[str]:
        written = Written(table, DeltaTable(str(table.path(settings))).version(), 1, 2)
        (judgement,) = gates.judge_written(settings, "gold", [written], [], {}, "run", LOADED)
        assert judgement.evaluated == 2
        return [failure.expectation for failure in judgement.failures if failure.is_critical]

    assert failed() == []
    write(settings, {table.name: [good_rows()["gold.daily_totals"][0], good_rows()["gold.daily_totals"][0] | {"type": None}]})
    assert failed() == ["missing_keys", "repeated_keys"]


def test_a_table_in_python_without_a_suite_still_closes_its_gate(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="cannot be used"):
        read_suite("gold.new", tmp_path)
