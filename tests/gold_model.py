"""A second opinion in plain Python: what gold must be for given silver rows. Shares no code with the jobs."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

Row = dict[str, Any]
Found = Counter[tuple[Any, ...]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE, _HOUR, _DAY, _WEEK = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1), timedelta(days=7)


def model(rows: list[Row], accounts: list[Row], large: Decimal) -> dict[str, Found]:
    """The rows of gold's tables over windows, sessions, pairs and minutes, each with how often it is there, by table."""
    return {
        "gold.daily_totals": totals(rows, lambda at: [(floor(at, _DAY), floor(at, _DAY) + _DAY)]),
        "gold.sliding_totals": totals(rows, sliding),
        "gold.cumulative_totals": totals(rows, cumulative),
        "gold.customer_sessions": Counter(sessions(rows)),
        "gold.weekly_top_customers": Counter(weekly_top(rows)),
        "gold.large_credits": Counter(
            tuple(row[name] for name in ("transaction_id", "event_at", "account_id", "customer_id", "amount", "balance"))
            + tuple(row[name] for name in ("_topic", "_partition", "_offset", "_batch"))
            for row in rows
            if row["type"] == "Credit" and row["amount"] > large
        ),
        "gold.debit_credit_pairs": Counter(pairs(rows)),
        "gold.district_minutes": Counter(district_minutes(rows, accounts)),
        "gold.debit_share": Counter(debit_share(rows)),
    }


def floor(at: datetime, width: timedelta) -> datetime:
    return _EPOCH + ((at - _EPOCH) // width) * width


def sliding(at: datetime) -> list[tuple[datetime, datetime]]:
    last = floor(at, 2 * _HOUR)
    return [(last - number * 2 * _HOUR, last - number * 2 * _HOUR + _DAY) for number in range(12)]


def cumulative(at: datetime) -> list[tuple[datetime, datetime]]:
    day = floor(at, _DAY)
    return [(day, day + end * _HOUR) for end in range(2, 25, 2) if at < day + end * _HOUR]


def totals(rows: Iterable[Row], windows: Callable[[datetime], list[tuple[datetime, datetime]]]) -> Found:
    sums: dict[tuple[datetime, datetime, str], tuple[int, Decimal]] = defaultdict(lambda: (0, Decimal(0)))
    for row in rows:
        for window in windows(row["event_at"]):
            count, amount = sums[*window, row["type"]]
            sums[*window, row["type"]] = count + 1, amount + row["amount"]
    return Counter((*key, *value) for key, value in sums.items())


def sessions(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Rows of a customer one by one in time: each goes on with the session or starts a new one."""
    found: list[tuple[Any, ...]] = []
    for row in sorted(rows, key=lambda row: (row["customer_id"], row["event_at"])):
        customer, at, amount = row["customer_id"], row["event_at"], row["amount"]
        if found and found[-1][0] == customer and at < found[-1][2]:
            _, start, _, count, sum_ = found[-1]
            found[-1] = (customer, start, at + 12 * _HOUR, count + 1, sum_ + amount)
        else:
            found.append((customer, at, at + 12 * _HOUR, 1, amount))
    return found


def weekly_top(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    weeks: dict[datetime, Counter[str]] = defaultdict(Counter)
    for row in rows:
        weeks[floor(row["event_at"], _WEEK)][row["customer_id"]] += 1
    return [
        (week, week + _WEEK, rank, customer, count)
        for week, counts in weeks.items()
        for rank, (customer, count) in enumerate(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3], start=1)
    ]


def pairs(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [
        (debit["transaction_id"], credit["transaction_id"], debit["customer_id"], debit["event_at"], credit["event_at"])
        for debit in rows
        for credit in rows
        if (debit["type"], credit["type"]) == ("Debit", "Credit")
        and debit["customer_id"] == credit["customer_id"]
        and timedelta(0) <= credit["event_at"] - debit["event_at"] <= _HOUR
    ]


def district_minutes(rows: Iterable[Row], accounts: list[Row]) -> list[tuple[Any, ...]]:
    def district(row: Row) -> int:
        for version in accounts:
            ends = version["valid_to"]
            if (
                version["account_id"] == row["account_id"]
                and version["valid_from"] <= row["event_at"]
                and (not ends or row["event_at"] < ends)
            ):
                return -1 if version["district_id"] is None else int(version["district_id"])
        return -1

    sums: dict[tuple[datetime, int], tuple[int, Decimal]] = {}
    for row in rows:
        key = (floor(row["event_at"], _MINUTE), district(row))
        count, amount = sums.get(key, (0, Decimal(0)))
        sums[key] = count + 1, amount + row["amount"]

    def average(minute: datetime, where: int) -> Decimal:
        return Decimal(sum(sums.get((minute - number * _MINUTE, where), (0,))[0] for number in range(5))) / 5

    return [(*key, *value, average(*key)) for key, value in sums.items()]


def debit_share(rows: list[Row]) -> list[tuple[Any, ...]]:
    found = []
    for day in sorted({row["event_at"].date() for row in rows}):
        kinds = Counter(row["type"] for row in rows if row["event_at"].date() <= day)
        share = Decimal(100 * kinds["Debit"]) / Decimal(kinds.total())
        found.append((day, kinds["Debit"], kinds["Credit"], share.quantize(Decimal("0.0001"), ROUND_HALF_UP)))
    return found
