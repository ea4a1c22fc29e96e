"""Which cells a condition of `run explain` picks, what it refuses, and what it names where there is none. Needs no Spark."""

import pickle
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_jobs.explain import cells, job, runs
from spark_jobs.explain.cells import Found
from spark_jobs.gold.declaration import find as find_table
from spark_jobs.lake import conditions, tables
from spark_jobs.lake.tables import Table
from spark_jobs.runtime import text
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings
from tests.support.aging import follow
from tests.support.warehouse import good_rows, settings_of, write

HOSTILE = [
    "true; drop table cell",
    "type = 'Debit'; --",
    "type = 'Debit' -- all",
    "type /* all */ = 'Debit'",
    "exists (select 1)",
    "type in (SELECT 'Debit')",
    "type in (values ('Debit'))",
    "exists (from cell)",
    "exists (table cell)",
    "1 = 1) or (1 = 1",
    "1 = 1) union all select * from cell where (1 = 1",
    "(type = 'Debit'",
    "type = 'Debit",
    "type = E'\\' or exists (select 1) --'",
    "type = $$x$$",
    "type = `type`",
    "row_number() over () = 1",
    "type = 'Debit\0'\0",
    "true " * 3000,
    "",
    "  ",
]


@pytest.mark.parametrize("condition", HOSTILE)
def test_a_condition_that_is_more_than_one_is_refused(condition: str) -> None:
    with pytest.raises(SettingsError, match=r"^--where: found .*, expected one condition") as caught:
        conditions.check(condition)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.fixture(scope="module")
def gold(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Gold of one day, 2013-01-02, and an empty table."""
    settings = settings_of(tmp_path_factory.mktemp("gold"))
    write(settings, {name: rows for name, rows in good_rows().items() if name.startswith("gold.")})
    tables.ensure_tables(settings, tables.GOLD)
    DeltaTable(str(tables.LARGE_CREDITS.path(settings))).delete()
    return settings


def find(settings: Settings, table: Table, condition: str) -> Found:
    return cells.find(table, DeltaTable(str(table.path(settings))), condition)


@pytest.mark.parametrize(
    "condition",
    [
        "type = 'Debit' and (amount > 1.5 or transactions in (1, 2))",
        "(type is not distinct from 'Debit') and type like 'D%'",
        "\"type\" = 'Debit' and window_start between '2013-01-01' and timestamp '2013-01-02 12:00:00'",
        "type = 'Debit' and date_part('day', window_start) = 2 and 'a;b--c(' <> 'x'",
        "amount = 40.01",
        "type = 'Debit' and window_start = '2013-01-02T00:00:00Z'",
    ],
)
def test_conditions_of_all_kinds_pick_cells(gold: Settings, condition: str) -> None:
    found = find(gold, tables.DAILY_TOTALS, condition)
    assert [(cell["type"], str(cell["amount"])) for cell in found.cells] == [("Debit", "40.01")]
    assert found.count == 1


def test_of_many_cells_the_first_by_their_keys_are_shown_and_all_are_counted(gold: Settings) -> None:
    found = find(gold, tables.SLIDING_TOTALS, "true")
    places = [(cell["window_start"], cell["type"]) for cell in found.cells]
    assert (len(places), found.count) == (cells.MOST_CELLS, 26)
    assert places == sorted(places)


UNUSABLE = {
    "nope = 1": "No field named nope; gold.daily_totals has the columns window_start, window_end, type, transactions, amount$",
    "1": "non-boolean predicate",
    "type": "non-boolean predicate",
    "count(*) > 1": "Aggregate functions are not allowed",
    "window_start = 'yesterday'": "times are written as '2013-01-05' or '2013-01-05 10:30:00'; gold.daily_totals has the columns",
    "transactions = 'x'": "has the columns",
    "type ~ '('": "has the columns",
    "amount / 0 > 1": "has the columns",
    "= 1": "has the columns",
    "type = 'Debit' and": "has the columns",
}


@pytest.mark.parametrize("condition", UNUSABLE)
def test_a_condition_that_cannot_be_answered_is_one_line_with_the_columns(gold: Settings, condition: str) -> None:
    with pytest.raises(SettingsError, match=f"^--where: .*{UNUSABLE[condition]}") as caught:
        find(gold, tables.DAILY_TOTALS, condition)
    assert "\n" not in str(caught.value)


ABSENT = [
    (tables.DAILY_TOTALS, "window_start = '2013-01-03' and type = 'Debit'", r"window_start = 2013-01-02 00:00:00 \(found '2013-01-03'\)"),
    (tables.DAILY_TOTALS, "window_start = '2013-01-02' and amount = 1.00", "window_start = 2013-01-02 00:00:00, which is there without"),
    (tables.DAILY_TOTALS, "type = 'Debits'", r"type = Debit \(found 'Debits'\)"),
    (tables.CUSTOMER_ACTIVITY, "customer_id = 'C000000015'", "customer_id = C00000001 or C00000002 "),
    (tables.WEEKLY_TOP_CUSTOMERS, "rank = 7", r"rank = 2 \(found 7\)"),
    (tables.DISTRICT_MINUTES, "minute is null", "minute from 2013-01-02 08:00:00 to 2013-01-02 11:00:00; district_id from -1 to 1"),
    (tables.DAILY_TOTALS, "null", "window_start from 2013-01-02 00:00:00 to 2013-01-02 00:00:00; type from Credit to Debit"),
]


@pytest.mark.parametrize(("table", "condition", "told"), ABSENT)
def test_where_there_is_no_such_cell_the_nearest_values_are_named(gold: Settings, table: Table, condition: str, told: str) -> None:
    with pytest.raises(SettingsError, match=f"found no such cell in {table.name}: expected values such as .*{told}"):
        find(gold, table, condition)


def test_an_empty_table_says_so(gold: Settings) -> None:
    with pytest.raises(SettingsError, match=r"found no such cell in gold.large_credits: the table is empty"):
        find(gold, tables.LARGE_CREDITS, "true")


def lake_of(home: Path) -> Settings:
    """Silver and gold of 2013-01-02, and a silver row of March in a file that is gone."""
    settings = settings_of(home)
    rows = good_rows()
    rows["silver.customers"][0] |= {"city": "London", "state": "LN"}
    write(settings, rows)
    tables.ensure_tables(settings, (*tables.GOLD, *tables.CONTROL))
    silver = DeltaTable(str(tables.SILVER_TRANSACTIONS.path(settings)))
    before = set(silver.file_uris())
    other = datetime(2013, 3, 1, tzinfo=UTC)
    write(settings, {"silver.transactions": [rows["silver.transactions"][0] | {"event_at": other, "event_on": other.date()}]})
    silver.update_incremental()
    follow(settings, silver.version())
    (added,) = set(silver.file_uris()) - before
    Path(added.removeprefix("file://")).unlink()
    return settings


OF_ALL_TIME = {tables.CUSTOMER_ACTIVITY, tables.ACCOUNT_BALANCES}


@pytest.mark.parametrize("table", [table for table in tables.GOLD if table not in OF_ALL_TIME], ids=lambda table: table.name)
def test_a_file_of_other_times_is_not_read(table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.run(lake_of(tmp_path), table.name, "true")
    assert "  sums: equal, " in capsys.readouterr().out


def test_a_file_that_is_gone_and_needed_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"^silver cannot be read \(.*\): run it again") as caught:
        job.run(lake_of(tmp_path), "gold.customer_activity", "true")
    assert "\n" not in str(caught.value)


def test_ids_of_any_characters_stay_in_their_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings, strange = settings_of(tmp_path), "T4\n\x1b[2J'$type"
    rows = good_rows()
    rows["silver.transactions"][-1] |= {"transaction_id": strange}
    rows["gold.large_credits"][0] |= {"transaction_id": strange}
    write(settings, rows)
    tables.ensure_tables(settings, tables.CONTROL)
    job.run(settings, "gold.large_credits", "true")
    text = capsys.readouterr().out
    assert "cell transaction_id T4\\n\\x1b[2J'$type\n" in text
    assert "transaction_id = 'T4\\n\\x1b[2J'$type'\n" in text
    assert "  sums: equal, " in text
    assert "\x1b" not in text


def test_every_gold_table_says_how_its_cells_are_made_and_is_found_by_another_process() -> None:
    assert [find_table(table.name) for table in tables.GOLD] == [*tables.GOLD]
    assert all(find_table(table.name).cell.made for table in tables.GOLD)
    assert all(pickle.loads(pickle.dumps(table)) is table for table in tables.GOLD)  # noqa: S301


def test_values_are_one_line_and_move_no_cursor() -> None:
    assert text.shown("a\n\x1b[2Jb") == "a\\n\\x1b[2Jb"
    assert len(text.shown("x" * 500)) == 60
    assert text.shown(None) == "-"


def test_batches_are_told_as_ranges() -> None:
    assert runs.ranges([7, 1, 2, 3, 3, 9, 10]) == "1 to 3, 7, 9 to 10"
