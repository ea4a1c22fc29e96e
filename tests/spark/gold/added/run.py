"""One part of the proof, run with the copy of the checkout that it is started in: `python -m tests.spark.gold.added.run HOME PART`."""

import sys
from collections.abc import Sequence

import pytest

from spark_jobs import run
from spark_jobs.runtime import session
from spark_jobs.runtime.settings import Settings, read_settings
from tests.conftest import SMALL_FRAMES
from tests.support import lake, waves
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
    for topic, records in found.items():
        lake.arrive(settings, topic, 1 + max((row["_batch"] for row in lake.rows_of(settings, lake.BRONZE[topic])), default=0), records)


def lake_size(settings: Settings) -> int:
    """How many transactions bronze has."""
    return len(lake.rows_of(settings, lake.BRONZE["transactions"]))


def main(words: Sequence[str]) -> int:
    """Run a part command by command; the exit code is that of the first that fails."""
    home, part = words
    settings = read_settings({"LEDGER_HOME": home, "LEDGER_SPARK_MASTER": "local[2]"})
    spark = session.start_session(settings, "tests")
    for name, value in SMALL_FRAMES.items():
        spark.conf.set(name, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "read_settings", lambda: settings)
        patch.setattr(session, "start_session", lambda *_: spark)
        for line in PARTS[part]:
            if line in ("first", "late"):
                arrive(settings, line)
            elif code := run.main(line.split()):
                sys.stderr.write(f"{line}: exit code {code}\n")
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
