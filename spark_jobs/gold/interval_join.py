"""Debits and credits of one customer that are close in time, of rows in memory: Spark takes ten times as long for as many."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

COLUMNS = ("transaction_id", "customer_id", "type", "event_at")
PART = 1_000_000  # pairs that are in memory at once, with some 200 bytes each
MOST_PAIRS = 50_000_000  # that one process makes: of more, each of Spark's tasks makes a part


def pairs(new: pa.Table, rows: pa.Table, micros: int) -> Iterator[pa.Table] | None:
    """Every pair of a debit and a credit at most so many microseconds after it, or at its time, of which one at least is new.

    `new` and `rows` are rows of silver.transactions with COLUMNS; `rows` holds those so close to a new one, and the new ones themselves.
    Gives tables of debit_id, credit_id, customer_id, debit_at and credit_at (timestamps in UTC), of PART pairs and those of one debit at
    most, the earlier debits first. None where there are more than MOST_PAIRS.
    """
    rows = rows.filter(pc.is_valid(rows["customer_id"])).sort_by("event_at")
    at = rows["event_at"].cast("int64").to_numpy()
    customers = pc.unique(rows["customer_id"])
    # A row's number among all in order of time, and after its customer: one order holds the rows of each customer in order of time.
    start = pc.index_in(rows["customer_id"], value_set=customers).to_numpy().astype("int64") * (len(rows) + 1)
    first, end = np.searchsorted(at, at, "left"), np.searchsorted(at, at + micros, "right")
    is_new = pc.is_in(rows["transaction_id"], value_set=pc.unique(new["transaction_id"])).to_numpy()
    is_debit, is_credit = (pc.equal(rows["type"], kind).fill_null(False).to_numpy() for kind in ("Debit", "Credit"))
    credits_, found = np.empty(0, "int64"), list[tuple[np.ndarray, ...]]()
    for one, others in ((is_debit & is_new, is_credit), (is_debit & ~is_new, is_credit & is_new)):
        debit, ordered = np.flatnonzero(one), np.sort((start + np.arange(len(rows)))[others])
        found_from, found_to = (np.searchsorted(ordered, start[debit] + edge[debit]) for edge in (first, end))
        found.append((debit, len(credits_) + found_from, found_to - found_from))
        credits_ = np.concatenate((credits_, ordered % (len(rows) + 1)))
    debits, firsts, counts = (np.concatenate(each) for each in zip(*found, strict=True))
    by_time = np.argsort(debits)
    return _parts(rows, debits[by_time], firsts[by_time], counts[by_time], credits_) if counts.sum() <= MOST_PAIRS else None


def _parts(rows: pa.Table, debits: np.ndarray, firsts: np.ndarray, counts: np.ndarray, credits_: np.ndarray) -> Iterator[pa.Table]:
    """The pairs of each debit (a row's number) with so many credits from the place of the first one on."""
    edges = 1 + np.flatnonzero(np.diff((np.cumsum(counts) - counts) // PART))
    for debit, first, count in zip(*(np.split(each, edges) for each in (debits, firsts, counts)), strict=True):
        places = np.arange(count.sum()) + np.repeat(first - np.cumsum(count) + count, count)
        of_debit, of_credit = (rows.take(pa.array(each)) for each in (np.repeat(debit, count), credits_[places]))
        yield pa.table(
            {
                "debit_id": of_debit["transaction_id"],
                "credit_id": of_credit["transaction_id"],
                "customer_id": of_debit["customer_id"],
                "debit_at": of_debit["event_at"],
                "credit_at": of_credit["event_at"],
            }
        )
