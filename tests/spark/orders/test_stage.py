"""The stage: jobs die and take turns where a test says, and two that wait for each other are found."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from spark_jobs.lake import leases, side_by_side
from spark_jobs.releases import decisions
from spark_jobs.runtime.settings import Settings, read_settings
from tests.spark.orders import stage
from tests.spark.orders.calls import Call, parse
from tests.spark.orders.chances import random_order
from tests.spark.orders.stage import Actor, Deadlock, Killed, Point, Stage


@pytest.fixture
def on_stage() -> Iterator[Stage]:
    with stage.set_up() as made:
        yield made


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"LEDGER_HOME": str(tmp_path)})


def actor(settings: Settings, *names: str, told: list[str], dies_at: Point | None = None, yields_at: Point | None = None) -> Actor:
    """A job that takes leases one within the other, then reaches a kill point, and tells what it has done."""

    def work() -> None:
        if not names:
            return
        with leases.hold_names(settings, names[:1], owner=names[0]):
            told.append(names[0])
            actor(settings, *names[1:], told=told).work()
            vars(decisions)["kill_point"](f"within {names[0]}")

    return Actor(work, Mock(), dies_at, yields_at)


def test_a_job_dies_at_a_point_by_name_or_number_and_leaves_its_lease(on_stage: Stage, settings: Settings) -> None:
    for point, reached in (("within b", ["holding a", "holding b", "within b"]), (2, ["holding a", "holding b"]), (9, None)):
        job = actor(settings, "a", "b", told=[], dies_at=point)
        on_stage.play(job)
        assert job.reached == (reached or ["holding a", "holding b", "within b", "within a"])
        assert (job.died_at, isinstance(job.error, Killed)) == ((reached[-1], True) if reached else (None, False))


def test_who_waits_for_a_lease_gives_the_turn_away(on_stage: Stage, settings: Settings) -> None:
    told: list[str] = []
    first = actor(settings, "a", "b", "c", told=told, yields_at="holding b")
    second = actor(settings, "aa", "b", told=told)
    on_stage.play(first, second)
    assert (first.error, second.error) == (None, None)
    assert told == ["a", "aa", "b", "c", "b"]


def test_two_jobs_that_wait_for_each_other_are_found(on_stage: Stage, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever refuses leases out of their order says nothing."""
    monkeypatch.setattr(leases, "_refuse_out_of_order", lambda *_: None, raising=False)
    first = actor(settings, "a", "b", told=[], yields_at="holding a")
    second = actor(settings, "b", "a", told=[])
    on_stage.play(first, second)
    assert [type(each.error) for each in (first, second)].count(Deadlock) == 1


def test_threads_of_a_job_run_one_after_the_other(on_stage: Stage, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that want one lease are no deadlock, however long the first one holds it."""
    monkeypatch.setattr(side_by_side, "copy_of", lambda spark: spark)
    monkeypatch.setattr(side_by_side, "inheritable_thread_target", lambda _: lambda function: function)

    def hold(_: SparkSession) -> None:
        with leases.hold_names(settings, ["a"], owner="a thread"):
            time.sleep(0.2)

    job = Actor(lambda: side_by_side.run_each(Mock(), dict.fromkeys("xyz", hold)), Mock())
    on_stage.play(job)
    assert (job.error, job.reached) == (None, ["holding a"] * 3)


def test_a_line_names_commands_and_points() -> None:
    assert parse("gold ! 7") == [Call(("gold",), dies_at=7)]
    one, other = parse("silver ! 9 @ holding a.b & decide roll-back ! after a decision")
    assert one == Call(("silver",), 9, "holding a.b")
    assert other == Call(("decide", "roll-back"), "after a decision")


def test_the_order_of_a_seed_is_always_the_same() -> None:
    orders = [random_order(random.Random(seed), 14) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert all(call for order in orders for line in order for call in parse(line))
