"""A gate after a step of a backfill: it judges what the step rebuilt, neither more nor less."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_jobs.control import backfills, rebuilt
from spark_jobs.control.backfills import TRANSACTIONS, Step
from spark_jobs.control.scope import find_written
from spark_jobs.control.verdicts import newest_verdicts
from spark_jobs.lake.tables import LAYERS
from spark_jobs.releases import decisions, gates
from spark_jobs.runtime.errors import GateClosed
from spark_jobs.runtime.settings import Settings
from tests.support.warehouse import LOADED, Row, at, bronze, quarantined, run_of, table_named, transaction, write

pytestmark = pytest.mark.xdist_group("expectations")
Copy = Callable[[], Settings]

START, END = datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 3, tzinfo=UTC)
SILVER = [table for table in LAYERS["silver"] if table.topic == "transactions"]
OLD, LIVE = 100, 400  # records of the range that is rebuilt, and of a later batch
NEW_AND_OLD = range(10, 10 + OLD)


class Killed(Exception):
    """A step ended where a test wanted it to."""


@pytest.fixture
def settings(copy_home: Copy) -> Settings:
    """Batch 3 has brought 100 records, which are to be rebuilt, batch 4 another 400; all of them are valid, and judged good."""
    found = copy_home()
    arrive(found, 3, NEW_AND_OLD)
    arrive(found, 4, range(1000, 1000 + LIVE))
    judge(found, 1)
    return found


def arrive(settings: Settings, batch: int, offsets: range) -> None:
    records = [bronze(at(2, offset, batch), b"T", b"{}") for offset in offsets]
    run = run_of("silver", "silver.transactions", batch, batch, input=len(records), output=len(records))
    write(settings, {"bronze.transactions": records, "silver.transactions": valid(batch, offsets), "control.batches": [run]})


def valid(batch: int, offsets: range, amount: str = "1.00") -> list[Row]:
    return [transaction(10_000 + offset, at(2, offset, batch), "Debit", amount, who=1, hour=12) for offset in offsets]


def judge(settings: Settings, number: int) -> None:
    gates.run(settings, "silver", f"run-{number}", now=LOADED + timedelta(minutes=number))


def versions(settings: Settings) -> dict[str, int]:
    return {table.name: DeltaTable(str(table.path(settings))).version() for table in SILVER}


def rebuild(settings: Settings, batch: int, broken: range, places: list[Row], amount: str = "1.00", *, dies: bool = False) -> None:
    """What a step does that finds some records of a batch broken, and gives all the others this amount."""
    before, asked = versions(settings), backfills.find_or_start(settings, START, END, ("silver.transactions",), {}, "backfill")
    step = Step(asked, TRANSACTIONS, START, END)
    backfills.begin(settings, step, "backfill", before)
    rest = [row for row in valid(batch, NEW_AND_OLD, amount) if row["_offset"] not in broken]
    moved = [quarantined(at(2, offset, batch), b"T", b"{}") for offset in broken]
    with rebuilt.noted(settings, "transactions", lambda folder: note(folder, places)):
        DeltaTable(str(table_named("silver.transactions").path(settings))).delete(f"_batch = {batch}")
        if dies:
            raise Killed
        write(settings, {"silver.transactions": rest, "silver.transactions_quarantine": moved})
    after = versions(settings)
    backfills.end(settings, step, "backfill", rows=len(places), changed=OLD, last_batch=4, versions=after)


def note(folder: Path, places: list[Row]) -> None:
    schema = pa.schema([("_topic", pa.string()), ("_partition", pa.int32()), ("_offset", pa.int64())])
    write_deltalake(str(folder), pa.Table.from_pylist(places, schema), mode="append")


def noted(settings: Settings) -> int | None:
    """How many records the gate is to judge; None where it judges all batches."""
    folders = {written.rebuilt for written in find_written(settings, "silver")[0] if written.table in SILVER}
    assert len(folders) == 1
    folder = folders.pop()
    return DeltaTable(str(folder)).to_pyarrow_table().num_rows if folder else None


def in_range() -> list[Row]:
    return [{name: value for name, value in at(2, offset, 3).items() if name != "_batch"} for offset in NEW_AND_OLD]


def test_the_records_of_the_range_are_not_lost_among_all_others(settings: Settings) -> None:
    """60 of 100 are in quarantine: of all 507 records that would be a warning."""
    rebuild(settings, 3, NEW_AND_OLD[:60], in_range())
    with pytest.raises(GateClosed, match="quarantined_per_thousand: found 600, expected at most 500"):
        judge(settings, 2)
    with pytest.raises(GateClosed, match="quarantined_per_thousand: found 600"):  # nor when the gate is run again by hand
        judge(settings, 3)
    judged = newest_verdicts(settings)["silver.transactions"]
    assert (judged.first_batch, judged.last_batch, judged.cause) == (1, 4, ("run-2", LOADED + timedelta(minutes=2)))


def test_a_rebuild_is_not_closed_by_rows_of_another_time(settings: Settings) -> None:
    """Somebody has released a batch with a negative amount; a rebuild of other rows says nothing about it."""
    write(settings, {"silver.transactions": [transaction(9, at(2, 2000, 5), "Debit", "-1.00", who=1, hour=12)]})
    run = run_of("silver", "silver.transactions", 5, 5, input=1, output=1)
    write(settings, {"bronze.transactions": [bronze(at(2, 2000, 5), b"T", b"{}")], "control.batches": [run]})
    with pytest.raises(GateClosed, match="negative_amounts"):
        judge(settings, 2)
    decisions.decide(settings, "release anyway", "Ada", "known")
    rebuild(settings, 3, range(0), in_range(), amount="2.00")
    judge(settings, 3)
    judged = newest_verdicts(settings)["silver.transactions"]
    assert (judged.state, judged.last_batch) == ("passed", 5)


def test_every_row_that_a_step_wrote_is_judged(settings: Settings) -> None:
    rebuild(settings, 3, range(0), in_range(), amount="-2.00")
    with pytest.raises(GateClosed, match="negative_amounts: found 100"):
        judge(settings, 2)


def test_all_is_judged_where_more_was_written_than_is_noted(settings: Settings) -> None:
    rebuild(settings, 3, NEW_AND_OLD[:60], in_range())
    write(settings, {"silver.transactions_duplicates": []})  # a commit without rows says nothing
    assert {written.rebuilt is None for written in find_written(settings, "silver")[0] if written.table in SILVER} == {False}
    amount = {"amount": Decimal("-3.00")}
    write(settings, {"silver.transactions": [transaction(9, at(2, 2001, 4), "Debit", "1.00", who=1, hour=12) | amount]})
    assert {written.rebuilt for written in find_written(settings, "silver")[0] if written.table in SILVER} == {None}
    with pytest.raises(GateClosed, match="negative_amounts: found 1"):
        judge(settings, 2)


def test_the_steps_since_the_last_verdict_are_judged_together(settings: Settings) -> None:
    rebuild(settings, 3, range(0), in_range()[:40], amount="2.00")
    assert noted(settings) == 40
    rebuild(settings, 3, range(0), in_range()[40:], amount="3.00")
    assert noted(settings) == 100
    judge(settings, 2)
    rebuild(settings, 3, range(0), in_range()[:1], amount="4.00")
    assert noted(settings) == 1


def test_a_step_that_dies_leaves_nothing_that_counts(settings: Settings) -> None:
    with pytest.raises(Killed):
        rebuild(settings, 3, range(0), in_range(), dies=True)
    assert noted(settings) is None
    backfills.end(settings, backfills.halfway(settings) or pytest.fail("no step"), "x", rows=1, changed=1, last_batch=4, versions={})
    rebuild(settings, 3, range(0), in_range())  # the repetition finds less to do than was done
    assert noted(settings) is None


def test_new_batches_are_judged_with_all_that_was_rebuilt(settings: Settings) -> None:
    rebuild(settings, 3, range(0), in_range(), amount="2.00")
    arrive(settings, 5, range(3000, 3001))
    scopes = {(written.first_batch, written.last_batch, written.rebuilt) for written in find_written(settings, "silver")[0]}
    assert (1, 5, None) in scopes
