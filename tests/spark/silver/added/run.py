"""One part of the proof, run with the copy of the checkout that it is started in: `python -m tests.spark.silver.added.run HOME PART`."""

import json
import sys
from collections import Counter
from pathlib import Path

from deltalake import DeltaTable

from expectations.row_rules import read_rules
from include.producer import Disturbances, file_sources, plan_messages
from spark_jobs.kafka.topics import SOURCE_TOPICS
from spark_jobs.lake.tables import BATCHES
from spark_jobs.lake.topics import BY_TOPIC
from spark_jobs.runtime.settings import Settings
from tests.support import added, lake
from tests.support.frames import at, to_json
from tests.support.rows import Record, message

NEW = ("card_payments", "branches")
FILES = Path(__file__).parent
RELEASE = ("gate bronze", "gate silver", "gold", "gate gold", "release")
RANGE = "--start 2013-01-01 --end 2013-01-03 --tables silver.card_payments silver.branches"
PARTS = {
    "the topics": (
        *("first", "silver", *RELEASE, "check first"),
        *("second", "silver", "gate bronze", "gate silver", "check second"),
        *("corrections", "redrive --rule amount_positive --corrections corrections.jsonl", "check redriven"),
        *("file", "import --topic card_payments --name before --file before.csv", "silver", "check imported"),
        *("rules", f"backfill {RANGE} --dry-run", f"backfill {RANGE}", "check backfilled"),
        *(*RELEASE, "audit", "audit --as-of 2"),
    ),
    "a broken twin, and a row that was changed": ("corrupt", "twin", "silver", "audit"),
}
EARLY, LATE = 1357034400000, 1356998400000  # 2013-01-01 10:00 and 00:00


def payment(number: int, paid: int = EARLY, **changes: object) -> Record:
    """A card payment."""
    fields = {"paymentId": f"P{number}", "cardId": "K1", "merchant": "Inn", "paidTime": paid, "bookedTime": paid + 1, "amount": 5}
    return f"P{number}".encode(), to_json(**{**fields, "installments": 1, **changes})


def branch(key: str, city: str, day: int) -> Record:
    """A message about a branch, of a day of January 2013."""
    return key.encode(), to_json(branchId=key, city=city, employees=1, openedDate=None, updateTime=LATE + day * 86_400_000)


WAVES: dict[str, dict[str, list[Record]]] = {
    "second": {
        # a duplicate that conflicts, one that is equal to another, a late row, rows that break rules
        "card_payments": [payment(1), payment(7), payment(7), payment(8, LATE), payment(9, amount=0), (b"P10", b"{"), (b"P11", None)],
        # a change, the same again, one that holds before, one that is superseded, a deletion, one of an unknown key, one that breaks a rule
        "branches": [
            *(branch("B1", "Zlin", 9), branch("B1", "Zlin", 10), branch("B1", "Telc", 5), branch("B3", "B", 3), branch("B3", "A", 3)),
            *((b"B2", None), (b"B9", None), (b"B4", branch("B5", "Most", 1)[1])),
        ],
    },
    "twin": {"card_payments_twin": [payment(1), payment(2, merchant="")]},
}


def arrive(settings: Settings, wave: str) -> None:
    """A wave of records enters bronze: the first as the producer makes it of CSV files, others by hand."""
    found = WAVES.get(wave, {})
    if wave == "first":
        messages = list(plan_messages(file_sources(FILES, NEW), Disturbances(duplicates=1, malformed=1, seed=3)))
        assert Counter(each.injected or "plain" for each in messages) >= Counter({"plain": 7, "duplicate": 7, "malformed:parseable": 7})
        found = {topic: [(each.key, each.value) for each in messages if each.topic == topic] for topic in NEW}
        found |= {topic: [message(topic)] for topic in ("transactions", "customers", "accounts")}
        cleanup = {topic.name: (topic.partitions, topic.config.get("cleanup.policy")) for topic in SOURCE_TOPICS}
        assert (cleanup["card_payments"], cleanup["branches"]) == ((2, None), (1, "compact"))
    added.arrive(settings, found)


def prepare(settings: Settings, step: str) -> None:
    """What a user has before a command: files, or changed rules; or a row that somebody changed by hand."""
    payments = BY_TOPIC["card_payments"]
    if step == "corrections":
        (row,) = (row for row in lake.rows_of(settings, payments.quarantine) if (row["key"], row["_batch"]) == (b"P9", 2))
        place = {"topic": row["_topic"], "partition": row["_partition"], "offset": row["_offset"]}
        line = {**place, "value": (payment(9, LATE)[1] or b"").decode(), "who": "me", "why": "typed wrongly"}
        Path("corrections.jsonl").write_text(json.dumps(line))
    elif step == "file":
        Path("before.csv").write_text("payment_id,event_at,amount\nP90,2012-06-01 00:00:00,3.00\nP1,2012-06-01 00:00:00,3.00\n")
    elif step == "rules":
        file = Path("expectations/rules/card_payments.yaml")
        file.write_text(file.read_text().replace('version: "1"', 'version: "2"').replace("amount.text <> '0'", "amount.text <> '7'"))
        read_rules.cache_clear()
    elif step == "corrupt":
        DeltaTable(str(payments.silver.path(settings))).update(updates={"amount": "13"}, predicate="payment_id = 'P1'")


def check(settings: Settings, line: str) -> None:
    """Compare what silver holds with what was sent; the line is `check` and the step before it."""
    step = line.removeprefix("check ")
    payments, branches = (BY_TOPIC[name] for name in NEW)
    held = {row["payment_id"]: row for row in lake.rows_of(settings, payments.silver)}
    late = {row["payment_id"] for row in lake.rows_of(settings, payments.late)}
    beside = [Counter(row["payment_id"] for row in lake.rows_of(settings, payments.duplicates))]
    beside.append(Counter(rule for row in lake.rows_of(settings, payments.quarantine) for rule in row["broken_rules"]))
    beside.append(Counter(row["payment_id"] for row in lake.rows_of(settings, payments.duplicates) if row["is_conflicting"]))
    first: tuple[dict[str, int], dict[str, int], dict[str, int]] = ({"P1": 1, "P2": 1, "P3": 1}, {"parseable": 4, "amount_positive": 2}, {})
    second = ({"P1": 2, "P2": 1, "P3": 1, "P7": 1}, {"parseable": 6, "amount_positive": 3}, {"P1": 1})
    redriven = (second[0], {"parseable": 6, "amount_positive": 2}, second[2])
    imported = ({**second[0], "P1": 3}, redriven[1], {"P1": 2})
    backfilled = ({"P1": 3, "P3": 1, "P7": 1}, {"parseable": 6, "amount_positive": 4}, {"P1": 2})
    expected = {"first": first, "second": second, "redriven": redriven, "imported": imported, "backfilled": backfilled}[step]
    assert [dict(each) for each in beside] == list(expected), beside
    ids: list[int] = {
        "first": list[int](),
        "second": [7, 8],
        "redriven": [7, 8, 9],
        "imported": [7, 8, 9, 90],
        "backfilled": [7, 8, 9, 90],
    }[step]
    assert held.keys() == {f"P{number}" for number in (1, *((2,) if step != "backfilled" else ()), 3, *ids)}
    assert late == {f"P{number}" for number in ids}
    assert {name: value for name, value in held["P1"].items() if name[0] != "_"} == {
        "payment_id": "P1",
        "card_id": "K1",
        "merchant": "Bakery",
        "installments": 1,
        "event_on": at("2013-01-01 00:00:00").date(),
        "event_at": at("2013-01-01 08:00:00"),
        "booked_time": at("2013-01-02 00:00:00"),
        "amount": held["P1"]["amount"],
    }
    assert str(held["P1"]["amount"]) == "12.50"
    found = lake.rows_of(settings, branches.silver)
    versions = sorted(((row["branch_id"], row["city"], row["valid_from"], row["is_current"]) for row in found), key=str)
    begun = at("2012-12-31 00:00:00")
    if step == "first":
        assert versions == [("B1", "Brno", begun, True), ("B2", "Ostrava", begun, True), ("B3", "Praha", begun, True)]
    else:
        assert [(key, city, start.day, is_current) for key, city, start, is_current in versions if key != "B2"] == [
            *(("B1", "Brno", 31, False), ("B1", "Telc", 6, False), ("B1", "Zlin", 10, True)),
            *(("B3", "B", 4, True), ("B3", "Praha", 31, False)),
        ]
        assert [(city, is_current) for key, city, _, is_current in versions if key == "B2"] == [("Ostrava", False), (None, True)]
    for row in lake.rows_of(settings, BATCHES):
        parts = [row[name] or 0 for name in ("output", "duplicates", "quarantined", "superseded", "no_change")]
        assert row["job"] != "silver" or row["input"] == sum(parts), row


if __name__ == "__main__":
    steps: dict[str, added.Step] = dict.fromkeys(("first", *WAVES), arrive)
    steps |= dict.fromkeys(("corrections", "file", "rules", "corrupt"), prepare)
    steps |= dict.fromkeys((line for line in PARTS["the topics"] if line.startswith("check ")), check)
    sys.exit(added.run_part(sys.argv[1:], PARTS, steps))
