"""Live queries from one version of the code to the next: which states are kept, which are refused, and which are lost."""

import logging
import shutil
from argparse import Namespace
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs.commands.maintenance import run_migrate
from spark_jobs.gold.tables import debit_credit_pairs, sliding_totals
from spark_jobs.lake import tables
from spark_jobs.live import fingerprint, places, queries, upgrade
from spark_jobs.live.declaration import LiveQuery, Reader
from spark_jobs.live.watermarks import hide_type
from spark_jobs.runtime import session
from spark_jobs.runtime.errors import LedgerError, SettingsError
from spark_jobs.runtime.settings import Settings
from tests.support.live_lake import DAILY, PAIRS, arrive, fingerprint_of, run_live, written


@pytest.fixture
def known_queries() -> Sequence[LiveQuery]:
    return (DAILY, PAIRS)


def totals(transactions: DataFrame, *keys: str, size: str = "1 day", value: str = "amount") -> DataFrame:
    """The daily totals as somebody might write them anew."""
    sums = transactions.groupBy(F.window("event_at", size).alias("w"), "type", *keys)
    result = sums.agg(F.count("*").alias("n"), F.sum(F.col(value).cast("decimal(38,2)")).alias("total"))
    return result.select(
        F.col("w.start").alias("window_start"),
        F.col("w.end").alias("window_end"),
        "type",
        F.col("n").alias("transactions"),
        F.col("total").alias("amount"),
    )


def daily(make: Callable[[DataFrame], DataFrame], **meaning: str) -> LiveQuery:
    return replace(DAILY, build=lambda read: make(read("live_transactions")), meaning={**DAILY.meaning, **meaning})


def joined(read: Reader, **extra: str) -> DataFrame:
    debits, credits_ = (hide_type(read(name)) for name in PAIRS.sources)
    return debit_credit_pairs.pair(debits, credits_.withColumns({name: F.lit(value) for name, value in extra.items()})).where(
        "customer_id <> 'C1'"
    )


KEEPS = {
    "a filter": daily(lambda rows: totals(rows.where("amount > 1"))),
    "names of what is written, and where the keys stand": daily(
        lambda rows: totals(rows).select(
            "type", "window_end", "window_start", F.col("transactions").alias("n"), F.col("amount").alias("sum")
        )
    ),
    "a column computed behind the operator": daily(lambda rows: totals(rows).withColumn("mean", F.expr("amount / transactions"))),
    "a filter behind the join": replace(PAIRS, build=joined),
}
LOSES = {
    "the operation": daily(lambda rows: totals(rows, size="2 days"), window="tumbling, 2 days"),
    "the keys of operator 0 are computed in another way": daily(lambda rows: totals(rows, size="2 days")),
    "keys of operator 0": daily(lambda rows: totals(rows, "account_id")),
    "values of operator 0": daily(lambda rows: totals(rows, value="balance")),
    "values of operator 0: found count(1), sum": daily(lambda rows: totals(rows).select("window_start", "amount", "transactions")),
    "values of operator 0: found count(1), sum(CAST(amount AS DECIMAL(38,2))) in the state, count(1) in": daily(
        lambda rows: totals(rows).drop("amount")
    ),
    "left of operator 0": replace(PAIRS, build=lambda read: joined(read).drop("debit_id")),
    "the sources": replace(DAILY, sources=("others",), build=lambda read: totals(read("others"))),
    "the number of stateful operators": daily(lambda rows: totals(rows.dropDuplicatesWithinWatermark(["transaction_id"]))),
}


def test_before_the_first_run_there_is_nothing_to_upgrade(live: SparkSession, settings: Settings) -> None:
    with pytest.raises(LedgerError, match=r"found no gold\.live_transactions, expected that live queries have run: run live first"):
        upgrade.fingerprints(live, settings)


def test_which_changes_keep_the_state(live: SparkSession, settings: Settings) -> None:
    tables.ensure_tables(settings, (tables.BRONZE_CUSTOMERS, *tables.LIVE))
    recorded = {query.name: fingerprint_of(live, settings, query) for query in (daily(totals), PAIRS)}
    for change, query in KEEPS.items():
        assert fingerprint.differences(recorded[query.name], fingerprint_of(live, settings, query)) == [], change
    for change, query in LOSES.items():
        found = fingerprint.differences(recorded[query.name], fingerprint_of(live, settings, query))
        assert any(line.startswith(change) for line in found), (change, found)
    assert fingerprint.differences(recorded["daily_totals"], fingerprint_of(live, settings, daily(totals), lateness=5)) == []
    (longer,) = fingerprint.differences(recorded["daily_totals"], fingerprint_of(live, settings, daily(totals), lateness=3600))
    assert longer.startswith("the allowed lateness: found 10 s in the state, 3600 s is longer")


@pytest.mark.parametrize(
    ("module", "name", "value", "changed"),
    [
        (sliding_totals, "STEP_HOURS", 3, {"sliding_totals"}),
        (queries, "STEP_HOURS", 3, {"cumulative_totals"}),
        (queries, "_SHORTER_GAP", "11 hours", {"customer_sessions"}),
        (debit_credit_pairs, "BEFORE_HOURS", 2, {"debit_credit_pairs"}),
    ],
)
def test_sizes_are_in_the_fingerprint(
    live: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, value: object, changed: set[str]
) -> None:
    """Also where nobody thought of saying so in words."""
    tables.ensure_tables(settings, (tables.BRONZE_CUSTOMERS, *tables.LIVE))
    before = {query.name: fingerprint_of(live, settings, query) for query in queries.QUERIES}
    monkeypatch.setattr(module, name, value)
    assert {
        query.name for query in queries.QUERIES if fingerprint.differences(before[query.name], fingerprint_of(live, settings, query))
    } == changed


def test_fingerprints_may_be_taken_side_by_side(live: SparkSession, settings: Settings) -> None:
    """As the queries do, which start together."""
    tables.ensure_tables(settings, (tables.BRONZE_CUSTOMERS, *tables.LIVE))
    one_by_one = [fingerprint_of(live, settings, query) for query in queries.QUERIES]
    with ThreadPoolExecutor(len(queries.QUERIES)) as pool:
        for _ in range(3):
            assert list(pool.map(lambda query: fingerprint_of(live, settings, query), queries.QUERIES)) == one_by_one


def test_new_code_goes_on_with_the_state_or_is_refused_before_it_writes(live: SparkSession, settings: Settings) -> None:
    """A day that began under the old code ends under the new one, which counts only larger amounts from then on."""
    arrive(settings, 1, ("a", "2024-01-01 10:00:00", {"amount": 1}), ("b", "2024-01-01 11:00:00", {"amount": 500}))
    run_live(live, settings, [daily(totals)])
    before = everything(settings)
    with pytest.raises(
        SettingsError, match=r"type STRING, account_id STRING in the code.* run upgrade --mode stateless --query daily_totals"
    ):
        fingerprint.check({DAILY.name: fingerprint_of(live, settings, LOSES["keys of operator 0"])}, upgrade.recorded(settings))
    with pytest.raises(AssertionError, match="its state cannot be kept"):
        run_live(live, settings, [LOSES["keys of operator 0"]])
    assert everything(settings) == before
    arrive(
        settings, 2, ("c", "2024-01-01 12:00:00", {"amount": 1}), ("d", "2024-01-01 13:00:00", {"amount": 7}), ("e", "2024-01-02 00:00:10")
    )
    run_live(live, settings, [KEEPS["a filter"]])
    assert written(settings, DAILY) == {("2024-01-01", 3, "508.00"): 1}
    arrive(settings, 3, ("f", "2024-01-03 00:00:10"))
    run_live(live, settings, [daily(lambda rows: totals(rows).select("type", "window_end", "window_start", "transactions", "amount"))])
    assert written(settings, DAILY) == {("2024-01-01", 3, "508.00"): 1, ("2024-01-02", 1, "900.50"): 1}


def test_migrate_names_the_states_that_do_not_fit(
    live: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    arrive(settings, 1, ("a", "2024-01-01 10:00:00"))
    run_live(live, settings, [DAILY])
    monkeypatch.setattr(session, "start_session", lambda *_, **__: live)
    options = Namespace(name="migrate", run_id="m")
    monkeypatch.setattr(upgrade, "QUERIES", [DAILY])
    run_migrate(settings, options)
    assert "tables and 1 live states fit this code" in caplog.text
    monkeypatch.setattr(upgrade, "QUERIES", [LOSES["keys of operator 0"]])
    with pytest.raises(SettingsError, match=r"its state cannot be kept: .* run upgrade --mode stateless --query daily_totals"):
        run_migrate(settings, options)


def test_a_state_is_lost_also_where_only_later_generations_have_written(live: SparkSession, settings: Settings) -> None:
    arrive(settings, 1, ("a", "2024-01-01 10:00:00"))
    run_live(live, settings, [DAILY])
    upgrade.stateless(settings, {DAILY.name: fingerprint_of(live, settings, DAILY)}, [DAILY.name])
    arrive(settings, 2, ("b", "2024-01-02 10:00:00"))
    run_live(live, settings, [DAILY])
    before = written(settings, DAILY)
    assert before == {("2024-01-01", 1, "900.50"): 1}
    shutil.rmtree(places.root(settings) / DAILY.name)
    with pytest.raises(AssertionError, match=r"generation\.json is missing"):
        run_live(live, settings, [DAILY])
    assert written(settings, DAILY) == before


def test_a_lost_state_is_told_and_a_table_made_anew_has_all_rows_once(live: SparkSession, settings: Settings) -> None:
    arrive(settings, 1, ("a", "2024-01-01 10:00:00"), ("b", "2024-01-02 10:00:00"))
    arrive(settings, 2, ("c", "2024-01-03 10:00:00"))
    run_live(live, settings, [DAILY])
    before = written(settings, DAILY)
    assert before == {("2024-01-01", 1, "900.50"): 1, ("2024-01-02", 1, "900.50"): 1}
    shutil.rmtree(places.root(settings) / DAILY.name / "1")
    with pytest.raises(AssertionError, match=r"the state of gold\.live_daily_totals is gone or older than the table"):
        run_live(live, settings, [DAILY])
    assert upgrade.recorded(settings, passes_over_lost=True) == {}  # so that the other queries start
    with pytest.raises(LedgerError, match="is gone or older than the table"):
        upgrade.recorded(settings)
    shutil.rmtree(places.root(settings) / DAILY.name)
    with pytest.raises(AssertionError, match=r"generation\.json is missing.*run upgrade --mode stateless --query daily_totals"):
        run_live(live, settings, [DAILY])
    upgrade.stateless(settings, {DAILY.name: fingerprint_of(live, settings, DAILY)}, [DAILY.name])
    assert written(settings, DAILY) == {}
    run_live(live, settings, [DAILY])
    assert written(settings, DAILY) == before


def everything(settings: Settings) -> set[Path]:
    """Every file below the home but locks."""
    return {path for path in settings.home.rglob("*") if path.is_file() and "live/transactions" not in str(path)}
