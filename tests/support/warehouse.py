"""A small warehouse in which everything is right: two bronze batches of transactions, one of customers and of accounts."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from spark_jobs import control
from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.settings import Settings, read_settings

Row = dict[str, Any]
Rows = dict[str, list[Row]]

DAY = datetime(2013, 1, 2, tzinfo=UTC)
LOADED = datetime(2026, 1, 1, tzinfo=UTC)
FIRST_VERSION = datetime(2012, 12, 31, tzinfo=UTC)


def at(partition: int, offset: int, batch: int, topic: str = "transactions") -> Row:
    return {"_topic": topic, "_partition": partition, "_offset": offset, "_batch": batch}


def bronze(coordinates: Row, key: bytes | None, value: bytes | None) -> Row:
    times = {"_timestamp": LOADED, "_ingested_at": LOADED, "_ingested_on": LOADED.date()}
    return {"key": key, "value": value, "headers": [], **coordinates, **times}


def quarantined(coordinates: Row, key: bytes | None, value: bytes | None) -> Row:
    return {"key": key, "value": value, "broken_rules": ["parseable"], "detail": None, **coordinates}


def transaction(number: int, coordinates: Row, kind: str, amount: str, who: int, hour: int) -> Row:
    event_at = DAY + timedelta(hours=hour)
    return {
        "transaction_id": f"T{number}",
        "account_id": f"A{who:08}",
        "customer_id": f"C{who:08}",
        "event_at": event_at,
        "event_on": event_at.date(),
        "type": kind,
        "operation": None,
        "amount": Decimal(amount),
        "balance": Decimal("1000.00"),
        **coordinates,
    }


def version_of(keys: Row, coordinates: Row) -> Row:
    validity = {"valid_from": FIRST_VERSION, "valid_to": None, "is_current": True, "is_deleted": False}
    return {**keys, **validity, **coordinates}


def good_rows() -> Rows:
    """Every table's rows. The second batch brings a duplicate of T1, and T3, which is an hour late."""
    first = [
        transaction(1, at(0, 0, 1), "Credit", "100.10", who=1, hour=9),
        transaction(2, at(0, 1, 1), "Debit", "40.00", who=1, hour=10),
    ]
    second = [
        transaction(3, at(0, 4, 2), "Debit", "0.01", who=1, hour=8),
        transaction(4, at(1, 0, 2), "Credit", "9007199254740993.00", who=2, hour=11),
    ]
    watermark_at = DAY + timedelta(hours=9)
    duplicate = {"transaction_id": "T1", "is_conflicting": False, "first_topic": "transactions", "first_partition": 0, "first_offset": 0}
    late = {"transaction_id": "T3", "event_at": second[0]["event_at"], "watermark_at": watermark_at, "late_by_seconds": Decimal("3600.000")}
    nobody = {"customer_full_name": None, "customer_city": None, "customer_state": None, "customer_version_from": None}
    ada = {"customer_full_name": "A** L*******", "customer_city": "London", "customer_state": "LN", "customer_version_from": FIRST_VERSION}
    return {
        "bronze.transactions": [
            *(bronze(at(row["_partition"], row["_offset"], row["_batch"]), b"T", b"{}") for row in (*first, *second)),
            bronze(at(0, 2, 1), b"T9", b"{"),
            bronze(at(0, 3, 2), b"T1", b"{}"),
        ],
        "bronze.customers": [
            bronze(at(0, 0, 1, "customers"), b"C00000001", b"{}"),
            bronze(at(0, 1, 1, "customers"), None, b"{"),
        ],
        "bronze.accounts": [
            bronze(at(0, 0, 1, "accounts"), b"A00000001", b"{}"),
            bronze(at(0, 1, 1, "accounts"), b"A00000009", b"{"),
        ],
        "silver.transactions": [*first, *second],
        "silver.transactions_duplicates": [duplicate | at(0, 3, 2)],
        "silver.transactions_quarantine": [quarantined(at(0, 2, 1), b"T9", b"{")],
        "silver.transactions_late": [late | at(0, 4, 2)],
        "silver.customers": [version_of({"customer_id": "C00000001", "full_name": "Ada Lovelace"}, at(0, 0, 1, "customers"))],
        "silver.customers_quarantine": [quarantined(at(0, 1, 1, "customers"), None, b"{")],
        "silver.accounts": [version_of({"account_id": "A00000001", "district_id": 1}, at(0, 0, 1, "accounts"))],
        "silver.accounts_quarantine": [quarantined(at(0, 1, 1, "accounts"), b"A00000009", b"{")],
        "gold.daily_totals": [daily("Credit", 2, "9007199254741093.10"), daily("Debit", 2, "40.01")],
        "gold.customer_activity": [
            {
                "customer_id": "C00000001",
                "transactions": 3,
                "credits": Decimal("100.10"),
                "debits": Decimal("40.01"),
                "first_event_at": DAY + timedelta(hours=8),
                "last_event_at": DAY + timedelta(hours=10),
            },
            {
                "customer_id": "C00000002",
                "transactions": 1,
                "credits": Decimal("9007199254740993.00"),
                "debits": Decimal(0),
                "first_event_at": DAY + timedelta(hours=11),
                "last_event_at": DAY + timedelta(hours=11),
            },
        ],
        "gold.enriched_transactions": [
            *(row | ada | {"customer_status": "matched"} for row in (*first, second[0])),
            second[1] | nobody | {"customer_status": "unknown"},
        ],
        "gold.account_balances": [
            balance("A00000001", 10, 3, "100.10", "40.01", at(0, 1, 1)),
            balance("A00000002", 11, 1, "9007199254740993.00", "0.00", at(1, 0, 2)),
        ],
        **gold_of_times(second[1]),
        "control.batches": [
            run_of("silver", "silver.transactions", 1, 1, input=3, output=2, quarantined=1),
            run_of("silver", "silver.transactions", 2, 2, input=3, output=2, duplicates=1),
            run_of("silver", "silver.customers", 1, 1, input=2, output=1, quarantined=1),
            run_of("silver", "silver.accounts", 1, 1, input=2, output=1, quarantined=1),
            *(run_of("gold", table.name, 1, 2) for table in tables.GOLD),
        ],
    }


def gold_of_times(large: Row) -> Rows:
    """Rows of the gold tables over windows of time, sessions, pairs and minutes."""
    credits_, debits = ("100.10", "9007199254740993.00", "9007199254741093.10"), ("0.01", "40.00", "40.01")
    sums = (("Credit", *credits_), ("Debit", *debits))
    both_slide = [totals(kind, start, start + 24, 2, both) for kind, _, _, both in sums for start in range(-12, 9, 2)]
    both_grow = [totals(kind, 0, end, 2, both) for kind, _, _, both in sums for end in range(12, 25, 2)]
    week = {"window_start": datetime(2012, 12, 27, tzinfo=UTC), "window_end": datetime(2013, 1, 3, tzinfo=UTC)}
    minutes = ((8, 1, "0.01"), (9, 1, "100.10"), (10, 1, "40.00"), (11, -1, "9007199254740993.00"))
    return {
        "gold.sliding_totals": [
            *(totals(kind, -14, 10, 1, first) for kind, first, _, _ in sums),
            *both_slide,
            *(totals(kind, 10, 34, 1, second) for kind, _, second, _ in sums),
        ],
        "gold.cumulative_totals": [*(totals(kind, 0, 10, 1, first) for kind, first, _, _ in sums), *both_grow],
        "gold.customer_sessions": [session(1, 8, 22, 3, "140.11"), session(2, 11, 23, 1, "9007199254740993.00")],
        "gold.weekly_top_customers": [
            week | {"rank": 1, "customer_id": "C00000001", "transactions": 3},
            week | {"rank": 2, "customer_id": "C00000002", "transactions": 1},
        ],
        "gold.large_credits": [{name: large[name] for name in tables.LARGE_CREDITS.columns}],
        "gold.debit_credit_pairs": [
            {"debit_id": "T3", "credit_id": "T1", "customer_id": "C00000001", "debit_at": hour(8), "credit_at": hour(9)},
        ],
        "gold.district_minutes": [
            {"minute": hour(at_), "district_id": district, "transactions": 1, "amount": Decimal(amount), "average_5m": Decimal("0.2")}
            for at_, district, amount in minutes
        ],
        "gold.debit_share": [{"day": DAY.date(), "debits": 2, "credits": 2, "debit_share_percent": Decimal("50.0000")}],
        "gold.account_days": [
            account_day(1, "100.10", "40.01", transactions=3, day=DAY.date(), opening=None, difference=None),
            account_day(2, "9007199254740993.00", "0.00", transactions=1, day=DAY.date(), opening=None, difference=None),
        ],
    }


def hour(number: int) -> datetime:
    return DAY + timedelta(hours=number)


def totals(kind: str, start: int, end: int, transactions: int, amount: str) -> Row:
    window = {"window_start": hour(start), "window_end": hour(end)}
    return {**window, "type": kind, "transactions": transactions, "amount": Decimal(amount)}


def session(who: int, start: int, end: int, transactions: int, amount: str) -> Row:
    sums = {"transactions": transactions, "amount": Decimal(amount)}
    return {"customer_id": f"C{who:08}", "session_start": hour(start), "session_end": hour(end), **sums}


def daily(kind: str, transactions: int, amount: str) -> Row:
    return totals(kind, 0, 24, transactions, amount)


def balance(account: str, hour: int, transactions: int, credits_: str, debits: str, coordinates: Row) -> Row:
    sums = {"credits": Decimal(credits_), "debits": Decimal(debits), "transactions": transactions}
    return {"account_id": account, "balance": Decimal("1000.00"), "last_event_at": DAY + timedelta(hours=hour), **sums, **coordinates}


def account_day(who: int, credits_: str, debits: str, **values: Any) -> Row:
    return {"account_id": f"A{who:08}", "closing": Decimal("1000.00"), "credits": Decimal(credits_), "debits": Decimal(debits), **values}


def run_of(job: str, table: str, first: int, last: int, **counts: int) -> Row:
    return {"run_id": "r", "job": job, "table": table, "first_batch": first, "last_batch": last, **counts, "finished_at": LOADED}


def settings_of(home: Path) -> Settings:
    return read_settings({"LEDGER_HOME": str(home)})


def write(settings: Settings, rows: Rows, *, mode: str = "append") -> None:
    """Write rows of some tables; bronze in one commit a batch, and gold with the versions of silver as they are now, as their jobs do."""
    for name, added in rows.items():
        table = table_named(name)
        tables.ensure_tables(settings, [table, tables.HOLES])
        batches = sorted({row["_batch"] for row in added}) if table.layer == "bronze" and mode == "append" else [None]
        for batch in batches:
            chosen = [row for row in added if batch is None or row["_batch"] == batch]
            schema = pa.schema(table.delta_schema().to_arrow())
            metadata = {"userMetadata": json.dumps({"batch": batch})} if batch else None
            properties = CommitProperties(custom_metadata=metadata, app_transactions=followed(settings, table))
            path = str(table.path(settings))
            write_deltalake(path, pa.Table.from_pylist(chosen, schema), mode=mode, commit_properties=properties)  # type: ignore[call-overload]


def followed(settings: Settings, table: Table) -> list[Transaction]:
    """What the commit of a gold table says of the silver that it was made of."""
    sources = [source for source, followers in tables.FOLLOWERS.items() if table in followers]
    heads = {source: DeltaTable(path) for source in sources if DeltaTable.is_deltatable(path := str(source.path(settings)))}
    return [Transaction(control.following(settings, source), delta.version()) for source, delta in heads.items()]


def table_named(name: str) -> Table:
    every = (*tables.BRONZE, *tables.SILVER, *tables.GOLD, *tables.CONTROL)
    return next(table for table in every if table.name == name)
