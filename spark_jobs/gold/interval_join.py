"""Debits and credits of one customer that are close in time, of rows in memory: Spark takes ten times as long for as many."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

COLUMNS = ("transaction_id", "customer_id", "type", "event_at")
MOST_PAIRS = 3_000_000  # that are held in memory, with some 200 bytes each


def pairs(new: pa.Table, rows: pa.Table, micros: int) -> pa.Table | None:
    """Every pair of a debit and a credit at most so many microseconds after it, or at its time, of which one at least is new.

    `new` and `rows` are rows of silver.transactions with COLUMNS; `rows` holds those so close to a new one, and the new ones themselves.
    Gives debit_id, credit_id, customer_id, debit_at and credit_at (timestamps in UTC), in no order. None where there are more than
    MOST_PAIRS.
    """
    rows = rows.filter(pc.is_valid(rows["customer_id"])).sort_by("event_at")
    at = rows["event_at"].cast("int64").to_numpy()
    customers = pc.unique(rows["customer_id"])
    # A row's number among all in order of time, and after its customer: one order holds the rows of each customer in order of time.
    start = pc.index_in(rows["customer_id"], value_set=customers).to_numpy().astype("int64") * (len(rows) + 1)
    first, end = np.searchsorted(at, at, "left"), np.searchsorted(at, at + micros, "right")
    is_new = pc.is_in(rows["transaction_id"], value_set=pc.unique(new["transaction_id"])).to_numpy()
    is_debit, is_credit = (pc.equal(rows["type"], kind).fill_null(False).to_numpy() for kind in ("Debit", "Credit"))
    debits, credits_ = list[np.ndarray](), list[np.ndarray]()
    count = 0
    for one, others in ((is_debit & is_new, is_credit), (is_debit & ~is_new, is_credit & is_new)):
        debit, ordered = np.flatnonzero(one), np.sort((start + np.arange(len(rows)))[others])
        found_from, found_to = (np.searchsorted(ordered, start[debit] + edge[debit]) for edge in (first, end))
        counts = found_to - found_from
        count += int(counts.sum())
        if count > MOST_PAIRS:
            return None
        places = np.arange(counts.sum()) + np.repeat(found_from - np.cumsum(counts) + counts, counts)
        debits.append(np.repeat(debit, counts))
        credits_.append(ordered[places] % (len(rows) + 1))
    debit_rows, credit_rows = (rows.take(pa.array(np.concatenate(each))) for each in (debits, credits_))
    return pa.table(
        {
            "debit_id": debit_rows["transaction_id"],
            "credit_id": credit_rows["transaction_id"],
            "customer_id": debit_rows["customer_id"],
            "debit_at": debit_rows["event_at"],
            "credit_at": credit_rows["event_at"],
        }
    )
