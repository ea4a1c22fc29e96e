"""A roll-back that is decided while another job waits or judges: whoever comes next carries it out first. Without Spark."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from expectations.gate import Judgement
from spark_jobs import control, run
from spark_jobs.lake import leases, versions
from spark_jobs.lake.file_leases import FileLeases
from spark_jobs.lake.tables import DECISIONS, GOLD, QUALITY_RESULTS, RELEASES, SILVER, SILVER_OWNED, SILVER_TRANSACTIONS
from spark_jobs.releases import decisions, gates, releases, rollback
from spark_jobs.runtime.errors import LedgerError
from spark_jobs.runtime.settings import Settings
from tests.support.publishing import one_more, pass_gates, publish
from tests.support.warehouse import LOADED, at, transaction, write
from tests.unit.releases.test_decisions import rows_of

Copy = Callable[[], Settings]
Rows = dict[str, list[str]]


@pytest.fixture
def home(copy_home: Copy) -> Settings:
    """Release 1, and after it a batch that was judged good and is not released."""
    settings = copy_home()
    assert publish(settings) == 1
    one_more(settings, 3)
    pass_gates(settings, 3)
    return settings


@pytest.fixture
def released_home(home: Settings, good_release: Settings) -> tuple[Settings, Rows]:
    """The home, and the rows that silver and gold have in release 1."""
    return home, rows_of(good_release, (*SILVER, *GOLD))


def decide_and_die(settings: Settings) -> None:
    """Decide to roll back, in a process that dies before any table is restored."""

    def die(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(versions, "kill_point", die)
        decisions.decide(settings, "roll back", "Ada", "why not", LOADED)


JOBS = (
    "silver",
    "redrive --rule parseable",
    "gold",
    "backfill --start 2013-01-02T00:00:00Z --end 2013-01-03T00:00:00Z",
    "gate silver",
    "gate gold",
    "maintenance --tables gold.daily_totals --wait 0",
)


@pytest.mark.parametrize("words", JOBS)
def test_a_job_that_waited_for_its_leases_looks_again(
    words: str, released_home: tuple[Settings, Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision is taken after the job has found nothing to finish, and before it has its leases."""
    settings, released = released_home
    found: list[bool] = []
    original = leases.hold_names

    @contextmanager
    def hold_names(settings: Settings, names: Any, owner: str, wait_seconds: float = 0) -> Iterator[int]:
        names = list(names)
        if not found and any(name.startswith(("silver.", "gold.")) for name in names):
            found.append(True)
            decide_and_die(settings)
        with original(settings, names, owner, wait_seconds) as epoch:
            yield epoch

    def start_session(settings: Settings, *_: object, **__: object) -> None:
        assert rows_of(settings, (*SILVER, *GOLD)) == released
        raise LedgerError("here the work would begin")

    monkeypatch.setattr(leases, "hold_names", hold_names)
    monkeypatch.setattr("spark_jobs.runtime.session.start_session", start_session)
    monkeypatch.setattr(gates, "_judge", lambda *_: [])  # what it says is of no interest here
    monkeypatch.setenv("LEDGER_HOME", str(settings.home))
    run.main(words.split())
    assert found
    assert control.generation(settings) == 2
    assert control.is_rolled_back(settings)
    assert rows_of(settings, (*SILVER, *GOLD)) == released


def test_a_roll_back_is_decided_only_while_nobody_writes_what_it_changes(
    released_home: tuple[Settings, Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a job would write its first tables before it and the others after it."""
    settings, released = released_home
    waits = threading.Event()
    try_take = FileLeases.try_take

    def tried(leases: FileLeases, name: str) -> int | None:
        epoch = try_take(leases, name)
        if epoch is None:
            waits.set()
        return epoch

    decider = threading.Thread(target=decisions.decide, args=(settings, "roll back", "Ada", "why not", LOADED))
    with leases.hold(settings, SILVER_OWNED, owner="silver"):
        monkeypatch.setattr(FileLeases, "try_take", tried)
        decider.start()
        assert waits.wait(60)
        assert control.generation(settings) == 1
        write(settings, {"silver.transactions": [transaction(9, at(1, 9, 3), "Debit", "1.00", who=2, hour=12)]})
    decider.join(60)
    assert control.generation(settings) == 2
    assert control.is_rolled_back(settings)
    assert rows_of(settings, (*SILVER, *GOLD)) == released


def test_a_table_that_was_written_under_the_new_generation_is_restored(released_home: tuple[Settings, Rows]) -> None:
    """The identifier of the new generation is no sign that a table was restored: an older version of this code wrote under it."""
    settings, released = released_home
    decide_and_die(settings)
    for table in (*SILVER, *GOLD):
        delta = DeltaTable(str(table.path(settings)))
        written = [Transaction(name, 9) for name in ("silver/2", "gold/2", "gold/2 silver.customers", "gold/2 silver.accounts")]
        partitions = list(table.partitioned_by)
        delta.create_write_transaction(
            [], "append", delta.schema(), partitions, commit_properties=CommitProperties(app_transactions=written)
        )
    rollback.finish(settings)
    assert rows_of(settings, (*SILVER, *GOLD)) == released
    silver = DeltaTable(str(SILVER_TRANSACTIONS.path(settings)))
    assert silver.transaction_version("silver/2") == 2
    assert all(DeltaTable(str(table.path(settings))).transaction_version("gold/2") == silver.version() for table in GOLD)


def test_a_release_is_not_published_over_a_roll_back(released_home: tuple[Settings, Rows], monkeypatch: pytest.MonkeyPatch) -> None:
    settings, _ = released_home
    decide_and_die(settings)
    with pytest.raises(LedgerError, match="a roll-back was decided and is not carried out"):
        releases.publish(settings)
    monkeypatch.setenv("LEDGER_HOME", str(settings.home))
    assert run.main(["release"]) == 3  # carried out; of the bronze batches no gate says anything yet
    assert control.is_rolled_back(settings)
    assert {row["release_id"] for row in control.read(settings, RELEASES).to_pylist()} == {1}


def test_a_verdict_on_what_a_roll_back_took_away_is_not_recorded(
    released_home: tuple[Settings, Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, _ = released_home
    write(settings, {"silver.transactions": [transaction(9, at(1, 9, 3), "Debit", "1.00", who=2, hour=12)]})

    def decided_meanwhile(*_: object) -> list[Judgement]:
        decisions.decide(settings, "roll back", "Ada", "why not", LOADED)
        return []

    monkeypatch.setattr(gates, "_judge", decided_meanwhile)
    with pytest.raises(LedgerError, match=r"gate silver: a roll-back came in between .* run the gate again"):
        gates.run(settings, "silver", "late", now=LOADED)
    assert "late" not in {row["run_id"] for row in control.read(settings, QUALITY_RESULTS).to_pylist()}


def test_the_decision_that_counts_is_the_one_to_roll_back(released_home: tuple[Settings, Rows]) -> None:
    """Another decision after it has the same generation."""
    settings, released = released_home
    common = {"decided_at": LOADED, "who": "Ada", "why": "why not", "layer": "silver", "run_id": "r", "generation": 2}
    for choice, release in (("release anyway", 0), ("roll back", 1), ("wait", 0)):
        control.append(settings, DECISIONS, [common | {"choice": choice, "release_id": release}])
    rollback.finish(settings)
    assert rows_of(settings, (*SILVER, *GOLD)) == released
