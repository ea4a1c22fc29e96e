"""A person's decision about a closed gate: release anyway, roll back, wait. On Delta tables, without Spark."""

import logging
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_jobs import control
from spark_jobs.control import verdicts
from spark_jobs.lake import leases, versions as lake_versions
from spark_jobs.lake.tables import BATCHES, BRONZE, DECISIONS, GOLD, LAYERS, QUALITY_RESULTS, SILVER, Table
from spark_jobs.releases import decisions, gates, releases, rollback
from spark_jobs.reprocessing import backfill
from spark_jobs.runtime.errors import GateClosed, SettingsError
from spark_jobs.runtime.settings import Settings
from tests.support.warehouse import LOADED, at, bronze, good_rows, run_of, settings_of, transaction, write

Copy = Callable[[], Settings]


def run_gates(settings: Settings, number: int, *layers: str) -> list[str]:
    """Run gates one after another; those that were closed."""
    closed = []
    for layer in layers or LAYERS:
        try:
            gates.run(settings, layer, f"run-{number}", now=LOADED + timedelta(minutes=number))
        except GateClosed:
            closed.append(layer)
    return closed


def bad_batch(settings: Settings) -> None:
    """A third batch, whose only row has no place in silver."""
    write(
        settings,
        {
            "bronze.transactions": [bronze(at(1, 1, 3), b"T5", b"{}"), bronze(at(1, 2, 3), b"T6", b"{}")],
            "silver.transactions": [transaction(5, at(1, 1, 3), "Debit", "1.00", who=2, hour=12)],
            "control.batches": [run_of("silver", "silver.transactions", 3, 3, input=2, output=2)],
        },
    )


@pytest.fixture(scope="module")
def released(good_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Release 1, which every gate has passed; not to be written to."""
    settings = copied(settings_of(good_home), tmp_path_factory.mktemp("released"))
    assert run_gates(settings, 1) == []
    assert releases.publish(settings) == 1
    return settings


@pytest.fixture(scope="module")
def closed(released: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """After release 1 a batch at which silver's gate closed; not to be written to."""
    settings = copied(released, tmp_path_factory.mktemp("closed"))
    bad_batch(settings)
    assert run_gates(settings, 2, "bronze", "silver") == ["silver"]
    return settings


@pytest.fixture
def closed_home(closed: Settings, tmp_path: Path) -> Settings:
    """A copy of `closed`."""
    return copied(closed, tmp_path)


def copied(settings: Settings, folder: Path) -> Settings:
    shutil.copytree(settings.home, folder / "home")
    return settings_of(folder / "home")


def versions(settings: Settings, *tables: Table) -> dict[str, int]:
    return {table.name: DeltaTable(str(table.path(settings))).version() for table in tables}


def rows_of(settings: Settings, tables: tuple[Table, ...]) -> dict[str, list[str]]:
    return {table.name: sorted(map(repr, control.read(settings, table).to_pylist())) for table in tables}


def test_release_anyway_lets_exactly_the_judged_rows_pass(closed_home: Settings) -> None:
    settings = closed_home
    decisions.decide(settings, "release anyway", "Ada", "known gap of the source", LOADED)
    told = control.read(settings, DECISIONS).to_pylist()
    assert [(row["choice"], row["layer"], row["who"], row["why"], row["run_id"], row["generation"]) for row in told] == [
        ("release anyway", "silver", "Ada", "known gap of the source", "run-2", 1)
    ]
    gates.refuse_if_closed(settings, "bronze", "silver", "gold")
    assert run_gates(settings, 3, "silver") == []
    newest = verdicts.newest_verdicts(settings)["silver.transactions"]
    assert (newest.success, newest.state, newest.decision and newest.decision.who) == (False, "overruled", "Ada")
    # What comes next is judged by itself: the batch that was let through does not close the gate again.
    later = [transaction(7, at(1, 3, 4), "Debit", "1.00", who=2, hour=12)]
    run = run_of("silver", "silver.transactions", 4, 4, input=1, output=1)
    write(settings, {"bronze.transactions": [bronze(at(1, 3, 4), b"T7", b"{}")], "silver.transactions": later, "control.batches": [run]})
    assert run_gates(settings, 4, "bronze", "silver") == []
    newest = verdicts.newest_verdicts(settings)["silver.transactions"]
    assert (newest.success, newest.first_batch, newest.decision) == (True, 4, None)


def test_a_gate_that_closes_again_waits_for_a_new_decision(closed_home: Settings) -> None:
    settings = closed_home
    decisions.decide(settings, "release anyway", "Ada", "why not", LOADED)
    rows = good_rows()["silver.transactions"]
    rows[0]["transaction_id"] = rows[1]["transaction_id"]
    write(settings, {"silver.transactions": rows}, mode="overwrite")
    assert run_gates(settings, 2, "silver") == ["silver"]  # the same run, cleared: its clock says what it said
    with pytest.raises(GateClosed):
        gates.refuse_if_closed(settings, "silver")


def test_wait_leaves_the_gate_closed_and_says_who_waits(closed_home: Settings) -> None:
    settings = closed_home
    before = rows_of(settings, (*SILVER, *GOLD, BATCHES))
    decisions.decide(settings, "wait", "Ada", "asking the source", LOADED)
    with pytest.raises(GateClosed, match=r"Ada decided to wait at 2026-01-01T00:02Z \(asking the source\).*quality_decision"):
        gates.refuse_if_closed(settings, "silver")
    assert rows_of(settings, (*SILVER, *GOLD, BATCHES)) == before
    with pytest.raises(GateClosed):
        releases.publish(settings)


def check_rolled_back(settings: Settings, before: dict[str, list[str]]) -> None:
    """Everything is at release 1 again, under new identifiers, and the later batch counts as never taken."""
    assert rows_of(settings, (*SILVER, *GOLD)) == before
    silver, gold = (control.application(settings, name) for name in ("silver", "gold"))
    assert (silver, gold) == ("silver/2", "gold/2")
    heads = versions(settings, *SILVER)
    for table in SILVER:
        last = 2 if "transactions" in table.name else 1
        assert DeltaTable(str(table.path(settings))).transaction_version(silver) == last
    for table in GOLD:
        delta = DeltaTable(str(table.path(settings)))
        assert delta.transaction_version(gold) == heads["silver.transactions"]
        assert delta.transaction_version(f"{gold} silver.accounts") == heads["silver.accounts"]
    assert control.last_batch(settings, "silver", "silver.transactions") == 2
    gates.refuse_if_closed(settings, "bronze", "silver", "gold")
    assert run_gates(settings, 9) == []
    assert releases.publish(settings) == 2


def test_roll_back_returns_silver_and_gold_to_the_release(released: Settings, tmp_path: Path) -> None:
    settings = copied(released, tmp_path)
    before = rows_of(settings, (*SILVER, *GOLD))
    bad_batch(settings)
    write(settings, {"gold.debit_share": [good_rows()["gold.debit_share"][0] | {"debits": 99}]})
    bronze_versions = versions(settings, *BRONZE)
    assert run_gates(settings, 2, "bronze", "silver") == ["silver"]
    decisions.decide(settings, "roll back", "Ada", "the source sends again", LOADED)
    assert versions(settings, *BRONZE) == bronze_versions
    check_rolled_back(settings, before)


def test_a_roll_back_that_was_killed_is_finished_by_the_next_job(
    released: Settings, closed_home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, before = closed_home, rows_of(released, (*SILVER, *GOLD))
    killed: list[str] = []

    def die_once(point: str) -> None:
        if point not in killed:
            killed.append(point)
            raise KeyboardInterrupt

    for module in (rollback, lake_versions):
        monkeypatch.setattr(module, "kill_point", die_once)
    with suppress(KeyboardInterrupt):
        decisions.decide(settings, "roll back", "Ada", "try", LOADED)
    while True:
        before_this = len(killed)
        with suppress(KeyboardInterrupt):
            rollback.finish(settings)
        if len(killed) == before_this:
            break
    assert len(killed) == 2 * len((*SILVER, *GOLD)) + 4  # there is no index of ids; and what is withdrawn from control tables, and the end
    check_rolled_back(settings, before)


class Waits(logging.Handler):
    """Tells when somebody waits for a lease."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("waiting for"):
            self.seen.set()


def test_a_roll_back_waits_for_a_backfill_that_is_about_to_release(closed_home: Settings, caplog: pytest.LogCaptureFixture) -> None:
    """Neither has what the other one needs: a step of `backfill --publish` has silver and gold, and then publishes."""
    settings, waits = closed_home, Waits()
    caplog.set_level(logging.INFO, leases.log.name)

    def step() -> None:
        with leases.hold(settings, backfill.LEASED, owner="backfill"):
            begun.set()
            assert waits.seen.wait(60)
            with suppress(GateClosed):  # silver's
                releases.publish(settings)

    begun = threading.Event()
    jobs = [threading.Thread(target=step, daemon=True)]
    jobs.append(threading.Thread(target=decisions.decide, args=(settings, "roll back", "Ada", "why", LOADED), daemon=True))
    jobs[0].start()
    assert begun.wait(60)
    leases.log.addHandler(waits)
    try:
        jobs[1].start()
        for job in jobs:
            job.join(30)
    finally:
        leases.log.removeHandler(waits)
    assert [job.is_alive() for job in jobs] == [False, False]
    assert (control.is_rolled_back(settings), control.generation(settings)) == (True, 2)


def test_before_the_first_release_a_roll_back_empties_silver_and_gold(copy_home: Copy) -> None:
    settings = copy_home()
    rows = good_rows()["silver.transactions"]
    rows[0]["transaction_id"] = rows[1]["transaction_id"]
    write(settings, {"silver.transactions": rows}, mode="overwrite")
    assert "silver" in run_gates(settings, 1)
    decisions.decide(settings, "roll back", "Ada", "from the start", LOADED)
    assert all(control.read(settings, table).num_rows == 0 for table in (*SILVER, *GOLD))
    assert control.batches(settings, "silver", "silver.transactions") == []
    gates.refuse_if_closed(settings, "bronze", "silver", "gold")


def test_a_second_roll_back_starts_a_third_generation(closed_home: Settings) -> None:
    settings = closed_home
    for _ in range(2):
        decisions.decide(settings, "roll back", "Ada", "again", LOADED)
    assert control.application(settings, "silver") == "silver/3"
    assert DeltaTable(str(SILVER[0].path(settings))).transaction_version("silver/3") == 2


def test_without_a_closed_gate_there_is_nothing_to_decide(released: Settings, tmp_path: Path) -> None:
    settings = copied(released, tmp_path)
    for choice in ("wait", "release anyway"):
        decisions.decide(settings, choice, "Ada", "why", LOADED)
    assert control.read(settings, DECISIONS).num_rows == 0


@pytest.mark.parametrize(
    ("choice", "who", "why"), [("pass", "Ada", "x"), ("wait", " ", "x"), ("wait", "Ada", "\n"), ("wait", "Ada", "x" * 2001)]
)
def test_a_decision_needs_a_choice_a_name_and_a_reason(choice: str, who: str, why: str, copy_home: Copy) -> None:
    with pytest.raises(SettingsError, match=r"found .*, expected"):
        decisions.decide(copy_home(), choice, who, why)


def test_verdicts_keep_their_order_when_the_clock_is_set_back(copy_home: Copy) -> None:
    settings = copy_home()
    run_gates(settings, 5, "silver")
    bad_batch(settings)
    assert run_gates(settings, 2, "silver") == ["silver"]
    with pytest.raises(GateClosed):
        gates.refuse_if_closed(settings, "silver")
    assert len({row["_judged_at"] for row in control.read(settings, QUALITY_RESULTS).to_pylist()}) == 2


def test_a_home_without_decisions_is_of_the_first_generation(copy_home: Copy) -> None:
    settings = settings_of(copy_home().home / "other")
    assert (control.generation(settings), control.application(settings, "silver")) == (1, "silver")
    rollback.finish(settings)
