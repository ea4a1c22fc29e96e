"""Leases are taken in one order by everything that waits for them, so that no two processes can block each other."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spark_jobs.lake import leases, tables
from spark_jobs.runtime.errors import LeaseHeld
from spark_jobs.runtime.settings import Settings, read_settings

ROOT = Path(__file__).parents[3]
IN_ORDER = ["backfill", "maintenance", "releases.3", "bronze.accounts", "silver.transactions", "gold.daily_totals", "gold.live_refused"]
IN_ORDER += ["control.releases", "control.backfills", "control.topics"]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"LEDGER_HOME": str(tmp_path)})


def in_thread(do: Callable[[], None]) -> BaseException | None:
    """What a call raised in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(do).exception()


@pytest.mark.parametrize("held", range(len(IN_ORDER)))
def test_who_holds_a_lease_waits_only_for_those_that_come_later(held: int, settings: Settings) -> None:
    for number, name in enumerate(IN_ORDER):
        with leases.hold_names(settings, [IN_ORDER[held]], owner="a job"):
            if number > held:
                with leases.hold_names(settings, [name], owner="a job"):
                    continue
            message = re.escape(f"a job waits for {name} while it holds {IN_ORDER[held]}")
            with pytest.raises(RuntimeError, match=message), leases.hold_names(settings, [name], owner="a job"):
                pass
        with leases.hold_names(settings, [name], owner="a job"):  # what was refused holds nothing
            pass


def test_the_innermost_of_three_is_compared_with_both_others(settings: Settings) -> None:
    with (
        leases.hold(settings, [tables.GOLD[0]], owner="a job"),
        leases.hold(settings, [tables.BATCHES], owner="a job", wait_seconds=0),
        leases.hold(settings, [tables.BRONZE[0]], owner="a job", wait_seconds=0),  # who does not wait blocks nobody
    ):
        for table in (tables.SILVER[0], tables.GOLD[1], tables.RELEASES):
            with pytest.raises(RuntimeError, match=r"while it holds control\.batches"), leases.hold(settings, [table], owner="a job"):
                pass
        with leases.hold(settings, [tables.TOPICS], owner="a job"):
            pass
    with leases.hold(settings, [tables.SILVER[0]], owner="a job"):
        pass


def test_each_thread_has_its_own_leases(settings: Settings) -> None:
    """As processes have: a thread that simulates one, or Spark's for a batch of a query."""

    def take(table: tables.Table) -> Callable[[], None]:
        def do() -> None:
            with leases.hold(settings, [table], owner="another", wait_seconds=0.01):
                pass

        return do

    with leases.hold(settings, [tables.BATCHES], owner="a job"):
        assert in_thread(take(tables.GOLD[0])) is None
        assert isinstance(in_thread(take(tables.BATCHES)), LeaseHeld)


def test_every_lease_is_taken_where_the_order_is_checked() -> None:
    """The locks of the kernel and of Postgres that are leases are taken by leases.hold_names and by nothing else of the pipeline."""
    source = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "spark_jobs").rglob("*.py")}
    for other in ("job_counts", "scratch"):  # their locks are on no lease; nobody waits for them, or for a second at most
        assert ".leases" not in source.pop(f"spark_jobs/runtime/{other}.py")

    def found(pattern: str) -> list[str]:
        return sorted(path.removeprefix("spark_jobs/lake/") for path, text in source.items() if re.search(pattern, text))

    assert found(r"\b(flock|lockf)\b") == ["file_leases.py"]
    assert found(r"\bpg_try_advisory_lock\b") == ["postgres_leases.py"]
    assert found(r"\b(FileLeases|PostgresLeases)\(settings") == ["leases.py"]
    assert found(r"\btry_take\b") == ["file_leases.py", "leases.py", "postgres_leases.py"]
