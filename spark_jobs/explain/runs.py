"""Which runs brought the rows of a cell, by which rules, and which of the rows came only when the cell was there already."""

import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from spark_jobs import control
from spark_jobs.control import backfills
from spark_jobs.explain.snapshot import Row, Snapshot
from spark_jobs.lake import tables
from spark_jobs.lake.tables import Table

Place = tuple[str, int, int]
_AFTER_ALL = 2**62


def place_of(row: Row) -> Place:
    """The Kafka coordinates of a row."""
    return row["_topic"], row["_partition"], row["_offset"]


@dataclass(frozen=True)
class GoldRun:
    """A run of gold for one table, in the order of runs."""

    run_id: str
    first_batch: int
    last_batch: int
    versions: dict[str, int]  # of silver's tables, as it read them
    row: Row


@dataclass
class Runs:
    """The record of runs that a snapshot has, for one gold table."""

    snapshot: Snapshot
    table: Table

    @cached_property
    def _batches(self) -> list[Row]:
        return self.snapshot.batches((self.table.name, *(table.name for table in tables.FOLLOWERS)))

    @cached_property
    def gold(self) -> list[GoldRun]:
        """Gold's runs, the first one first: what they read, and their batches, only rise."""
        rows = [row for row in self._batches if row["job"] == "gold" and row["table"] == self.table.name]
        return [
            GoldRun(row["run_id"], row["first_batch"] or 0, row["last_batch"], json.loads(row["_read_versions"] or "{}"), row)
            for row in sorted(rows, key=control.when_it_ended)
        ]

    @cached_property
    def redriven(self) -> dict[tuple[str, Place], Row]:
        """What re-drives have put in place, the last one of each record, by silver table and place."""
        rows = sorted(self.snapshot.redrives(), key=lambda row: row["_silver_version"] or 0)
        return {(row["table"], place_of(row)): row for row in rows if row["outcome"] != "quarantine"}

    def correction(self, redrive: Row) -> Row | None:
        """Who corrected the value that a re-drive judged, and why."""
        given = control.read(self.snapshot.settings, tables.CORRECTIONS).to_pylist()
        rows = [row for row in given if place_of(row) == place_of(redrive) and row["corrected_at"] <= redrive["redriven_at"]]
        return max(rows, key=lambda row: row["corrected_at"], default=None)

    def silver_run(self, table: Table, batch: int) -> Row | None:
        """The run of silver that took a batch of a table."""
        rows = self._silver[table.name]
        place = bisect_left(rows, batch, key=lambda row: row["last_batch"])
        return rows[place] if place < len(rows) and rows[place]["first_batch"] <= batch else None

    def gold_run(self, table: Table, batch: int, place: Place) -> int | None:
        """The number, in order, of the first run of gold that read a row of a silver table; None where none has recorded it."""
        if redrive := self.redriven.get((table.name, place)):
            return self._first(lambda run: run.versions.get(table.name, _AFTER_ALL) >= (redrive["_silver_version"] or 0))
        if table == tables.SILVER_TRANSACTIONS:
            return self.gold_run_of_batch(batch)
        silver = self.silver_run(table, batch)  # gold counts no batches of customers and accounts: by the times of the runs
        if silver is None or silver["finished_at"] is None:
            return None
        return self._first(lambda run: run.row["finished_at"] is not None and run.row["finished_at"] >= silver["finished_at"])

    def gold_run_of_batch(self, batch: int) -> int | None:
        """The number of the first run of gold that answered for a batch of transactions."""
        place = bisect_left(self.gold, batch, key=lambda run: run.last_batch)
        return place if place < len(self.gold) and self.gold[place].first_batch <= batch else None

    def steps_within(self, first: datetime, last: datetime) -> list[Row]:
        """The steps of backfills that rebuilt a part of a range of event times, both ends included, in their order."""
        rows = [row for row in self.snapshot.backfills() if row["part"] == backfills.TRANSACTIONS]
        return sorted((row for row in rows if row["step_start"] <= last and row["step_end"] > first), key=lambda row: row["number"])

    @cached_property
    def _silver(self) -> dict[str, list[Row]]:
        return {
            table.name: [row for row in self._batches if (row["job"], row["table"]) == ("silver", table.name)] for table in tables.FOLLOWERS
        }

    def _first(self, is_it: Callable[[GoldRun], bool]) -> int | None:
        return next((number for number, run in enumerate(self.gold) if is_it(run)), None)


def ranges(numbers: Sequence[int]) -> str:
    """Numbers as ranges: `1 to 3, 7`."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in found)
