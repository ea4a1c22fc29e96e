"""The live application as a process: it is stopped for an upgrade by a savepoint, killed, and brought back to it."""

import json
import signal
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from spark_jobs.kafka.topics import ALERTS as ALERTS_TOPIC, CREDITS as CREDITS_TOPIC, DEBITS as DEBITS_TOPIC
from spark_jobs.lake import tables
from spark_jobs.live import places
from spark_jobs.service import desired_state, heartbeat
from spark_jobs.service.services import LIVE
from tests.support import lake
from tests.support.committed import committed_messages
from tests.support.ledger import Ledger, await_that
from tests.support.live_lake import arrive
from tests.support.rows import message

pytestmark = [pytest.mark.integration, pytest.mark.faults]

DEBITS = [(f"d{number}", f"2024-01-01 10:0{number}:00", {"type": "Debit"}) for number in range(4)]
BIG = ("big", "2024-01-01 10:03:00", {"type": "Debit", "amount": 60_000, "accountId": "A00000002"})


def test_live_over_an_upgrade_and_a_kill_and_back_to_the_savepoint(tmp_path: Path, bootstrap: str) -> None:
    """Three debits come before the upgrade, and the fourth, which is one too many, and the customer of all of them after it.

    What the application publishes is there once, but for an alert of an account whose alerts are silenced.
    """
    ledger = Ledger(tmp_path / "home", bootstrap)
    arrive(ledger.settings, 1, *DEBITS[:3], DEBITS[2])
    with ledger.running("live", LEDGER_LIVE_TOPICS="on") as live:
        await_that(lambda: counted(ledger) == (3, 1))
        ledger.run("upgrade --mode savepoint")
        _, errors = live.communicate(timeout=60)
    assert (live.returncode, "Traceback" in errors) == (0, False), errors
    assert desired_state.read_wanted(ledger.settings, LIVE).state == desired_state.RUN
    (saved,) = places.read_savepoints(ledger.settings)
    assert {"alerts", "enriched_transactions", "debit_share"} <= set(saved.batches)
    before = contents(ledger)
    assert (ledger.rows(tables.LIVE_ALERTS), ledger.rows(tables.LIVE_ENRICHED_TRANSACTIONS)) == ([], [])

    ledger.run("live_alerts silence --account A00000002 --who ann --why known")
    lake.arrive(ledger.settings, "customers", 1, [message("customers")])  # first: it is there when the others' batches are
    arrive(ledger.settings, 2, DEBITS[3], BIG)
    arrive(ledger.settings, 3, ("c", "2024-01-02 10:00:00"), ("late", "2023-01-01 00:00:00"))
    arrive(ledger.settings, 4, ("d", "2024-01-03 10:00:00"))
    with ledger.running("live", LEDGER_LIVE_TOPICS="on") as live:
        await_that(lambda: counted(ledger) == (7, 2))
        for process in (beat := heartbeat.read(ledger.settings, LIVE)[0]).processes():
            process.send_signal(signal.SIGKILL)
        live.communicate(timeout=60)
        await_that(lambda: not beat.processes())
    done = ledger.try_run("live --available-now", LEDGER_LIVE_TOPICS="on")
    assert done.returncode == 0, done.stderr
    causes = {row["kind"]: [cause["transaction_id"] for cause in row["caused_by"]] for row in ledger.rows(tables.LIVE_ALERTS)}
    assert causes == {"many_debits": ["d0", "d1", "d2", "d3"], "much_money": ["big"]}
    accepted = ("d0", "d1", "d2", "d3", "big", "c", "d")
    enriched = ledger.rows(tables.LIVE_ENRICHED_TRANSACTIONS)
    assert Counter((row["transaction_id"], row["customer_full_name"]) for row in enriched) == Counter(
        (name, "Z** S****") for name in accepted
    )
    assert days(ledger) == {"2024-01-01": 5, "2024-01-02": 1}
    later = contents(ledger)
    assert_published_once(bootstrap, accepted)
    listed = ledger.try_run("live_alerts list").stdout.splitlines()
    assert [line.split()[1:] for line in listed if "much_money" in line] == [
        ["much_money", "A00000002", "60000.00", "50000.00", "yes", "big"]
    ]
    assert listed[-1].startswith("A00000002 is silenced until further notice, since ")

    ledger.run(f"savepoint restore {saved.name}")
    assert contents(ledger) == before
    with ledger.running("live", LEDGER_LIVE_TOPICS="on") as live:
        await_that(lambda: contents(ledger) == later)
        ledger.run("savepoint create now")
        _, errors = live.communicate(timeout=60)
    assert (live.returncode, "Traceback" in errors) == (0, False), errors
    assert desired_state.read_wanted(ledger.settings, LIVE).state == desired_state.RUN
    assert contents(ledger) == later
    assert [each.name for each in places.read_savepoints(ledger.settings)] == [saved.name, "now"]
    assert_published_once(bootstrap, accepted)


def assert_published_once(bootstrap: str, accepted: Iterable[str]) -> None:
    """Each accepted row is in its topic, once; of the two alerts, the one that is not silenced is."""
    found = committed_messages(bootstrap, DEBITS_TOPIC.name, CREDITS_TOPIC.name)
    assert Counter((message.key() or b"").decode() for message in found) == Counter(accepted)
    assert {(message.key() or b"").decode() for message in found if message.topic() == CREDITS_TOPIC.name} == {"c", "d"}
    alerts = [json.loads(message.value() or b"") for message in committed_messages(bootstrap, ALERTS_TOPIC.name)]
    assert [(alert["accountId"], alert["kind"]) for alert in alerts] == [("A00000001", "many_debits")]


def counted(ledger: Ledger) -> tuple[int, ...]:
    """How many rows were accepted and refused; nothing where there is no table yet."""
    both = (tables.LIVE_TRANSACTIONS, tables.LIVE_REFUSED)
    return tuple(len(ledger.rows(table)) for table in both if ledger.exists(table))


def contents(ledger: Ledger) -> dict[str, Counter[str]]:
    return {table.name: Counter(map(str, ledger.rows(table))) for table in tables.LIVE}


def days(ledger: Ledger) -> dict[str, int]:
    return {f"{row['window_start']:%Y-%m-%d}": row["transactions"] for row in ledger.rows(tables.LIVE_DAILY_TOTALS)}
