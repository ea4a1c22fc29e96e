"""What a stream makes of Spark's reports, and of batches that bring nothing new."""

import json
import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from spark_jobs.bronze.pace import FIRST
from spark_jobs.bronze.stream import Stream
from spark_jobs.lake.tables import BRONZE_TRANSACTIONS


def report(batch: int, milliseconds: int, *, is_of_batch: bool = True) -> Any:
    seconds = {"triggerExecution": milliseconds} | ({"addBatch": milliseconds} if is_of_batch else {})
    source = SimpleNamespace(endOffset=json.dumps({"transactions": {"0": 100}}))
    told = {"batchId": batch, "runId": "r", "durationMs": seconds, "sources": [source], "numInputRows": 0, "stateOperators": []}
    progress = SimpleNamespace(timestamp="2026-01-01T00:00:00.000Z", **told)
    return SimpleNamespace(lastProgress=progress, recentProgress=[progress])


def stream() -> Stream:
    return Stream(Mock(), Mock(), BRONZE_TRANSACTIONS, available_now=False, starting_offsets=None)


def test_a_report_without_a_batch_is_not_taken_for_the_batch_to_come() -> None:
    """It has that one's number, and some milliseconds."""
    found = stream()
    found._brought[7] = 90_000
    found._follow(report(7, 4, is_of_batch=False))
    assert (found.limit, list(found.pace.batches)) == (FIRST, [])
    found._follow(report(7, 9_000))
    assert [records for _, records, _ in found.pace.batches] == [90_000]
    assert found.costs.facts()["costs"]["rows"] == 90_000


def test_batches_that_bring_nothing_new_are_progress() -> None:
    """As after a lost checkpoint: who supervises it must not take it for stuck."""
    found = stream()
    found._progressed = time.time() - 400
    found._brought[1] = 1_000
    found._follow(report(1, 900))
    assert time.time() - found._progressed < 100
