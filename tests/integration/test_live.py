"""The live application as a process: it is stopped for a savepoint, killed, and brought back to it."""

import signal
from collections import Counter
from pathlib import Path

import pytest

from spark_jobs.lake import tables
from spark_jobs.live import places
from spark_jobs.service import desired_state, heartbeat
from spark_jobs.service.services import LIVE
from tests.support import lake
from tests.support.ledger import Ledger, await_that
from tests.support.live_lake import arrive
from tests.support.rows import message

pytestmark = [pytest.mark.integration, pytest.mark.faults]

DAYS = {"2024-01-01": 2, "2024-01-02": 1}


def test_live_from_a_savepoint_over_a_kill_back_to_the_savepoint(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "home")
    arrive(ledger.settings, 1, ("a", "2024-01-01 10:00:00"), ("b", "2024-01-01 11:00:00"), ("b", "2024-01-01 11:00:00"))
    with ledger.running("live") as live:
        await_that(lambda: counted(ledger) == (2, 1))
        ledger.run("savepoint create first")
        _, errors = live.communicate(timeout=60)
    assert (live.returncode, "Traceback" in errors) == (0, False), errors
    assert desired_state.read_wanted(ledger.settings, LIVE).state == desired_state.RUN
    first = contents(ledger)

    arrive(ledger.settings, 2, ("c", "2024-01-02 10:00:00"), ("late", "2023-01-01 00:00:00"))
    arrive(ledger.settings, 3, ("d", "2024-01-03 10:00:00"))
    with ledger.running("live") as live:
        await_that(lambda: counted(ledger) == (4, 2))
        for process in (beat := heartbeat.read(ledger.settings, LIVE)[0]).processes():
            process.send_signal(signal.SIGKILL)
        live.communicate(timeout=60)
        await_that(lambda: not beat.processes())
    ledger.run("live --available-now")
    later = contents(ledger)
    assert days(ledger) == DAYS

    ledger.run("savepoint restore first")
    assert contents(ledger) == first
    ledger.run("live --available-now")
    assert contents(ledger) == later


def test_an_upgrade_by_a_savepoint_keeps_what_alerts_and_waiting_rows_know(tmp_path: Path) -> None:
    """Three debits come before, and the fourth, which is one too many, and the customer of all of them after it; and so again."""
    ledger = Ledger(tmp_path / "home")
    debits = [(f"d{number}", f"2024-01-01 10:0{number}:00", {"type": "Debit"}) for number in range(4)]
    arrive(ledger.settings, 1, *debits[:3])
    with ledger.running("live") as live:
        await_that(lambda: counted(ledger) == (3, 0), 900)
        ledger.run("upgrade --mode savepoint")
        live.communicate(timeout=60)
    assert live.returncode == 0
    (saved,) = places.read_savepoints(ledger.settings)
    assert {"alerts", "enriched_transactions", "debit_share"} <= set(saved.batches)
    before = contents(ledger)
    assert (ledger.rows(tables.LIVE_ALERTS), ledger.rows(tables.LIVE_ENRICHED_TRANSACTIONS)) == ([], [])
    arrive(ledger.settings, 2, debits[3])
    lake.arrive(ledger.settings, "customers", 1, [message("customers")])
    ledger.run("live --available-now")
    (alert,) = ledger.rows(tables.LIVE_ALERTS)
    assert [cause["transaction_id"] for cause in alert["caused_by"]] == ["d0", "d1", "d2", "d3"]
    enriched = ledger.rows(tables.LIVE_ENRICHED_TRANSACTIONS)
    assert Counter((row["transaction_id"], row["customer_full_name"]) for row in enriched) == Counter(
        (name, "Z** S****") for name, _, _ in debits
    )
    later = contents(ledger)
    ledger.run(f"savepoint restore {saved.name}")
    assert contents(ledger) == before
    ledger.run("live --available-now")
    assert contents(ledger) == later


def counted(ledger: Ledger) -> tuple[int, ...]:
    """How many rows were accepted and refused; nothing where there is no table yet."""
    both = (tables.LIVE_TRANSACTIONS, tables.LIVE_REFUSED)
    return tuple(len(ledger.rows(table)) for table in both if ledger.exists(table))


def contents(ledger: Ledger) -> dict[str, Counter[str]]:
    return {table.name: Counter(map(str, ledger.rows(table))) for table in tables.LIVE}


def days(ledger: Ledger) -> dict[str, int]:
    return {f"{row['window_start']:%Y-%m-%d}": row["transactions"] for row in ledger.rows(tables.LIVE_DAILY_TOTALS)}
