"""A second opinion in plain Python: what gold must be for given silver rows. Shares no code with the jobs."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

Row = dict[str, Any]
Found = Counter[tuple[Any, ...]]

PLACE = ("_topic", "_partition", "_offset", "_batch")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE, _HOUR, _DAY, _WEEK = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1), timedelta(days=7)


def model(rows: list[Row], accounts: list[Row], customers: list[Row], large: Decimal) -> dict[str, Found]:
    """The rows of gold's tables, each with how often it is there, by table."""
    return {
        "gold.daily_totals": totals(rows, lambda at: [(floor(at, _DAY), floor(at, _DAY) + _DAY)]),
        "gold.sliding_totals": totals(rows, sliding),
        "gold.cumulative_totals": totals(rows, cumulative),
        "gold.customer_sessions": Counter(sessions(rows)),
        "gold.weekly_top_customers": Counter(weekly_top(rows)),
        "gold.customer_activity": Counter(activity(rows)),
        "gold.account_balances": Counter(balances(rows)),
        "gold.account_days": Counter(account_days(rows)),
        "gold.enriched_transactions": Counter(enriched(rows, customers)),
        "gold.large_credits": Counter(
            pick(row, "transaction_id", "event_at", "account_id", "customer_id", "amount", "balance", *PLACE)
            for row in rows
            if row["type"] == "Credit" and row["amount"] > large
        ),
        "gold.debit_credit_pairs": Counter(pairs(rows)),
        "gold.district_minutes": Counter(district_minutes(rows, accounts)),
        "gold.debit_share": Counter(debit_share(rows)),
    }


def pick(row: Row, *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by some of their values; those of one value by time and arrival."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: pick(row, "event_at", "_batch", "_topic", "_partition", "_offset")):
        groups[pick(row, *names)].append(row)
    return groups


def booked(rows: list[Row]) -> tuple[Decimal, Decimal]:
    """The sums of credits and of debits."""
    credits_, debits = (sum((row["amount"] for row in rows if row["type"] == kind), Decimal(0)) for kind in ("Credit", "Debit"))
    return credits_, debits


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


def activity(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    return [(*key, len(own), *booked(own), own[0]["event_at"], own[-1]["event_at"]) for key, own in grouped(rows, "customer_id").items()]


def balances(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    return [
        (*key, *pick(own[-1], "balance", "event_at"), *booked(own), len(own), *pick(own[-1], *PLACE))
        for key, own in grouped(rows, "account_id").items()
    ]


def account_days(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    found = []
    closings: dict[str, Decimal] = {}  # of the account's day before
    for (account, day), own in sorted(grouped(rows, "account_id", "event_on").items()):
        opening, closing, (credits_, debits) = closings.get(account), own[-1]["balance"], booked(own)
        difference = None if opening is None else closing - (opening + credits_ - debits)
        found.append((account, day, opening, closing, credits_, debits, len(own), difference))
        closings[account] = closing
    return found


def version_then(row: Row, key: str, versions: list[Row]) -> Row | None:
    """The version of a customer or account that holds at the time of a row."""
    for version in versions:
        begins, ends = version["valid_from"], version["valid_to"]
        if version[key] == row[key] and begins <= row["event_at"] and (not ends or row["event_at"] < ends):
            return version
    return None


def enriched(rows: Iterable[Row], customers: list[Row]) -> list[tuple[Any, ...]]:
    """Customers of this model have one letter for a name and are never deleted."""
    own = ("transaction_id", "account_id", "customer_id", "event_at", "event_on", "type", "operation", "amount", "balance")
    found = []
    for row in rows:
        customer = version_then(row, "customer_id", customers)
        told = (*pick(customer, "full_name", "city", "state", "valid_from"), "matched") if customer else (*[None] * 4, "unknown")
        found.append((*pick(row, *own), *told, *pick(row, *PLACE)))
    return found


def district_minutes(rows: Iterable[Row], accounts: list[Row]) -> list[tuple[Any, ...]]:
    def district(row: Row) -> int:
        version = version_then(row, "account_id", accounts)
        return -1 if version is None or version["district_id"] is None else int(version["district_id"])

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
