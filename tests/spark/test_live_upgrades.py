"""Live queries from one version of the code to the next, savepoints, and what a crash on the way leaves behind."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs import tables
from spark_jobs.errors import LedgerError, SettingsError
from spark_jobs.gold import pairs
from spark_jobs.settings import Settings, read_settings
from spark_jobs.streaming import fingerprint, places, queries, resets, savepoints, upgrade
from spark_jobs.streaming.queries import BY_NAME, LiveQuery, Reader
from spark_jobs.streaming.running import build
from tests.spark import lake
from tests.spark.live import arrive, live_session, run_live

DAILY, PAIRS = BY_NAME["daily_totals"], BY_NAME["debit_credit_pairs"]
NOW = datetime(2024, 1, 1, tzinfo=UTC)


class Crash(BaseException):
    """Ends what is under way, as a killed process would."""


@pytest.fixture
def live(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """A session for live queries, of which there are two."""
    for module in (savepoints, upgrade):
        monkeypatch.setattr(module, "QUERIES", (DAILY, PAIRS))
    with live_session(spark):
        yield spark


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"LEDGER_HOME": str(tmp_path)})


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
    debits, credits_ = (queries._hide_type(read(name)) for name in PAIRS.sources)
    return pairs.pair(debits, credits_.withColumns({name: F.lit(value) for name, value in extra.items()})).where("customer_id <> 'C1'")


KEEPS = {
    "a filter": daily(lambda rows: totals(rows.where("amount > 1"))),
    "names and order of what is written": daily(
        lambda rows: totals(rows).select("amount", "transactions", "type", "window_end", "window_start")
    ),
    "a column computed behind the operator": daily(lambda rows: totals(rows).withColumn("mean", F.expr("amount / transactions"))),
    "a filter behind the join": replace(PAIRS, build=joined),
}
LOSES = {
    "the operation": daily(lambda rows: totals(rows, size="2 days"), window="tumbling, 2 days"),
    "keys of operator 0": daily(lambda rows: totals(rows, "account_id")),
    "values of operator 0": daily(lambda rows: totals(rows, value="balance")),
    "the sources": replace(DAILY, sources=("others",), build=lambda read: totals(read("others"))),
    "the number of stateful operators": daily(lambda rows: totals(rows.dropDuplicatesWithinWatermark(["transaction_id"]))),
}


def of(live: SparkSession, settings: Settings, query: LiveQuery, lateness: int = 10) -> fingerprint.Fingerprint:
    return fingerprint.take(query, build(live, settings, query), lateness)


def test_before_the_first_run_there_is_nothing_to_upgrade(live: SparkSession, settings: Settings) -> None:
    with pytest.raises(LedgerError, match=r"found no gold\.live_transactions, expected that live queries have run: run live first"):
        upgrade.fingerprints(live, settings)


def test_which_changes_keep_the_state(live: SparkSession, settings: Settings) -> None:
    tables.ensure_tables(settings, tables.LIVE)
    recorded = {query.name: of(live, settings, query) for query in (daily(totals), PAIRS)}
    for change, query in KEEPS.items():
        assert fingerprint.differences(recorded[query.name], of(live, settings, query)) == [], change
    for change, query in LOSES.items():
        found = fingerprint.differences(recorded[query.name], of(live, settings, query))
        assert any(line.startswith(change) for line in found), (change, found)
    assert fingerprint.differences(recorded["daily_totals"], of(live, settings, daily(totals), lateness=5)) == []
    assert fingerprint.differences(recorded["daily_totals"], of(live, settings, daily(totals), lateness=11)) != []


def test_new_code_goes_on_with_the_state_or_is_refused_before_it_writes(live: SparkSession, settings: Settings) -> None:
    """A day that began under the old code ends under the new one, which counts only larger amounts from then on."""
    arrive(settings, 1, ("a", "2024-01-01 10:00:00", {"amount": 1}), ("b", "2024-01-01 11:00:00", {"amount": 500}))
    run_live(live, settings, [daily(totals)])
    before = everything(settings)
    with pytest.raises(
        SettingsError, match=r"type STRING, account_id STRING in the code.* run upgrade --mode stateless --query daily_totals"
    ):
        fingerprint.check({DAILY.name: of(live, settings, LOSES["keys of operator 0"])}, upgrade.recorded(settings))
    with pytest.raises(AssertionError, match="its state cannot be kept"):
        run_live(live, settings, [LOSES["keys of operator 0"]])
    assert everything(settings) == before
    arrive(
        settings, 2, ("c", "2024-01-01 12:00:00", {"amount": 1}), ("d", "2024-01-01 13:00:00", {"amount": 7}), ("e", "2024-01-02 00:00:10")
    )
    run_live(live, settings, [KEEPS["a filter"]])
    assert written(settings, DAILY) == {("2024-01-01", 3, "508.00"): 1}


def test_a_savepoint_brings_states_and_tables_back_whatever_kills_the_way(
    live: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came later is taken again, once, by the state of that moment; a restore that is cut short anywhere is made good."""
    both = [DAILY, PAIRS]
    arrive(settings, 1, ("d1", "2024-01-01 10:00:00", {"type": "Debit"}), ("x", "2024-01-01 10:30:00"), ("x", "2024-01-01 10:30:00"))
    run_live(live, settings, both)
    saved = savepoints.create(settings, "first", NOW)
    at_savepoint = rows(settings)
    with pytest.raises(SettingsError, match="found a savepoint first already"):
        savepoints.create(settings, "first", NOW)
    arrive(settings, 2, ("c1", "2024-01-01 11:00:00"), ("c2", "2024-01-02 00:00:00"), ("late", "2023-01-01 00:00:00"))
    arrive(settings, 3, ("end", "2024-01-03 12:00:00"))
    run_live(live, settings, both)
    later = rows(settings)
    assert written(settings, DAILY) == {("2024-01-01", 1, "900.50"): 1, ("2024-01-01", 2, "1801.00"): 1, ("2024-01-02", 1, "900.50"): 1}
    points = [f"{when} reset of {table.name}" for table in (tables.LIVE_TRANSACTIONS, PAIRS.table) for when in ("before", "after")]
    for point in (*points, f"before the state of {PAIRS.name}", "before the reset is done"):

        def crash(name: str, at: str = point) -> None:
            if name == at:
                raise Crash

        with monkeypatch.context() as patch:
            patch.setattr(resets, "kill_point", crash)
            with pytest.raises(Crash):
                savepoints.restore(settings, saved)
        resets.finish(settings)
        assert rows(settings) == at_savepoint, point
    run_live(live, settings, both)
    assert rows(settings) == later
    assert not (places.root(settings) / "reset.json").exists()
    assert places.unread_from(settings) == lake.version(settings, tables.LIVE_TRANSACTIONS) + 1


def test_a_savepoint_is_of_one_moment_or_is_not_made(live: SparkSession, settings: Settings) -> None:
    arrive(settings, 1, ("a", "2024-01-01 10:00:00"))
    run_live(live, settings, [DAILY])
    with pytest.raises(LedgerError, match=r"found a live query that has never run"):
        savepoints.create(settings, "early", NOW)
    run_live(live, settings, [PAIRS])
    arrive(settings, 2, ("b", "2024-01-01 10:00:00"))
    run_live(live, settings, [PAIRS])  # and daily_totals was killed before it took the second batch
    with pytest.raises(LedgerError, match=r"live daily_totals has not taken gold\.live_transactions up to its version 2"):
        savepoints.create(settings, "early", NOW)
    assert places.read_savepoints(settings) == []
    for name in ("../out", "", "a b"):
        with pytest.raises(SettingsError, match="found the name"):
            savepoints.create(settings, name, NOW)
    with pytest.raises(SettingsError, match="found no savepoint 'other', expected one of: none was created"):
        savepoints.find(settings, "other")


def test_a_lost_state_is_told_and_a_table_made_anew_has_all_rows_once(live: SparkSession, settings: Settings) -> None:
    arrive(settings, 1, ("a", "2024-01-01 10:00:00"), ("b", "2024-01-02 10:00:00"))
    arrive(settings, 2, ("c", "2024-01-03 10:00:00"))
    run_live(live, settings, [DAILY])
    before = written(settings, DAILY)
    assert before == {("2024-01-01", 1, "900.50"): 1, ("2024-01-02", 1, "900.50"): 1}
    shutil.rmtree(places.root(settings) / DAILY.name / "1")
    with pytest.raises(AssertionError, match=r"the state behind gold\.live_daily_totals is gone or older than the table"):
        run_live(live, settings, [DAILY])
    assert upgrade.recorded(settings, passes_over_lost=True) == {}  # so that the other queries start
    with pytest.raises(LedgerError, match="is gone or older than the table"):
        upgrade.recorded(settings)
    shutil.rmtree(places.root(settings) / DAILY.name)
    with pytest.raises(AssertionError, match=r"generation\.json is missing.*run upgrade --mode stateless --query daily_totals"):
        run_live(live, settings, [DAILY])
    upgrade.stateless(settings, {DAILY.name: of(live, settings, DAILY)}, [DAILY.name])
    assert written(settings, DAILY) == {}
    run_live(live, settings, [DAILY])
    assert written(settings, DAILY) == before


def everything(settings: Settings) -> set[Path]:
    """Every file below the home but locks."""
    return {path for path in settings.home.rglob("*") if path.is_file() and "live/transactions" not in str(path)}


def rows(settings: Settings) -> dict[str, Counter[str]]:
    return {table.name: Counter(map(str, lake.rows_of(settings, table))) for table in tables.LIVE}


def written(settings: Settings, query: LiveQuery) -> Counter[tuple[str, int, str]]:
    found = lake.rows_of(settings, query.table)
    return Counter((f"{row['window_start']:%Y-%m-%d}", row["transactions"], str(row["amount"])) for row in found)
