"""Cases that take many rows or runs: what is unusual is told, and closes nothing."""

from datetime import timedelta

from tests.support.changes import Case, Change, case
from tests.support.warehouse import LOADED, Rows, at, bronze, run_of, transaction


def volume_cases(table: str) -> list[Case]:
    """Six runs before the judged ones, with far more rows, and judged ones with far more rows than the six."""

    def change(before: int, judged: int) -> Change:
        def runs(rows: Rows) -> None:
            earlier = [run_of("silver", "silver.transactions", number, number, input=before, output=before) for number in range(-6, 0)]
            rows["control.batches"].extend([*earlier, run_of("silver", "silver.transactions", 2, 2, input=judged, output=judged)])

        return runs

    return [
        case(table, "volume_percent", change(before=1000, judged=0), "-few-warning"),
        case(table, "volume_percent", change(before=2, judged=1000), "-many-warning"),
    ]


def strangers(count: int, **known: str) -> Change:
    """Valid transactions of accounts and customers that nobody knows; `known` are ids that somebody does."""

    def change(rows: Rows) -> None:
        for number in range(count):
            coordinates = at(2, number, 2)
            rows["bronze.transactions"].append(bronze(coordinates, b"T", b"{}"))
            rows["silver.transactions"].append(transaction(1000 + number, coordinates, "Debit", "1.00", who=77, hour=12) | known)

    return change


def many_conflicting(others: int, conflicting: int = 100) -> Change:
    """Duplicates of one transaction, of which some conflict with it."""

    def change(rows: Rows) -> None:
        duplicates = rows["silver.transactions_duplicates"]
        first = duplicates[0]
        for number in range(conflicting + others):
            duplicates.append(first | at(0, 1000 + number, 2) | {"is_conflicting": number < conflicting})

    return change


def stale(rows: Rows) -> None:
    """A second more than a day old, as Kafka says."""
    for row in rows["bronze.transactions"]:
        row["_timestamp"] = LOADED - timedelta(days=1, seconds=1)
