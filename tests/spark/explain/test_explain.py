"""`run explain` over a lake that the real jobs made: which rows it names, what it says of them, and what it refuses."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from spark_jobs import run
from spark_jobs.control import backfills
from spark_jobs.explain import cells, job
from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from spark_jobs.releases import archive
from spark_jobs.runtime.errors import AuditDifference
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support import explained, lake
from tests.support.explained import A1, A2, C1, C2
from tests.support.frames import at

pytestmark = pytest.mark.spark

Explain = Callable[..., str]


@dataclass(frozen=True)
class Lake:
    """A warehouse, and the release that was made before its second batch."""

    settings: Settings
    release: int


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The lake; not to be written to."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path_factory.mktemp("explain"))})
    return Lake(settings, explained.make(spark, settings))


@pytest.fixture
def explain(made: Lake, capsys: pytest.CaptureFixture[str]) -> Explain:
    """The text that the job prints."""

    def explained(table: Table, condition: str, as_of: int | None = None, settings: Settings = made.settings) -> str:
        capsys.readouterr()
        job.run(settings, table.name, condition, as_of)
        return capsys.readouterr().out

    return explained


def ids(text: str) -> list[str]:
    """The transactions that are listed, in their order."""
    return re.findall(r"^    (T\d) +\d{4}-", text, re.MULTILINE)


def line_of(id_: str, text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"    {id_} "))


CASES = {
    tables.DAILY_TOTALS: ("window_start = '2013-01-01' and type = 'Debit'", ["T6", "T1", "T3", "T5"]),
    tables.SLIDING_TOTALS: ("window_start = '2012-12-31 10:00:00' and type = 'Debit'", ["T6"]),
    tables.CUMULATIVE_TOTALS: ("window_end = '2013-01-01 10:00:00'", ["T6"]),
    tables.CUSTOMER_SESSIONS: (f"customer_id = '{C1}' and session_start < '2013-01-02'", ["T6", "T1", "T2", "T5"]),
    tables.WEEKLY_TOP_CUSTOMERS: ("rank = 1", ["T6", "T1", "T2", "T5", "T4"]),
    tables.CUSTOMER_ACTIVITY: (f"customer_id = '{C2}'", ["T3"]),
    tables.LARGE_CREDITS: ("amount > 50000.00", ["T2"]),
    tables.ENRICHED_TRANSACTIONS: ("customer_city = 'Rye'", ["T3"]),
    tables.DEBIT_CREDIT_PAIRS: ("debit_id = 'T1'", ["T1", "T2"]),
    tables.ACCOUNT_BALANCES: (f"account_id = '{A1}'", ["T6", "T1", "T2", "T5", "T4"]),
    tables.DISTRICT_MINUTES: ("minute = '2013-01-01 10:00:00' and district_id = 55", ["T6", "T1"]),
    tables.DEBIT_SHARE: ("day = '2013-01-02'", []),
    tables.ACCOUNT_DAYS: (f"account_id = '{A1}' and day = '2013-01-02'", ["T4"]),
}


@pytest.mark.parametrize("table", tables.GOLD, ids=lambda table: table.name)
def test_the_rows_of_a_cell_are_named_and_add_up(explain: Explain, table: Table) -> None:
    condition, rows = CASES[table]
    text = explain(table, condition)
    assert ": 1 cell\n" in text
    assert ids(text) == rows
    assert text.count("  sums: equal, ") == 1


@pytest.mark.parametrize("table", tables.GOLD, ids=lambda table: table.name)
def test_every_cell_adds_up(made: Lake, explain: Explain, table: Table) -> None:
    keys = [{key: row[key] for key in table.keys} for row in lake.rows_of(made.settings, table)]
    assert keys
    for chosen in keys[:: cells.MOST_CELLS]:  # of sliding windows there are many
        condition = " and ".join(f"{name} = {cells.literal(value)}" for name, value in chosen.items())
        assert "  sums: equal, " in explain(table, condition)
    text = explain(table, "true")
    assert text.count("  sums: equal, ") == min(len(keys), cells.MOST_CELLS)
    more = len(keys) - cells.MOST_CELLS
    assert (f"{more} more cells match" in text) == (more > 0)


def test_kafka_records_late_rows_duplicates_rules_and_runs(explain: Explain) -> None:
    text = explain(tables.DAILY_TOTALS, CASES[tables.DAILY_TOTALS][0])
    assert "is: window_end 2013-01-02 00:00:00, transactions 4, amount 22.25" in text
    late, first, corrected = (line_of(id_, text) for id_ in ("T6", "T1", "T5"))
    assert re.search(r" transactions 0:4 +2 +late by 82820\.000 s, behind the watermark 2013-01-02 08:59:50; .*gold run gold-2$", late)
    assert re.search(r" transactions 0:0 +1$", first)
    assert "re-driven from quarantine (type_known, rules " in corrected
    assert "run redrive-1), its value corrected by Ada: typed wrong; came when the cell was there: amended by gold run gold-2" in corrected
    assert "  late: 1\n" in text
    assert "  duplicates left out: 2, 1 of them conflicting\n" in text
    assert "    T1 at transactions 0:3, batch 2, repeats transactions 0:0\n" in text
    assert "    T3 at transactions 1:2, batch 2, conflicts with transactions 0:1\n" in text
    assert re.search(r"silver run silver-1, rules \S+, 3 rows of batch 1\n", text)  # the corrected one in its old place
    assert re.search(r"silver run silver-2, rules \S+, 1 row of batch 2\n", text)
    assert "gold run gold-1: first showed the cell, 2 rows of batch 1\n" in text
    assert "gold run gold-2: amended it, 2 rows of batches 1 to 2\n" in text


def test_a_cell_that_a_later_run_made_is_not_amended_by_it(explain: Explain) -> None:
    text = explain(tables.CUMULATIVE_TOTALS, "window_end = '2013-01-01 10:00:00'")
    assert "gold run gold-2: first showed the cell, 1 row of batch 2\n" in text
    assert "amended" not in text


@pytest.mark.parametrize("table", [tables.ENRICHED_TRANSACTIONS, tables.DISTRICT_MINUTES], ids=lambda table: table.name)
def test_a_version_that_came_later_amends_the_cell_and_names_stay_masked(explain: Explain, table: Table) -> None:
    conditions = {tables.ENRICHED_TRANSACTIONS: "transaction_id = 'T3'", tables.DISTRICT_MINUTES: "district_id = 7"}
    text = explain(table, conditions[table])
    assert ids(text) == ["T3"]
    (version,) = [
        line for line in text.splitlines() if line.startswith(f"    {C2} " if "customer" in text.split("versions of")[1] else f"    {A2} ")
    ]
    assert "2012-12-31 00:00:00" in version
    assert version.endswith("came when the cell was there: amended by gold run gold-2")
    assert "silver run silver-2, rules " in version
    if table == tables.ENRICHED_TRANSACTIONS:
        assert "B** B* J****" in version
    assert "Jones" not in text


def test_rows_of_the_minutes_before_stand_beside_the_cell(explain: Explain) -> None:
    text = explain(tables.DISTRICT_MINUTES, CASES[tables.DISTRICT_MINUTES][0])
    assert "transactions 1, amount 10.00, average_5m 0.4" in text
    assert "beside the cell; late by" in line_of("T6", text)
    assert "beside" not in line_of("T1", text)


def test_a_share_is_told_by_days(explain: Explain) -> None:
    text = explain(tables.DEBIT_SHARE, "day = '2013-01-02'")
    assert re.search(r"^    2013-01-02 +0 +1$\n^    2013-01-01 +4 +1$", text, re.MULTILINE)
    assert "is: debits 4, credits 2, debit_share_percent 66.6667" in text


def test_as_of_a_release_what_came_later_is_not_there(made: Lake, explain: Explain) -> None:
    text = explain(tables.DAILY_TOTALS, "window_start = '2013-01-01' and type = 'Debit'", made.release)
    assert text.startswith(f"gold.daily_totals in release {made.release} of ")
    assert ids(text) == ["T1", "T3"]
    assert "duplicates left out: 0\n" in text
    assert "silver-2" not in text
    assert "gold-2" not in text
    assert "  sums: equal, " in text
    text = explain(tables.ENRICHED_TRANSACTIONS, "transaction_id = 'T3'", made.release)
    assert "customer_status unknown" in text
    assert "versions of silver.customers at the rows' times: 0\n" in text


def test_silver_that_gold_has_not_read_yet_is_not_taken_for_a_difference(made: Lake, explain: Explain, tmp_path: Path) -> None:
    settings = copy_of(made, tmp_path)
    table = tables.SILVER_TRANSACTIONS
    path, rows = str(table.path(settings)), lake.rows_of(settings, table)
    row = next(row for row in rows if row["transaction_id"] == "T1") | {"transaction_id": "T9", "_batch": 3}
    write_deltalake(path, pa.Table.from_pylist([row], pa.schema(table.delta_schema().to_arrow())), mode="append")
    assert ids(explain(tables.DAILY_TOTALS, CASES[tables.DAILY_TOTALS][0], settings=settings)) == ["T6", "T1", "T3", "T5"]


def test_a_kept_release_is_explained_from_its_copy(made: Lake, explain: Explain, tmp_path: Path) -> None:
    settings = copy_of(made, tmp_path)
    before = explain(tables.DAILY_TOTALS, "type = 'Debit'", made.release, settings)
    archive.copy_release(settings, made.release)
    shutil.rmtree(tables.SILVER_TRANSACTIONS.path(settings))
    assert explain(tables.DAILY_TOTALS, "type = 'Debit'", made.release, settings) == before


def test_a_backfill_of_the_rows_times_is_told(made: Lake, explain: Explain, tmp_path: Path) -> None:
    settings = copy_of(made, tmp_path)
    order = at("2013-01-01 10:00"), at("2013-01-02"), (tables.SILVER_TRANSACTIONS.name,), {"transactions": "9"}
    step = backfills.Step(backfills.find_or_start(settings, *order, "b"), backfills.TRANSACTIONS, *order[:2])
    backfills.begin(settings, step, "b", versions={})
    text = explain(tables.DAILY_TOTALS, CASES[tables.DAILY_TOTALS][0], settings=settings)
    assert "is under way or stopped halfway" in text
    assert "rebuilt by a backfill" not in text
    backfills.end(settings, step, "b", rows=3, changed=1, last_batch=2, versions={"silver.transactions": 99})
    text = explain(tables.DAILY_TOTALS, CASES[tables.DAILY_TOTALS][0], settings=settings)
    assert '2013-01-01 10:00:00 to 2013-01-02 00:00:00, 3 of these rows, run b, rules {"transactions": "9"}, 1 rows' in text
    assert "halfway" not in text
    assert "rebuilt" not in explain(tables.DAILY_TOTALS, "window_start = '2013-01-02'", settings=settings)
    assert "rebuilt" not in explain(tables.DAILY_TOTALS, "type = 'Debit'", made.release, settings)


def copy_of(made: Lake, folder: Path) -> Settings:
    shutil.copytree(made.settings.home, folder / "home")
    return read_settings({"LEDGER_HOME": str(folder / "home")})


WRONG = {
    tables.CUSTOMER_SESSIONS: ("session_end", "session_end - interval '1 hour'"),
    tables.WEEKLY_TOP_CUSTOMERS: ("rank", "5"),
    tables.ENRICHED_TRANSACTIONS: ("customer_city", "'Ely'"),
    tables.LARGE_CREDITS: ("balance", "0.00"),
    tables.DEBIT_CREDIT_PAIRS: ("customer_id", f"'{C2}'"),
    tables.ACCOUNT_BALANCES: ("_offset", "99"),
    tables.DISTRICT_MINUTES: ("average_5m", "0.6"),
    tables.DEBIT_SHARE: ("debit_share_percent", "66.6666"),
    tables.ACCOUNT_DAYS: ("opening", "0.00"),
}


@pytest.mark.parametrize("table", tables.GOLD, ids=lambda table: table.name)
def test_a_cell_that_silver_does_not_make_is_a_difference(made: Lake, explain: Explain, tmp_path: Path, table: Table) -> None:
    settings = copy_of(made, tmp_path)
    column, wrong = WRONG.get(table, ("transactions", "transactions + 1"))
    condition, _ = CASES[table]
    delta = DeltaTable(str(table.path(settings)))
    (keys,) = cells.find(table, delta, condition).cells
    same = " and ".join(f"{name} = {cells.literal(keys[name])}" for name in table.keys)
    delta.update(updates={column: wrong}, predicate=same)
    condition = condition.replace("rank = 1", "rank = 5").replace("'Rye'", "'Ely'")
    with pytest.raises(AuditDifference, match=rf"{table.name} as it is now: found 1 of 1 cells .* {column}: found ") as caught:
        explain(table, condition, settings=settings)
    assert caught.value.exit_code == 4
    assert "\n" not in str(caught.value)


def test_a_row_that_silver_lacks_is_a_difference(made: Lake, explain: Explain, tmp_path: Path) -> None:
    settings = copy_of(made, tmp_path)
    DeltaTable(str(tables.LARGE_CREDITS.path(settings))).update(updates={"transaction_id": "'T8'"})
    with pytest.raises(AuditDifference, match="the 0 rows of silver make 0 such cells, found 1"):
        explain(tables.LARGE_CREDITS, "true", settings=settings)


def test_wrong_tables_and_releases_are_one_line_and_exit_code_2(
    made: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("LEDGER_HOME", str(made.settings.home))
    for words, told in (
        (
            ["--table", "silver.transactions", "--where", "true"],
            "--table: found 'silver.transactions', expected one of gold.daily_totals, ",
        ),
        (["--table", "gold.daily_totals", "--where", "true", "--as-of", "9"], "--as-of: there is no release 9: found 1"),
        (["--table", "gold.daily_totals", "--where", "true;"], "--where: found a semicolon"),
    ):
        caplog.clear()
        assert run.main(["explain", *words]) == 2
        assert told in caplog.records[-1].getMessage()
    assert run.main(["explain", "--table", "gold.daily_totals", "--where", "rank = 1"]) == 2
    assert run.main(["explain", "--table", "gold.daily_totals", "--where", "type = 'Debit'"]) == 0
    monkeypatch.setenv("LEDGER_HOME", str(tmp_path))
    assert run.main(["explain", "--table", "gold.daily_totals", "--where", "true"]) == 2
    assert "found no gold.daily_totals at " in caplog.records[-1].getMessage()
