"""Debits and credits in memory: the pairs that a plain loop finds."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.gold import interval_join

HOUR = timedelta(hours=1)
MICROS = HOUR // timedelta(microseconds=1)
SCHEMA = pa.schema(
    [("transaction_id", pa.string()), ("customer_id", pa.string()), ("type", pa.string()), ("event_at", pa.timestamp("us", "UTC"))]
)
EDGES = (timedelta(0), timedelta(microseconds=1), HOUR - timedelta(microseconds=1), HOUR, HOUR + timedelta(microseconds=1))


def rows_of(chance: random.Random, start: datetime, count: int) -> list[dict[str, Any]]:
    """Few customers, one of them unknown, and times that are the same, an hour apart, or nearly so."""
    return [
        {
            "transaction_id": f"T{number}",
            "customer_id": chance.choice(["C1", "C2", "C3", None]),
            "type": chance.choice(["Debit", "Credit", "Debit", "Credit", "Fee", None]),
            "event_at": start + chance.choice(EDGES) + HOUR * chance.randrange(4),
        }
        for number in range(count)
    ]


def pairs(new: pa.Table, rows: pa.Table) -> pa.Table | None:
    parts = interval_join.pairs(new, rows, MICROS)
    return None if parts is None else pa.concat_tables(parts)


def loop(new: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    ids = {row["transaction_id"] for row in new}
    return sorted(
        (d["transaction_id"], c["transaction_id"], d["customer_id"], d["event_at"], c["event_at"])
        for d in rows
        for c in rows
        if d["customer_id"] == c["customer_id"] is not None
        and (d["type"], c["type"]) == ("Debit", "Credit")
        and timedelta(0) <= c["event_at"] - d["event_at"] <= HOUR
        and ids & {d["transaction_id"], c["transaction_id"]}
    )


@pytest.mark.parametrize("start", [datetime(2013, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 22, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)])
@pytest.mark.parametrize("new", [0, 1, 30, 120])
def test_the_pairs_are_those_of_a_loop(start: datetime, new: int) -> None:
    chance = random.Random(new)
    rows = rows_of(chance, start, 120)
    latest = chance.sample(rows, new)
    found = pairs(pa.Table.from_pylist(latest, SCHEMA), pa.Table.from_pylist(rows, SCHEMA))
    assert found is not None
    assert found.column_names == ["debit_id", "credit_id", "customer_id", "debit_at", "credit_at"]
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == loop(latest, rows)
    assert found.num_rows or not new


def test_too_many_pairs_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.Table.from_pylist(rows_of(random.Random(1), datetime(2013, 1, 1, tzinfo=UTC), 60), SCHEMA)
    found = pairs(rows, rows)
    assert found is not None
    monkeypatch.setattr(interval_join, "MOST_PAIRS", found.num_rows)
    assert pairs(rows, rows) == found
    monkeypatch.setattr(interval_join, "MOST_PAIRS", found.num_rows - 1)
    assert pairs(rows, rows) is None


@pytest.mark.parametrize("most", [1, 7, 20])
def test_pairs_come_in_parts_in_the_order_of_their_debits(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    chance = random.Random(most)
    rows = rows_of(chance, datetime(2013, 1, 1, tzinfo=UTC), 120)
    latest = chance.sample(rows, 40)
    monkeypatch.setattr(interval_join, "PART", most)
    parts = list(interval_join.pairs(pa.Table.from_pylist(latest, SCHEMA), pa.Table.from_pylist(rows, SCHEMA), MICROS) or ())
    of_debit = Counter(debit for debit, *_ in loop(latest, rows))
    assert len(parts) > 1
    assert all(part.num_rows < most + max(of_debit.values()) for part in parts)
    found = pa.concat_tables(parts)
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == loop(latest, rows)
    assert found["debit_at"].to_pylist() == sorted(found["debit_at"].to_pylist())
