"""gold.live_alerts as Spark runs it: rows and timers raise alerts once, over crashes, new code and a restored savepoint."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.tws_tester import TwsTester

from spark_jobs.control import alert_silences
from spark_jobs.lake import tables
from spark_jobs.live import fingerprint, savepoints, state_job
from spark_jobs.live.declaration import LiveQuery
from spark_jobs.live.products import alerts
from spark_jobs.live.products.alert_rules import ACTIVE_ROWS, DAY, MANY_DEBITS, SILENCE, WINDOW, Limits
from spark_jobs.live.products.alerts import QUERY, Alerting
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support import kill_points, lake
from tests.support.live_lake import arrive, fingerprint_of, run_live

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = Limits(debits=3, money=Decimal(1000), times=5, silence_days=30, lateness=10_000)


@pytest.fixture
def known_queries() -> Sequence[LiveQuery]:
    return (QUERY,)


def debits(settings: Settings, batch: int, account: str, *times: str, amount: float = 10) -> None:
    """A bronze batch of debits of an account."""
    fields = {"accountId": account, "type": "Debit", "amount": amount}
    arrive(settings, batch, *((f"{batch}-{number}", time, fields) for number, time in enumerate(times)))


def raised(settings: Settings) -> Counter[tuple[str, str, str, str]]:
    """Kind, account, time and ids of the causing rows of each alert that was written."""
    return Counter(
        (
            row["kind"],
            row["account_id"],
            f"{row['raised_at']:%Y-%m-%d %H:%M:%S}",
            " ".join(cause["transaction_id"] for cause in row["caused_by"]),
        )
        for row in lake.rows_of(settings, tables.LIVE_ALERTS)
    )


def test_the_processor_steps_through_the_rows_in_order_and_keeps_its_state_and_one_timer() -> None:
    tester = TwsTester(Alerting(LIMITS), timeMode="EventTime", eventTimeExtractor=lambda row: int(row["at"]))
    names = ("at", "batch", "transaction_id", "topic", "partition", "offset", "amount", "is_debit")

    def arrives(*given: tuple[int, int, str]) -> list[tuple[str, int]]:
        frame = pd.DataFrame([(*each, "t", 0, offset, Decimal("1.00"), True) for offset, each in enumerate(given)], columns=names)
        return [(row["kind"], len(row["caused_by"])) for row in tester.testInPandas(("A1",), frame).to_dict("records")]

    def passes(watermark: int) -> list[tuple[str, str, int]]:
        found: Any = tester.setWatermark(watermark)
        return [(row["kind"], row["account_id"], row["raised_ms"]) for row in found.to_dict("records")]

    assert arrives((3, 1, "c"), (1, 1, "a"), (2, 1, "b")) == []
    assert arrives((WINDOW, 2, "d")) == [(MANY_DEBITS, 4)]
    assert arrives(*((WINDOW + 1 + number, 3, f"r{number}") for number in range(ACTIVE_ROWS - 4))) == [(MANY_DEBITS, 4)]
    state = tester.peekValueState(alerts.STATE, ("A1",))
    assert state is not None
    due, first = WINDOW + ACTIVE_ROWS - 4 + 30 * DAY, 3 + 30 * DAY  # of the last row, and of the first ones: that timer was set already
    assert (state[0], state[4], [row.transaction_id for row in state[6]][:4]) == (ACTIVE_ROWS, first, ["a", "b", "c", "d"])
    assert passes(due - 1) == []
    state = tester.peekValueState(alerts.STATE, ("A1",))
    assert state is not None
    assert state[4] == due
    assert passes(due) == [(SILENCE, "A1", due)]
    assert passes(due + 90 * DAY) == []


def test_each_alert_is_written_once_over_crashes_a_restart_and_a_restored_savepoint(
    live: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four debits of A1 lie in two batches; A2 was active, falls silent, and no row of it comes; the runs cut the input in three ways."""
    alert_silences.record(settings, "A00000003", "ann", "known", NOW, until=None, is_silenced=True)
    debits(settings, 1, "A00000002", *(f"2024-01-01 {hour:02}:00:00" for hour in range(ACTIVE_ROWS)))
    debits(settings, 2, "A00000001", "2024-01-02 10:00:00", "2024-01-02 10:04:00", "2024-01-02 10:05:00")
    run_live(live, settings, [QUERY])
    assert raised(settings) == {}
    state_job.show(settings, lambda: live, QUERY.name, "account_id = 'A00000001'")
    (held,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (held["store"], held["key"]) == ("account", {"account_id": "A00000001"})
    assert [row["transaction_id"] for row in held["value"]["recent"]] == ["2-0", "2-1", "2-2"]
    saved = savepoints.create(settings, "before", NOW)
    fingerprint.check({QUERY.name: fingerprint_of(live, settings, QUERY)}, saved.fingerprints)
    many = (MANY_DEBITS, "A00000001", "2024-01-02 10:09:59", "2-0 2-1 2-2 3-0")
    silence = (SILENCE, "A00000002", "2024-01-31 09:00:00", "1-9")
    much = ("much_money", "A00000003", "2024-02-05 12:00:00", "4-0")
    for batch, given, point in (
        (3, ("A00000001", "2024-01-02 10:09:59"), "before gold.live_alerts"),
        (4, ("A00000003", "2024-02-05 12:00:00"), "after gold.live_alerts"),
    ):
        debits(settings, batch, *given, amount=60_000 if batch == 4 else 10)
        with monkeypatch.context() as patch:
            kill_points.reach(patch, crash_at(point))
            with pytest.raises(AssertionError, match=f"killed {point}"):
                run_live(live, settings, [QUERY])
    assert raised(settings) == Counter([many])  # the fourth batch, and with it the timer of A2, is left for the next start
    run_live(live, settings, [QUERY])
    assert raised(settings) == Counter([many, much, silence])
    ids = {row["alert_id"]: row["is_silenced"] for row in lake.rows_of(settings, tables.LIVE_ALERTS)}
    assert sorted(ids.values()) == [False, False, True]
    state_job.show(settings, lambda: live, QUERY.name, "account_id = 'A00000002'")
    (held,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (held["value"]["rows"], held["value"].get("last"), held["value"]["recent"]) == (ACTIVE_ROWS, None, [])  # the rest is forgotten
    savepoints.restore(settings, saved, {})
    assert raised(settings) == {}
    run_live(live, settings, [QUERY])  # both batches at once
    assert raised(settings) == Counter([many, much, silence])
    assert {row["alert_id"]: row["is_silenced"] for row in lake.rows_of(settings, tables.LIVE_ALERTS)} == ids
    run_live(live, settings, [QUERY])
    assert sum(raised(settings).values()) == 3


def test_thresholds_keep_the_state_and_its_columns_do_not(live: SparkSession, settings: Settings) -> None:
    tables.ensure_tables(settings, tables.LIVE)
    before = fingerprint_of(live, settings, QUERY)
    assert before["operators"] == [{"operator": "TransformWithStateInPySpark", "keys": ["account_id STRING"], "time": "EventTime"}]
    stricter = read_settings({"LEDGER_HOME": str(settings.home), "LEDGER_ALERT_DEBITS": "1", "LEDGER_ALERT_SILENCE_DAYS": "7"})
    assert fingerprint.differences(before, fingerprint_of(live, stricter, QUERY)) == []
    other = replace(QUERY, meaning={**QUERY.meaning, "state": "account: rows bigint"})
    (difference,) = fingerprint.differences(before, fingerprint_of(live, settings, other))
    assert difference.startswith("the operation: found state account: rows bigint, debits bigint")


def crash_at(point: str) -> Callable[[str], None]:
    def crash(name: str) -> None:
        if name == point:
            raise RuntimeError(f"killed {point}")

    return crash
