"""Runs of the silver job over three batches: homes, copies of them, and deaths."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spark_jobs.lake import tables
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.lake import arrive, rows_of
from tests.support.three_batches import Batches


def settings_of(home: Path) -> Settings:
    return read_settings({"LEDGER_HOME": str(home)})


def fill(settings: Settings, *batches: tuple[int, Batches]) -> None:
    for batch, records in batches:
        for topic, rows in records.items():
            arrive(settings, topic, batch, rows)


def copied(settings: Settings, home: Path) -> Settings:
    shutil.copytree(settings.home, home)
    return settings_of(home)


class KilledError(Exception):
    """In place of the end of the process."""


Die = Callable[[Callable[[str], bool]], list[str]]
WRITES = [
    *(table.name for table in (*tables.SILVER, *tables.SILVER_INDEXES) if "accounts" not in table.name),
    *(f"batches of silver.{topic}" for topic in ("transactions", "customers")),
]


def places(settings: Settings, table: tables.Table) -> set[tuple[Any, ...]]:
    return {(row["_partition"], row["_offset"]) for row in rows_of(settings, table)}
