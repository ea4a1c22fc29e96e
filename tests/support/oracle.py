"""What every table must hold, computed once more from the bronze rows: plain Python, Decimal, nothing of `spark_jobs`.

Whether a message is valid is known from what the producer did to it (header `ledger-injected`), not judged again.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import groupby
from typing import Any

Row = dict[str, Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COORDINATES = ("_topic", "_partition", "_offset")
CONTENT = ("account_id", "customer_id", "event_at", "type", "operation", "amount", "balance")
LATENESS = timedelta(seconds=10)
SNAKE = {"fullName": "full_name", "birthDate": "birth_date", "creationDate": "creation_date", "districtId": "district_id"}


def injected(row: Row) -> str | None:
    """What the producer did to a message, as its header says."""
    headers = {header["key"]: header["value"].decode() for header in row["headers"] or ()}
    return headers.get("ledger-injected")


def broken_rule(row: Row) -> str | None:
    done = injected(row) or ""
    return done.removeprefix("malformed:") if done.startswith("malformed:") else None


def arrival(row: Row) -> tuple[int, str, int, int]:
    return row["_batch"], row["_topic"], row["_partition"], row["_offset"]


def place(row: Row) -> tuple[str, int, int]:
    return row["_topic"], row["_partition"], row["_offset"]


def at(epoch_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=int(epoch_ms))


class Transactions:
    """Bronze transactions split as the contract says: `first`, `duplicates`, `quarantine`, and `late` beside them."""

    def __init__(self, bronze: Iterable[Row]) -> None:
        self.first: dict[str, Row] = {}
        self.duplicates: list[Row] = []
        self.quarantine: list[Row] = []
        self.late: list[Row] = []
        newest: datetime | None = None
        for _, batch in groupby(sorted(bronze, key=arrival), key=lambda row: int(row["_batch"])):
            watermark = newest - LATENESS if newest else None
            for row in batch:
                if rule := broken_rule(row):
                    self.quarantine.append({"key": row["key"], "value": row["value"], "broken_rules": [rule], **coordinates(row)})
                    continue
                valid = transaction(row)
                newest = max(newest or valid["event_at"], valid["event_at"])
                self._take(valid, watermark)

    def _take(self, row: Row, watermark: datetime | None) -> None:
        first = self.first.setdefault(row["transaction_id"], row)
        if first is not row:
            where = dict(zip(("first_topic", "first_partition", "first_offset"), place(first), strict=True))
            conflicting = any(row[name] != first[name] for name in CONTENT)
            self.duplicates.append({"transaction_id": row["transaction_id"], "is_conflicting": conflicting, **where, **coordinates(row)})
        elif watermark and row["event_at"] < watermark:
            seconds = Decimal((watermark - row["event_at"]) // timedelta(microseconds=1)) / 1_000_000
            late = {"transaction_id": row["transaction_id"], "event_at": row["event_at"], "watermark_at": watermark}
            self.late.append({**late, "late_by_seconds": seconds, **coordinates(row)})


def coordinates(row: Row) -> Row:
    return {name: row[name] for name in (*COORDINATES, "_batch")}


def transaction(row: Row) -> Row:
    fields = json.loads(row["value"], parse_float=Decimal, parse_int=Decimal)
    event_at = at(fields["eventTime"])
    return {
        "transaction_id": fields["transactionId"],
        "account_id": fields["accountId"],
        "customer_id": fields["customerId"],
        "event_at": event_at,
        "event_on": event_at.date(),
        "type": fields["type"],
        "operation": fields.get("operation") or None,
        "amount": fields["amount"],
        "balance": fields["balance"],
        **coordinates(row),
    }


class Dimension:
    """The history of a dimension (`versions`), its `quarantine`, and how many messages made no version."""

    def __init__(self, bronze: Iterable[Row], key: str, columns: Iterable[str]) -> None:
        self._key = key
        self._content = [name for name in columns if name not in (key, "valid_from", "valid_to", "is_current", *COORDINATES, "_batch")]
        self.versions: list[Row] = []
        self.quarantine: list[Row] = []
        messages: dict[str, dict[datetime, Row]] = defaultdict(dict)
        for row in sorted(bronze, key=arrival):
            if rule := broken_rule(row):
                self.quarantine.append({"key": row["key"], "value": row["value"], "broken_rules": [rule], **coordinates(row)})
            else:
                message = self._message(row)
                messages[message[key]][message["valid_from"]] = message  # of one time the last arrival stays
        for by_time in messages.values():
            self.versions.extend(self._history([by_time[moment] for moment in sorted(by_time)]))

    def _message(self, row: Row) -> Row:
        fields = {SNAKE.get(name, name): value for name, value in json.loads(row["value"] or "{}").items()}
        known: Row = {name: fields.get(name) for name in self._content}
        for name in ("birth_date", "creation_date"):
            if fields.get(name):
                known[name] = date.fromisoformat(fields[name])
        if fields.get("district_id") is not None:
            known["district_id"] = int(fields["district_id"])
        since = row["_timestamp"] if row["value"] is None else at(fields["updateTime"])
        return {**known, self._key: row["key"].decode(), "valid_from": since, "is_deleted": row["value"] is None, **coordinates(row)}

    def _history(self, messages: list[Row]) -> list[Row]:
        kept: list[Row] = []
        for message in messages:
            same = kept[-1] if kept else {**dict.fromkeys(self._content), "is_deleted": True}
            if any(message[name] != same[name] for name in self._content):
                kept.append(message)
        ends = [*(row["valid_from"] for row in kept[1:]), None]
        return [{**row, "valid_to": end, "is_current": end is None} for row, end in zip(kept, ends, strict=False)]


def daily_totals(rows: Iterable[Row]) -> list[Row]:
    totals: dict[tuple[date, str], list[Decimal]] = defaultdict(list)
    for row in rows:
        totals[row["event_on"], row["type"]].append(row["amount"])
    return [
        {
            "window_start": datetime(day.year, day.month, day.day, tzinfo=UTC),
            "window_end": datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1),
            "type": kind,
            "transactions": len(amounts),
            "amount": sum(amounts),
        }
        for (day, kind), amounts in totals.items()
    ]


def customer_activity(rows: Iterable[Row]) -> list[Row]:
    return [
        {
            "customer_id": customer,
            "first_event_at": min(row["event_at"] for row in own),
            "last_event_at": max(row["event_at"] for row in own),
            **sums(own),
        }
        for customer, own in grouped(rows, "customer_id").items()
    ]


def account_balances(rows: Iterable[Row]) -> list[Row]:
    balances = []
    for account, own in grouped(rows, "account_id").items():
        last = max(own, key=lambda row: (row["event_at"], arrival(row)))
        balances.append(
            {"account_id": account, "balance": last["balance"], "last_event_at": last["event_at"], **sums(own), **coordinates(last)}
        )
    return balances


def enriched(rows: Iterable[Row], customers: Iterable[Row]) -> list[Row]:
    history = grouped(customers, "customer_id")
    return [{**row, **customer_of(row, history.get(row["customer_id"], []))} for row in rows]


def customer_of(row: Row, history: list[Row]) -> Row:
    then = [one for one in history if one["valid_from"] <= row["event_at"] and (not one["valid_to"] or row["event_at"] < one["valid_to"])]
    names = ("customer_full_name", "customer_city", "customer_state", "customer_version_from")
    if not then or then[0]["is_deleted"]:
        return {**dict.fromkeys(names), "customer_status": "deleted" if then else "unknown"}
    (one,) = then
    masked = " ".join(word[:1] + "*" * (len(word) - 1) for word in one["full_name"].split(" "))
    return {**dict(zip(names, (masked, one["city"], one["state"], one["valid_from"]), strict=True)), "customer_status": "matched"}


def grouped(rows: Iterable[Row], name: str) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[name]].append(row)
    return groups


def sums(rows: list[Row]) -> Row:
    by_type = {kind: sum((row["amount"] for row in rows if row["type"] == kind), Decimal(0)) for kind in ("Credit", "Debit")}
    return {"transactions": len(rows), "credits": by_type["Credit"], "debits": by_type["Debit"]}
