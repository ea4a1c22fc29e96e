"""Live tables in SQL: equal to those in Python through a crash and a restored savepoint; refused, where they are none, before a write."""

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs import run
from spark_jobs.commands import live as commands
from spark_jobs.gold.tables import customer_sessions, daily_totals, sliding_totals
from spark_jobs.lake import sources, tables
from spark_jobs.live import fingerprint, savepoints, sql_queries, state_job, upgrade
from spark_jobs.live.declaration import LiveQuery
from spark_jobs.live.running import build
from spark_jobs.live.sql_tables import find_tables, load
from spark_jobs.runtime.errors import SettingsError
from spark_jobs.runtime.settings import Settings, read_settings
from tests.spark.live.test_live import EDGES, closed, some_rows
from tests.support import kill_points, lake
from tests.support.frames import at
from tests.support.live_lake import adding, arrive, fingerprint_of, rows, run_live, written

FOLDER = Path(__file__).parent / "sql"
IN_SQL = {query.name.removeprefix("sql_"): query for query in map(sql_queries.query, find_tables(FOLDER, ())[0])}
DAILY = (FOLDER / "sql_daily_totals.sql").read_text()
# What each table holds, and by how many seconds its watermark stays behind.
TWINS: dict[str, tuple[Callable[[DataFrame], DataFrame], int]] = {
    "daily_totals": (daily_totals.daily_totals, 10),
    "sliding_totals": (sliding_totals.sliding_totals, 7200),
    "customer_sessions": (customer_sessions.customer_sessions, 10),
    "large_debits": (lambda rows: rows.where((F.col("type") == "Debit") & (F.col("amount") > 500)), 0),
}


def in_sql(*changes: tuple[str, str]) -> LiveQuery:
    """The daily totals in SQL, with changes of the file."""
    text = DAILY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return sql_queries.query(load(Path("sql_daily_totals.sql"), text, ()))


def test_tables_in_sql_equal_those_in_python_whatever_happens(
    live: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows come, a savepoint is kept, more come, a query dies behind its write and starts again; then the savepoint is restored."""
    queries = [IN_SQL[name] for name in TWINS]
    chance = random.Random(5)

    def check() -> None:
        taken = sources.read_table(live, settings, tables.LIVE_TRANSACTIONS)
        newest = at(taken.agg(F.max("event_at").cast("string")).collect()[0][0]).timestamp()
        for name, (make, lateness) in TWINS.items():
            path = settings.home / f"expected {name} {newest}"
            found = Counter(map(str, lake.rows_of(settings, IN_SQL[name].table)))
            assert found == Counter(map(str, closed(path, make(taken), IN_SQL[name].table, newest - lateness))), name
            assert found, name

    with adding(queries, only=True):
        arrive(settings, 1, *EDGES)
        arrive(settings, 2, *some_rows(chance, 2))
        run_live(live, settings, queries)
        saved = savepoints.create(settings, "one", datetime.now(UTC))
        arrive(settings, 6, *some_rows(chance, 6))
        with monkeypatch.context() as patch:
            kill_points.reach(patch, partial(crash, "after gold.live_sql_daily_totals"))
            with pytest.raises(AssertionError, match="killed after"):
                run_live(live, settings, [IN_SQL["daily_totals"]])
        run_live(live, settings, queries)
        check()
        later = rows(settings)
        savepoints.restore(settings, saved, {})
        assert rows(settings) != later
        run_live(live, settings, queries)
        assert rows(settings) == later


KEEPS = {
    "a filter": ("from {transactions}", "from {transactions} where amount > 1"),
    "a name within the SELECT": ("from {transactions}", "from {transactions} as t where t.amount > 1"),
    "the order of what is written": ("    type,\n    count(*) as transactions,", "    count(*) as transactions,\n    type,"),
    "a longer description": ("each day (UTC)", "each day (in UTC)"),
}
LOSES = {
    "the keys of operator 0 are computed in another way, as by a window of another size": [("'1 day'", "'2 days'")],
    "keys of operator 0: found .*type STRING in the state, .*operation STRING in the code": [
        ("    type,\n", "    operation as type,\n"),
        ("'1 day'), type", "'1 day'), operation"),
    ],
    "values of operator 0": [("sum(amount)", "sum(balance)")],
    "the allowed lateness: found 10 s in the state, 60 s is longer": [("-- watermark", "-- lateness: 1 minute\n-- watermark")],
}


def test_which_changes_of_a_file_keep_the_state(live: SparkSession, settings: Settings) -> None:
    tables.ensure_tables(settings, tables.LIVE)
    query = in_sql()

    def taken(of: LiveQuery) -> fingerprint.Fingerprint:
        with adding([of]):
            return fingerprint_of(live, settings, of, of.lateness(settings))

    recorded = taken(query)
    assert taken(query) == recorded
    for change, words in KEEPS.items():
        assert fingerprint.differences(recorded, taken(in_sql(words))) == [], change
    for change, changes in LOSES.items():
        changed = in_sql(*changes)
        with pytest.raises(SettingsError, match=f"its state cannot be kept: {change}.* --query sql_daily_totals"):
            fingerprint.check({query.name: taken(changed)}, {query.name: recorded})


def test_a_changed_file_goes_on_with_the_state_or_is_refused_before_it_writes(
    live: SparkSession, settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day that began under the old file ends under the new one, which counts only larger amounts from then on."""
    query = in_sql()
    arrive(settings, 1, ("a", "2024-01-01 10:00:00", {"amount": 1}), ("b", "2024-01-01 11:00:00", {"amount": 500}))
    with adding([query]):
        run_live(live, settings, [query])
        monkeypatch.setattr(state_job, "QUERIES", (query,))
        state_job.list_all(settings, lambda: live)
        assert "window_start timestamp, window_end timestamp, type string" in capsys.readouterr().out
    two_days = in_sql(("'1 day'", "'2 days'"))
    with adding([two_days]), pytest.raises(AssertionError, match="as by a window of another size"):
        run_live(live, settings, [two_days])
    filtered = in_sql(KEEPS["a filter"])
    with adding([filtered]):
        arrive(settings, 2, ("c", "2024-01-01 12:00:00", {"amount": 1}), ("d", "2024-01-01 13:00:00", {"amount": 7}))
        arrive(settings, 3, ("e", "2024-01-02 00:00:10", {"amount": 1}))  # closes the day, though no row is counted
        run_live(live, settings, [filtered])
        assert written(settings, filtered) == {("2024-01-01", 3, "508.00"): 1}
        upgrade.stateless(settings, {query.name: fingerprint_of(live, settings, filtered)}, [query.name])
        run_live(live, settings, [filtered])
        assert written(settings, filtered) == {("2024-01-01", 2, "507.00"): 1}


NO_STREAM = "the SELECT is no stream: .*Expected what Spark can write in append mode"
ANOTHER = "found a SELECT of window_start timestamp.*, expected the columns of the header: window_start timestamp"
SEVERAL = "found a SELECT that reads the transactions several times, expected once"
READ = "from {transactions}"
OF_CHANCE = "found a function whose value depends on the time, on chance or on the order of rows"
REFUSED: list[tuple[list[tuple[str, str]], str]] = [
    ([("count(*) as transactions", "count(*) as n")], ANOTHER),
    ([("cast(sum(amount) as decimal(38,2))", "sum(amount)")], ANOTHER),
    ([(READ, f"{READ} where kind = 'Debit'")], "the SELECT does not run: .*`kind` cannot be resolved. Did you mean"),
    ([("group by window", "group window")], "the SELECT does not run: .*Syntax error"),
    ([(READ, f"{READ} join other using (type)")], "the SELECT does not run: .*`other` cannot be found"),
    ([(READ, f"{READ} where event_at < now()")], OF_CHANCE),
    ([("sum(amount)", "first(amount)")], OF_CHANCE),
    ([("'1 day'), type", "'1 day'), type limit 3")], "found limit or offset"),
    ([("'1 day'), type", "'1 day'), type order by 1")], NO_STREAM),
    ([("window(event_at, '1 day')", "window(cast(event_on as timestamp), '1 day')")], NO_STREAM),
    ([("count(*) as", "count(*) over (partition by type) as")], NO_STREAM),
    ([(READ, f"from (select *, row_number() over (order by amount) as n {READ}) where n = 1")], NO_STREAM),
    ([(READ, "from t"), ("select", f"with t as (select *, row_number() over (order by amount) as n {READ}) select")], NO_STREAM),
    ([(READ, "from (table t union all table t)"), ("select", f"with t as (select * {READ}) select")], SEVERAL),
    ([(READ, "from t left semi join t as u using (transaction_id)"), ("select", f"with t as (select * {READ}) select")], NO_STREAM),
]


def test_a_select_that_is_no_live_table_is_refused_with_its_file(live: SparkSession, settings: Settings) -> None:
    tables.ensure_tables(settings, tables.LIVE)
    for changes, said in REFUSED:
        query = in_sql(*changes)
        with adding([query]), pytest.raises(SettingsError, match=rf"^sql_daily_totals\.sql(:1\d)?: {said}") as caught:
            build(live, settings, query)
        assert "\n" not in str(caught.value), said
        assert "_pyspark" not in str(caught.value).lower(), said


def test_run_live_refuses_before_it_writes_and_creates_a_table_once_it_fits(
    live: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The header of a refused file may still change: no table has its columns yet."""
    monkeypatch.setattr(run, "read_settings", lambda: settings)
    monkeypatch.setattr(commands, "start_session", lambda *_, **__: live)
    arrive(settings, 1, ("a", "2024-01-01 10:00:00"), ("b", "2024-01-03 10:00:00"))
    shorter = read_settings({"LEDGER_HOME": str(settings.home), "LEDGER_ALLOWED_LATENESS_SECONDS": "600"})
    late = in_sql(("-- watermark", "-- lateness: 1 minute\n-- watermark"))
    for query, given, said in (
        (in_sql(("count(*) as", "cast(count(*) as int) as")), settings, "sql_daily_totals.sql: found a SELECT of window_start timestamp"),
        (late, shorter, "sql_daily_totals.sql:5: found lateness: 60 seconds, expected at least 600 seconds"),
    ):
        monkeypatch.setattr(run, "read_settings", lambda given=given: given)
        with adding([query], only=True):
            assert run.main(["--engine", "none", "live", "--available-now"]) == 2
        assert caplog.messages[-1].startswith(said)
        assert not query.table.path(settings).exists()
        assert lake.rows_of(settings, tables.LIVE_TRANSACTIONS) == []
    query = in_sql()
    monkeypatch.setattr(run, "read_settings", lambda: settings)
    with adding([query], only=True):
        assert run.main(["--engine", "none", "live", "--available-now"]) == 0
    assert written(settings, query) == {("2024-01-01", 1, "900.50"): 1}


def crash(point: str, name: str) -> None:
    if name == point:
        raise RuntimeError(f"killed {point}")
