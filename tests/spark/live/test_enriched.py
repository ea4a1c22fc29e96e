"""gold.live_enriched_transactions as Spark runs it: rows wait for their customers, over crashes, restarts and a restored savepoint."""

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.tws_tester import TwsTester

from spark_jobs.gold.tables.enriched_transactions import enrich
from spark_jobs.lake import sources, tables
from spark_jobs.live import checkpoints, fingerprint, offset_logs, places, savepoints, state_job
from spark_jobs.live.declaration import LiveQuery
from spark_jobs.live.products import enriched_transactions
from spark_jobs.live.products.enriched_transactions import QUERY, Enriching
from spark_jobs.runtime.settings import Settings, read_settings
from spark_jobs.runtime.times import to_micros
from spark_jobs.service.checkpoints import Generation
from tests.support import kill_points, lake
from tests.support.frames import at
from tests.support.live_lake import arrive, fingerprint_of, run_live
from tests.support.rows import message

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = 1e9
Told = Counter[tuple[str, str, str | None, str | None]]


@pytest.fixture
def known_queries() -> Sequence[LiveQuery]:
    return (QUERY,)


def customers(settings: Settings, batch: int, *versions: tuple[int, str | None, str]) -> None:
    """A bronze batch of customers: number, full name (None deletes), time. A deletion is of the time at which Kafka took it."""
    for offset, (number, name, time) in enumerate(versions):
        key, value = message("customers", customerId=f"C0000000{number}", fullName=name, updateTime=to_micros(at(time)) // 1000)
        key = f"C0000000{number}".encode()
        lake.arrive(
            settings, "customers", batch + offset, [(key, value if name else None)], loaded=at(time) if not name else lake.LOADED_AT
        )


def pay(settings: Settings, batch: int, *rows: tuple[str, int, str]) -> None:
    """A bronze batch of transactions: id, number of the customer, time of 1 January 2024."""
    arrive(settings, batch, *((name, f"2024-01-01 {time}", {"customerId": f"C0000000{number}"}) for name, number, time in rows))


def told(settings: Settings) -> Told:
    """Id, status, name and the day of the version of each row that was written."""
    return Counter(
        (
            row["transaction_id"],
            row["customer_status"],
            row["customer_full_name"],
            row["customer_version_from"] and f"{row['customer_version_from']:%Y-%m-%d}",
        )
        for row in lake.rows_of(settings, QUERY.table)
    )


def test_the_processor_steps_through_versions_first_and_keeps_rows_and_one_timer() -> None:
    never_late = 10**12  # a version is not, and has no event time
    tester = TwsTester(
        Enriching(60_000),
        timeMode="EventTime",
        eventTimeExtractor=lambda row: never_late if row["is_version"] else int(row["at"]) // 1000,
    )
    names = enriched_transactions._TAKEN

    def came(*given: dict[str, Any]) -> list[tuple[str, str, str | None]]:
        common = dict.fromkeys(names) | {"batch": 1, "topic": "t", "partition": 0, "is_version": False, "is_deleted": False}
        frame = pd.DataFrame([common | {"offset": offset} | each for offset, each in enumerate(given)], columns=list(names))
        return read(tester.testInPandas(("C1",), frame))

    def read(found: Any) -> list[tuple[str, str, str | None]]:
        return [(row["transaction_id"], row["status"], row["full_name"]) for row in found.to_dict("records")]

    def paid(name: str, at: int) -> dict[str, Any]:
        money = {"amount": Decimal("1.00"), "balance": Decimal("1.00")}
        return {"transaction_id": name, "account_id": "A1", "type": "Debit", "at": at * 1_000_000, **money}

    ann = {"is_version": True, "at": 0, "full_name": "A**", "city": "c", "state": "NM", "digest": "1"}
    assert came(paid("a", 5), paid("b", 7)) == []
    state = tester.peekValueState(enriched_transactions.STATE, ("C1",))
    assert state is not None
    assert (state[0], [row[5] for row in state[2]]) == (65_000, ["a", "b"])
    assert read(tester.setWatermark(64_999)) == []
    assert read(tester.setWatermark(65_000)) == [("a", "unknown", None)]
    assert came(paid("c", 80), ann) == [("b", "matched", "A**"), ("c", "matched", "A**")]
    assert read(tester.setWatermark(900_000)) == []


def test_each_row_goes_on_once_over_crashes_and_restarts_as_gold_has_it(
    live: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """C1 is known, C2 comes while two rows wait, C3 is deleted, C4 comes too late, C5 never."""
    customers(settings, 1, (1, "Zoë  van Smith", "2013-01-01"), (3, "Eve", "2013-01-01"), (3, None, "2013-06-01"))
    pay(settings, 1, ("a1", 1, "10:00:00"), ("a2", 2, "10:00:01"), ("a3", 3, "10:00:02"), ("a4", 4, "10:00:03"), ("a5", 5, "10:00:04"))
    run_live(live, settings, [QUERY])
    known: Told = Counter([("a1", "matched", "Z**  v** S****", "2013-01-01"), ("a3", "deleted", None, None)])
    assert told(settings) == known
    state_job.show(settings, lambda: live, QUERY.name, "customer_id = 'C00000002'")
    (held,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (held["store"], [row["transaction_id"] for row in held["value"]["waiting"]]) == ("customer", ["a2"])

    def crash(point: str) -> None:
        with monkeypatch.context() as patch:
            kill_points.reach(patch, lambda name: 1 / 0 if name == point else None)
            with pytest.raises(AssertionError, match="ZeroDivisionError"):
                run_live(live, settings, [QUERY])

    pay(settings, 2, ("b2", 2, "10:30:00"))
    customers(settings, 4, (2, "Ann", "2013-01-02"))
    crash(f"before {QUERY.table.name}")
    assert told(settings) == known
    pay(settings, 3, ("c1", 1, "11:00:14"))  # with the 10 s that a row may be late, an hour behind a5
    crash(f"after {QUERY.table.name}")
    matched: Told = known + Counter([(name, "matched", "A**", "2013-01-02") for name in ("a2", "b2")])
    assert told(settings) == matched
    run_live(live, settings, [QUERY])
    over = matched + Counter([("c1", "matched", "Z**  v** S****", "2013-01-01"), *((name, "unknown", None, None) for name in ("a4", "a5"))])
    assert told(settings) == over
    customers(settings, 5, (4, "Tom", "2013-01-02"), (1, "Zoë", "2013-01-03"))
    pay(settings, 4, ("d1", 1, "11:00:20"), ("d4", 4, "11:00:21"))
    run_live(live, settings, [QUERY])
    final = over + Counter([("d1", "matched", "Z**", "2013-01-03"), ("d4", "matched", "T**", "2013-01-02")])
    assert told(settings) == final
    assert_as_gold(live, settings, changed={"a1", "c1", "a4"})


def test_behind_a_long_stop_and_a_restored_savepoint_all_customers_are_taken_again(live: SparkSession, settings: Settings) -> None:
    """Maintenance does not wait for live queries: the commits of bronze that the query has yet to take may be gone."""
    customers(settings, 1, (1, "Ann", "2013-01-01"))
    pay(settings, 1, ("a1", 1, "10:00:00"), ("a2", 2, "10:00:01"))
    run_live(live, settings, [QUERY])
    known: Told = Counter([("a1", "matched", "A**", "2013-01-01")])
    assert told(settings) == known
    saved = savepoints.create(settings, "before", NOW)
    fingerprint.check({QUERY.name: fingerprint_of(live, settings, QUERY)}, saved.fingerprints)

    generation = checkpoints.read(settings, QUERY)
    assert generation is not None
    os.utime(generation.folder / "commits" / str(generation.ended), (LONG_AGO, LONG_AGO))
    customers(settings, 2, (2, "Eve", "2013-01-02"), (1, "Zoe", "2013-01-03"))
    remove_commits(settings)
    pay(settings, 2, ("b1", 1, "10:10:00"))
    run_live(live, settings, [QUERY])
    last = known + Counter([("a2", "matched", "E**", "2013-01-02"), ("b1", "matched", "Z**", "2013-01-03")])
    assert told(settings) == last

    savepoints.restore(settings, saved, {})
    assert told(settings) == known  # as it was written: a1 is final, whoever C1 is by now
    run_live(live, settings, [QUERY])
    assert told(settings) == last
    run_live(live, settings, [QUERY])
    assert told(settings) == last


def remove_commits(settings: Settings) -> None:
    """All of bronze's customers but the newest, as maintenance does: behind a checkpoint of the log."""
    path = tables.BRONZE_CUSTOMERS.path(settings)
    DeltaTable(str(path)).create_checkpoint()
    for file in sorted((path / "_delta_log").glob("[0-9]*.json"))[:-1]:
        file.unlink()


def assert_as_gold(live: SparkSession, settings: Settings, changed: set[str]) -> None:
    """But for these rows, whose customers came later, the table is that of gold."""
    lake.run_silver(live, settings)
    gold = enrich(
        sources.read_table(live, settings, tables.SILVER_TRANSACTIONS), sources.read_table(live, settings, tables.SILVER_CUSTOMERS)
    )
    expected = {row["transaction_id"]: row.asDict() for row in gold.collect()}
    found = {row["transaction_id"]: row.asDict() for row in sources.read_table(live, settings, QUERY.table).collect()}
    assert found.keys() == expected.keys()
    assert {name for name, row in found.items() if row != expected[name]} == changed


def test_another_time_limit_keeps_the_state_and_its_columns_do_not(live: SparkSession, settings: Settings) -> None:
    tables.ensure_tables(settings, (*tables.BRONZE, *tables.LIVE))
    before = fingerprint_of(live, settings, QUERY)
    assert before["operators"] == [{"operator": "TransformWithStateInPySpark", "keys": ["customer_id STRING"], "time": "EventTime"}]
    longer = read_settings({"LEDGER_HOME": str(settings.home), "LEDGER_CUSTOMER_WAIT_MINUTES": "7"})
    assert fingerprint.differences(before, fingerprint_of(live, longer, QUERY)) == []
    other = replace(QUERY, meaning={**QUERY.meaning, "state": "customer: waiting array<string>"})
    (difference,) = fingerprint.differences(before, fingerprint_of(live, settings, other))
    assert difference.startswith("the operation: found state customer: timer bigint")


def test_the_position_is_that_of_the_live_rows(settings: Settings) -> None:
    folder = settings.checkpoints / "live" / "one"
    generation = Generation(folder, "1")
    (folder / "1" / "offsets").mkdir(parents=True)
    (folder / "1" / "commits").mkdir()
    source = '{{"reservoirId":"x","reservoirVersion":{},"index":-1,"isStartingVersion":false}}'
    text = f"v2\n{{}}\nlive_transactions:{source.format(5)}\nbronze_customers:{source.format(2)}"
    (folder / "1" / "offsets" / "0").write_text(text)
    (folder / "1" / "commits" / "0").write_text("v1\n{}")
    assert (places.position(generation), places.planned(generation), places.planned(generation, beside=True)) == (5, 5, 2)
    offset_logs.continue_at(folder / "1", 9)
    assert (folder / "1" / "offsets" / "0").read_text() == text.replace("5", "9")
