"""Compare what the jobs wrote with what was sent and with the computation in oracle.py, row by row."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from include.producer import INJECTED_HEADER, Message
from spark_jobs import control
from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table
from tests.support import oracle
from tests.support.ledger import Ledger, Row

Body = tuple[bytes | None, dict[str, bytes]]  # value and headers
DIMENSIONS = (
    (tables.BRONZE_CUSTOMERS, tables.SILVER_CUSTOMERS, tables.CUSTOMERS_QUARANTINE),
    (tables.BRONZE_ACCOUNTS, tables.SILVER_ACCOUNTS, tables.ACCOUNTS_QUARANTINE),
)


def assert_rows(ledger: Ledger, table: Table, expected: Iterable[Row]) -> None:
    """The table holds exactly these rows, unique by its keys; of columns that the expected rows lack nothing is said."""
    wanted = list(expected)
    names = list(wanted[0]) if wanted else table.columns
    found = [{name: row[name] for name in names if name in row} for row in ledger.rows(table)]
    by_key, wanted_by_key = _by_key(found, table.keys), _by_key(wanted, table.keys)
    pairs = ((by_key.get(key), wanted_by_key.get(key)) for key in {*by_key, *wanted_by_key})
    different = [pair for pair in pairs if pair[0] != pair[1]]
    assert (len(different), different[:3]) == (0, []), f"{table.name}: (found, expected)"
    assert len(found) == len(by_key), f"{table.name}: its keys are not unique"


def assert_bronze_is(ledger: Ledger, sent: Sequence[Message]) -> None:
    """Bronze is what was sent: every message once, byte for byte, with its header, in the order of sending of each key; no holes."""
    for table in tables.BRONZE:
        topic = table.name.split(".")[1]
        rows = sorted(ledger.rows(table), key=oracle.place)
        offsets = defaultdict(list)
        for row in rows:
            offsets[row["_partition"]].append(row["_offset"])
        assert {row["_topic"] for row in rows} == {topic}
        assert {number: list(range(len(found))) for number, found in offsets.items()} == dict(offsets), f"{topic}: a hole or a double"
        found = _by_sender((row["key"], row["value"], _headers(row)) for row in rows)
        told = ((m.key, m.value, {INJECTED_HEADER: m.injected.encode()} if m.injected else {}) for m in sent if m.topic == topic)
        assert found == _by_sender(told), topic


def assert_silver_follows(ledger: Ledger) -> oracle.Transactions:
    """Every silver table is the function of bronze that the contract says, and the account closes by coordinates."""
    bronze = ledger.rows(tables.BRONZE_TRANSACTIONS)
    split = oracle.Transactions(bronze)
    parts = {
        tables.SILVER_TRANSACTIONS: list(split.first.values()),
        tables.TRANSACTIONS_DUPLICATES: split.duplicates,
        tables.TRANSACTIONS_QUARANTINE: split.quarantine,
    }
    for table, rows in (*parts.items(), (tables.TRANSACTIONS_LATE, split.late)):
        assert_rows(ledger, table, rows)
    places = Counter(oracle.place(row) for table in parts for row in ledger.rows(table))
    assert places == Counter(oracle.place(row) for row in bronze)
    taken = {"output": len(split.first), "duplicates": len(split.duplicates), "quarantined": len(split.quarantine)}
    assert_counts(ledger, tables.BRONZE_TRANSACTIONS, tables.SILVER_TRANSACTIONS, taken)
    for source, silver, quarantine in DIMENSIONS:
        dimension = oracle.Dimension(ledger.rows(source), silver.keys[0], silver.columns)
        assert_rows(ledger, silver, dimension.versions)
        assert_rows(ledger, quarantine, dimension.quarantine)
        assert_counts(ledger, source, silver, {"output": len(dimension.versions), "quarantined": len(dimension.quarantine)})
    return split


def assert_counts(ledger: Ledger, bronze: Table, silver: Table, told: dict[str, int]) -> None:
    """control.batches names every batch of bronze once, and its counts add up to bronze's rows."""
    batches = control.batches(ledger.settings, "silver", silver.name)
    rows = ledger.rows(bronze)
    ranges = [(row["first_batch"], row["last_batch"]) for row in batches]
    assert all(before[1] < after[0] for before, after in pairwise(ranges)), ranges
    assert all(sum(first <= row["_batch"] <= last for first, last in ranges) == 1 for row in rows)
    sums = Counter({name: sum(row[name] for row in batches) for name in ("input", "output", *_OTHERS)})
    assert sums["input"] == len(rows)
    assert sums["input"] == sums["output"] + sum(sums[name] for name in _OTHERS)
    assert {name: sums[name] for name in told} == told


def assert_gold_follows(ledger: Ledger, split: oracle.Transactions) -> None:
    """Every gold table is the function of all silver rows that the contract says."""
    rows = list(split.first.values())
    customers = oracle.Dimension(ledger.rows(tables.BRONZE_CUSTOMERS), "customer_id", tables.SILVER_CUSTOMERS.columns)
    assert_rows(ledger, tables.DAILY_TOTALS, oracle.daily_totals(rows))
    assert_rows(ledger, tables.CUSTOMER_ACTIVITY, oracle.customer_activity(rows))
    assert_rows(ledger, tables.ACCOUNT_BALANCES, oracle.account_balances(rows))
    assert_rows(ledger, tables.ENRICHED_TRANSACTIONS, oracle.enriched(rows, customers.versions))


_OTHERS = ("duplicates", "quarantined", "superseded", "no_change")


def _by_key(rows: Iterable[Row], keys: Sequence[str]) -> dict[tuple[Any, ...], Row]:
    return {tuple(row[key] for key in keys): row for row in rows}


def _headers(row: Row) -> dict[str, bytes]:
    return {header["key"]: header["value"] for header in row["headers"] or ()}


def _by_sender(messages: Iterable[tuple[bytes, bytes | None, dict[str, bytes]]]) -> dict[bytes, list[Body]]:
    """The messages of each key in their order: Kafka keeps no other."""
    ordered: dict[bytes, list[Body]] = defaultdict(list)
    for key, value, headers in messages:
        ordered[key].append((value, headers))
    return dict(ordered)
