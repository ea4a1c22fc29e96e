"""Three bronze batches of transactions and customers, with duplicates, late rows and rows that break rules."""

from typing import Any

from tests.support.rows import Record, message

HOUR = 3_600_000
MOMENT = 1357028613001


def transaction(id_: str, hours: int = 0, **changes: Any) -> Record:
    return message("transactions", transactionId=id_, eventTime=MOMENT + hours * HOUR, **changes)


def customer(number: int, hours: int, **changes: Any) -> Record:
    key = f"C{number:08d}"
    return key.encode(), message("customers", **{"customerId": key, "updateTime": MOMENT + hours * HOUR, **changes})[1]


BAD = transaction("bad", type="Transfer")
Batches = dict[str, list[Record]]
FIRST: Batches = {
    "transactions": [*(transaction(f"T{n}", n) for n in range(6)), BAD, transaction("T1", 1)],
    "customers": [customer(1, 0), customer(2, 0), (b"x", customer(3, 0)[1])],
}
SECOND: Batches = {
    "transactions": [transaction("T7", 9), transaction("T2", 2), transaction("T3", 3, amount=1), transaction("T8", 1), BAD],
    "customers": [customer(1, 5, city="d"), customer(2, -1, city="e"), (b"C00000002", None), (b"y", b"{")],
}
THIRD: Batches = {
    "transactions": [transaction("T8", 1), transaction("T0", 0, type="Debit"), transaction("T9", 8)],
    "customers": [customer(1, 3)],
}
