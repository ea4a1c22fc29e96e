"""All live products under load, while the application is killed at random moments: they hold what plain loops over the same rows say.

SOAK_MINUTES says how long (an hour: 60), SOAK_ROWS how many rows come every two seconds, LEDGER_TEST_SEED which rows and kills.
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from spark_jobs.control import districts
from spark_jobs.kafka.topics import ALERTS, CREDITS, DEBITS
from spark_jobs.lake import tables
from spark_jobs.runtime.settings import Settings
from spark_jobs.service import heartbeat
from spark_jobs.service.services import LIVE
from tests.support import live_reference as reference
from tests.support.databases import execute, running_postgres
from tests.support.fault_harness import SEED, pause
from tests.support.ledger import Ledger, Row, await_that
from tests.support.live_load import ACCOUNTS, Load, read
from tests.support.live_reference import DAY, MINUTE, Limits, Rows

pytestmark = [pytest.mark.faults, pytest.mark.soak]

MINUTES = float(os.environ.get("SOAK_MINUTES", "5"))
ROWS, SECONDS = int(os.environ.get("SOAK_ROWS", "200")), 2.0  # a batch of bronze, and how often one comes
LIMITS = Limits(lateness=10_000, wait=60 * MINUTE, debits=3, money=Decimal(50_000), times=5, silence=DAY)
LONGEST = 3600.0  # seconds, for a first commit after a start, and for all that waits at the end: a busy machine may be far behind
DISTRICTS, NAMED = 40, 30  # of the accounts; of which so many have a name


@dataclass
class Run:
    """What is under load, and what it went through."""

    ledger: Ledger
    more: dict[str, str]
    load: Load
    kills: Counter[str] = field(default_factory=Counter)

    def rows(self, table: tables.Table) -> list[Row]:
        return self.ledger.rows(table)

    def counted(self) -> int:
        """How many commits the intake has made."""
        return self.ledger.exists(tables.LIVE_TRANSACTIONS) and len(
            list((tables.LIVE_TRANSACTIONS.path(self.ledger.settings) / "_delta_log").glob("*.json"))
        )


@contextmanager
def feeding(load: Load) -> Iterator[None]:
    """Write a batch every two seconds beside the block; a slow machine writes fewer."""
    ending = threading.Event()

    def feed() -> None:
        while not ending.is_set():
            begun = time.monotonic()
            load.write()
            ending.wait(max(0.0, SECONDS - (time.monotonic() - begun)))

    with ThreadPoolExecutor(1) as pool:
        fed = pool.submit(feed)
        try:
            yield
        finally:
            ending.set()
        fed.result()


def kill_at_random(run: Run, chance: random.Random, until: float, log: Path) -> None:
    """Start the application and kill all of it or one process, until the time is over: as it starts, or some time after it has written."""
    while time.monotonic() < until:
        before = run.counted()
        with run.ledger.running("live", log, **run.more) as live:
            if chance.random() < 0.25:
                pause(chance.uniform(2, 40))
            else:
                await_that(lambda before=before, live=live: run.counted() > before or live.poll() is not None, LONGEST)  # type: ignore[misc]
                pause(chance.uniform(0, 60))
            assert live.poll() is None, log.read_text()[-5000:]
            beats = heartbeat.read(run.ledger.settings, LIVE)
            found = [process for beat in beats for process in beat.processes()]
            victims = found if chance.random() < 0.5 or len(found) < 2 else [chance.choice(found)]
            for process in victims:
                run.kills[process.name()] += 1
                process.send_signal(signal.SIGKILL)
            if not victims:
                run.kills["start"] += 1
                live.kill()
            live.wait(120)
            psutil.wait_procs(found, timeout=60)
            assert not [process for process in found if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def test_live_tables_and_topics_are_those_of_plain_loops_whatever_is_killed(settings: Settings, tmp_path: Path) -> None:
    ledger = Ledger(settings.home, settings.broker().servers)
    tables.ensure_tables(settings, (*tables.BRONZE, tables.SILVER_ACCOUNTS, *tables.CONTROL))
    write_accounts(settings)
    version = districts.replace(settings, [{"district_id": number, "name": f"D{number}", "region": None} for number in range(NAMED)])[0]
    with running_postgres(tmp_path / "postgres") as url:
        execute(
            url,
            "insert into accounts values (%s, 18, 'monthly', '1993-01-05', '2024-01-01 12:00+00')",
            [(account(n),) for n in range(0, ACCOUNTS, 2)],
        )
        more = {"LEDGER_POSTGRES_URL": url, "LEDGER_LIVE_LOOKUPS": "on", "LEDGER_LIVE_TOPICS": "on", "LEDGER_ALERT_SILENCE_DAYS": "1"}
        run = Run(ledger, more, Load(settings, SEED, ROWS))
        begun, log = time.monotonic(), tmp_path / "live.log"
        with feeding(run.load):
            kill_at_random(run, random.Random(SEED), begun + 60 * MINUTES, log)
        fed = time.monotonic() - begun
        finish(run, log)
    accepted, refused, newest_of = reference.split(run.load.paid, LIMITS.lateness)
    passed = max(newest_of.values()) - LIMITS.lateness
    counts = compare(run, accepted, refused, newest_of, passed, version)
    topics = compare_topics(run, accepted)
    print(f"\n{fed:.0f} s, {run.load.batch} batches, {len(run.load.paid)} rows, killed: {dict(run.kills)}, seed {SEED}\n{counts}\n{topics}")
    assert run.kills.total() > 0


def finish(run: Run, log: Path) -> None:
    """Take all that waits. A machine that is too busy may fail a query at its start, whose Python worker is too slow: start again."""
    for _ in range(10):
        with run.ledger.running("live --available-now", log, **run.more) as last:
            if last.wait(LONGEST) == 0:
                return
    pytest.fail(log.read_text()[-5000:])


def compare(
    run: Run, accepted: list[reference.Paid], refused: Rows, newest_of: dict[int, int], passed: int, version: int
) -> dict[str, int]:
    """Every live table, and how many rows each has."""
    wanted: dict[tables.Table, Rows] = {
        tables.LIVE_TRANSACTIONS: Counter(
            (row.name, row.account, row.customer, row.at, row.kind, row.amount, row.batch, *row.where) for row in accepted
        ),
        tables.LIVE_REFUSED: refused,
        tables.LIVE_CUSTOMER_SESSIONS: reference.sessions(accepted, passed),
        tables.LIVE_DEBIT_CREDIT_PAIRS: reference.pairs(accepted),
        tables.LIVE_DEBIT_SHARE: reference.shares(accepted, passed),
        tables.LIVE_ALERTS: reference.alerts(accepted, LIMITS, passed),
        tables.LIVE_DISTRICT_TRANSACTIONS: Counter((row.name, *row.where[1:], *district(row.account), version) for row in accepted),
    }
    kinds = {"daily": tables.LIVE_DAILY_TOTALS, "sliding": tables.LIVE_SLIDING_TOTALS, "cumulative": tables.LIVE_CUMULATIVE_TOTALS}
    wanted |= {kinds[name]: rows for name, rows in reference.totals(accepted, passed).items()}
    for table, expected in wanted.items():
        found = Counter(tuple(values(row, COLUMNS[table.name])) for row in run.rows(table))
        assert (found - expected, expected - found) == (Counter(), Counter()), f"{table.name}; LEDGER_TEST_SEED={SEED} runs it again"
        assert found, table.name
    assert set(wanted) | {tables.LIVE_ENRICHED_TRANSACTIONS, tables.LIVE_ACCOUNT_LOOKUPS, tables.LIVE_LOOKUP_ERRORS} == set(tables.LIVE)
    statuses = compare_enriched(run, accepted, newest_of) | compare_lookups(run, accepted)
    return {table.name: expected.total() for table, expected in wanted.items()} | statuses


def compare_enriched(run: Run, accepted: list[reference.Paid], newest_of: dict[int, int]) -> dict[str, int]:
    """Each row once, as the customers that may have come by then allow; most allow one thing only."""
    allowed = reference.enriched(accepted, run.load.called, newest_of, LIMITS)
    found = run.rows(tables.LIVE_ENRICHED_TRANSACTIONS)
    told = Counter((row["transaction_id"], row["_partition"], row["_offset"]) for row in found)
    assert told == Counter(key for key, each in allowed.items() if each.is_due)
    names = ("customer_status", "customer_full_name", "customer_city", "customer_version_from")
    wrong = [
        (row, sorted(map(str, outcomes)))
        for row in found
        if tuple(values(row, names)) not in (outcomes := allowed[(row["transaction_id"], row["_partition"], row["_offset"])].outcomes)
    ]
    assert not wrong, (len(wrong), wrong[:3])
    certain = sum(len(each.outcomes) == 1 for each in allowed.values())
    assert certain > 0.8 * len(allowed)
    statuses = Counter(row["customer_status"] for row in found)
    assert set(statuses) == {"matched", "unknown", "deleted"}
    return {f"enriched {status}": count for status, count in statuses.items()} | {
        "enriched in one way only": certain,
        "waiting": len(allowed) - len(found),
    }


def compare_lookups(run: Run, accepted: list[reference.Paid]) -> dict[str, int]:
    """Each row once; a machine that is too busy may leave some without an answer, and these are errors once."""
    rows = run.rows(tables.LIVE_ACCOUNT_LOOKUPS)
    where = ("transaction_id", "_partition", "_offset")
    assert Counter(tuple(values(row, where)) for row in rows) == Counter((row.name, *row.where[1:]) for row in accepted)
    errors = Counter(tuple(values(row, where)) for row in run.rows(tables.LIVE_LOOKUP_ERRORS))
    assert errors == Counter(tuple(values(row, where)) for row in rows if row["lookup_status"] == "error")
    known = {account(number) for number in range(0, ACCOUNTS, 2)}
    for row in rows:
        if row["lookup_status"] != "error":
            expected = ("found", 18, date(1993, 1, 5)) if row["account_id"] in known else ("unknown", None, None)
            assert tuple(row[name] for name in ("lookup_status", "district_id", "creation_date")) == expected, row
    return {f"looked up {status}": count for status, count in Counter(row["lookup_status"] for row in rows).items()}


def compare_topics(run: Run, accepted: list[reference.Paid]) -> dict[str, int]:
    """Each row once for a reader of what is committed, in order of arrival within a partition; each alert once."""
    counts = {}
    for topic, kind in ((DEBITS, "Debit"), (CREDITS, "Credit")):
        messages = read(run.ledger.bootstrap, topic)
        assert Counter(each[1]["transactionId"] for each in messages) == Counter(row.name for row in accepted if row.kind == kind), (
            topic.name
        )
        order = {row.where: place for place, row in enumerate(accepted)}
        last = dict[int, int]()
        for partition, fields, source in messages:
            place = order[(source[0], int(source[1]), int(source[2]))]
            assert place > last.get(partition, -1), (topic.name, fields)
            last[partition] = place
        counts[topic.name] = len(messages)
    ids = Counter(each[1]["alertId"] for each in read(run.ledger.bootstrap, ALERTS))
    assert ids == Counter(row["alert_id"] for table in (tables.LIVE_ALERTS, tables.LIVE_LOOKUP_ERRORS) for row in run.rows(table))
    return counts | {ALERTS.name: ids.total()}


def write_accounts(settings: Settings) -> None:
    """silver.accounts as it stays: each has a district, but every seventh."""
    rows = [
        {"account_id": account(number), "district_id": None if number % 7 == 0 else number % DISTRICTS, "is_deleted": False}
        | {"valid_from": datetime(2013, 1, 1, tzinfo=UTC), "valid_to": None, "is_current": True}
        for number in range(ACCOUNTS)
    ]
    schema = pa.schema(tables.SILVER_ACCOUNTS.delta_schema().to_arrow())
    write_deltalake(str(tables.SILVER_ACCOUNTS.path(settings)), pa.Table.from_pylist(rows, schema), mode="append")


def district(name: str) -> tuple[Any, ...]:
    number = int(name[1:])
    if number % 7 == 0:
        return None, None, "no district"
    where = number % DISTRICTS
    return (where, f"D{where}", "matched") if where < NAMED else (where, None, "unknown")


def account(number: int) -> str:
    return f"A{number:08}"


def values(row: Row, names: tuple[str, ...]) -> list[Any]:
    """As the reference has them: times and days in milliseconds, of causes their ids."""
    return [_plain(row[name]) for name in names]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return round((value - EPOCH).total_seconds() * 1000)
    if isinstance(value, date):
        return (value - EPOCH.date()).days * DAY
    return tuple(cause["transaction_id"] for cause in value) if isinstance(value, list) else value


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TOTALS = ("window_start", "window_end", "type", "transactions", "amount")
COLUMNS: dict[str, tuple[str, ...]] = {
    "gold.live_transactions": (
        *("transaction_id", "account_id", "customer_id", "event_at", "type", "amount", "_batch", "_topic", "_partition", "_offset"),
    ),
    "gold.live_refused": ("transaction_id", "event_at", "reason", "watermark_at", "_partition", "_offset"),
    "gold.live_customer_sessions": ("customer_id", "session_start", "session_end", "transactions", "amount"),
    "gold.live_debit_credit_pairs": ("debit_id", "credit_id", "customer_id", "debit_at", "credit_at"),
    "gold.live_debit_share": ("day", "debits", "credits", "debit_share_percent"),
    "gold.live_alerts": ("alert_id", "kind", "account_id", "raised_at", "found", "allowed", "caused_by"),
    "gold.live_district_transactions": (
        *("transaction_id", "_partition", "_offset", "district_id", "district_name", "district_status", "districts_version"),
    ),
    **dict.fromkeys(("gold.live_daily_totals", "gold.live_sliding_totals", "gold.live_cumulative_totals"), _TOTALS),
}
