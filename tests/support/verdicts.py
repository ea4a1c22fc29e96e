"""Verdicts for tests, with what does not matter filled in."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from spark_jobs.control.verdicts import Verdict

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
RUN = "scheduled__2026-11-20T12:00:00+00:00"


def verdict(table: str = "silver.transactions", **facts: Any) -> Verdict:
    """One that passed, at version 3 over batches 1 to 2."""
    common = Verdict(table, table.split(".")[0], RUN, 3, True, 4, (), "file:///quality/data_docs/8.html", 1, 2, NOW)
    return replace(common, **facts)
