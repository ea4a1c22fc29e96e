"""One part of the proof, run with the copy of the checkout that it is started in: `python -m tests.spark.gold.added.run HOME PART`."""

import sys

from spark_jobs.runtime.settings import Settings
from tests.support import added, lake, waves
from tests.support.rows import Record, message

EARLY = {"eventTime": 1356998400000, "customerId": "C00000001", "accountId": "A00000001"}  # 2013-01-01, in its first minute
RELEASE = ("gate bronze", "gate silver", "gold", "gate gold", "release")
PARTS = {
    "the table": (
        *("first", "silver", *RELEASE),  # built from nothing
        *("late", "silver", *RELEASE, "audit"),  # changed by a late row
        *("backfill --start 2013-01-01 --end 2013-01-03", "audit", "audit --as-of 2"),
        "explain --table gold.operation_totals --where transactions>1",
    ),
    "its broken twin": ("gold", "late", "silver", "gold", "audit"),
}


def arrive(settings: Settings, wave: str) -> None:
    """A wave of records enters bronze: the first, or one transaction that is late."""
    found: dict[str, list[Record]] = {"transactions": [message("transactions", **EARLY, transactionId=f"late-{lake_size(settings)}")]}
    if wave == "first":
        messages = waves.split_plan()[0]
        found = {topic: [(each.key, each.value) for each in messages if each.topic == topic] for topic in lake.BRONZE}
    added.arrive(settings, found)


def lake_size(settings: Settings) -> int:
    """How many transactions bronze has."""
    return len(lake.rows_of(settings, lake.BRONZE["transactions"]))


if __name__ == "__main__":
    sys.exit(added.run_part(sys.argv[1:], PARTS, dict.fromkeys(("first", "late"), arrive)))
