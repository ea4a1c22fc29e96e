"""Orders of commands: whatever comes when, dies where it may and is repeated, the tables are what bronze says and releases read whole.

To see once more what failed: LEDGER_TEST_SEEDS=7,12 (or LEDGER_TEST_ORDER="produce; bronze; silver ! 3; silver")
.venv/bin/python -m pytest tests/spark/orders -m "soak or not soak" -k seed (or -k given).
"""

import os
import random

import pytest

from tests.spark.orders.chances import random_order
from tests.spark.orders.conftest import MakeWorld
from tests.spark.orders.world import World

pytestmark = pytest.mark.spark

SHORT, LENGTH = 3, 14  # commands of a random order, about
QUICK = (4, 5)
SOAK = 40
_ASKED = os.environ.get("LEDGER_TEST_SEEDS", str(SOAK))  # how many, or which
SEEDS = [int(seed) for seed in _ASKED.split(",")] if "," in _ASKED else range(int(_ASKED))
GIVEN = [line.strip() for line in os.environ.get("LEDGER_TEST_ORDER", "").split(";") if line.strip()]

# Each once went wrong: what it was, and the shortest order that shows it.
FROM_JUDGED = {
    "a release names files that maintenance has removed": [
        *("maintenance silver.transactions", "days 8", "maintenance silver.transactions", "release"),
    ],
    "a roll-back decided while silver runs": [
        *("release", "produce transactions", "bronze"),
        *("silver @ holding silver.transactions_quarantine & decide roll-back", "silver", "check silver"),
    ],
    "gold released beside the silver of another moment": [
        *("release", "produce customers", "bronze", "silver", "gate bronze", "gate silver", "gold", "release ?"),
    ],
    "a restored warehouse beside the checkpoints of today": [
        *("copy", "produce transactions", "bronze", "silver", "restore", "bronze", "silver", "check silver"),
    ],
    "a roll-back and a backfill that publishes wait for each other": [
        *("release", "backfill 0 1 silver.transactions publish @ holding control.batches & decide roll-back"),
    ],
}
FROM_NOTHING = {
    "rules relaxed between a death of silver and its repetition": [
        *("produce transactions", "bronze", "silver ! after silver.transactions", "rules new", "silver", "check silver"),
    ],
}
LONG_FROM_JUDGED = {
    "a step of a backfill that another process ends counts as one without changes": [
        *("rules new", "backfill 0 3000 silver.transactions ! before a step of a backfill is done"),
        *("produce transactions", "bronze", "silver", "gate silver"),
    ],
}
LONG_FROM_NOTHING = {
    "rules relaxed after the index of ids was written": [
        *("produce transactions", "bronze", "silver ! after silver.transaction_ids", "rules new", "silver"),
        *("produce transactions", "produce transactions", "bronze", "silver", "check silver"),
    ],
    "the first run of gold dies before its last tables": [
        *("produce transactions", "bronze", "silver", "gold ! before gold.debit_share"),
        *("produce transactions", "bronze", "silver", "gold", "check gold"),
    ],
}


@pytest.mark.parametrize("what", FROM_JUDGED)
def test_an_order_after_the_gates(make_world: MakeWorld, judged: World, what: str) -> None:
    make_world(1, judged).play(*FROM_JUDGED[what])


@pytest.mark.parametrize("what", FROM_NOTHING)
def test_an_order_from_the_start(make_world: MakeWorld, what: str) -> None:
    make_world(1).play(*FROM_NOTHING[what])


@pytest.mark.soak
@pytest.mark.parametrize("what", LONG_FROM_JUDGED)
def test_a_long_order_after_the_gates(make_world: MakeWorld, judged: World, what: str) -> None:
    make_world(1, judged).play(*LONG_FROM_JUDGED[what])


@pytest.mark.soak
@pytest.mark.parametrize("what", LONG_FROM_NOTHING)
def test_a_long_order_from_the_start(make_world: MakeWorld, what: str) -> None:
    make_world(1).play(*LONG_FROM_NOTHING[what])


@pytest.mark.parametrize("seed", QUICK)
def test_a_random_order_after_the_gates(make_world: MakeWorld, judged: World, seed: int) -> None:
    """A short one, which ends where silver has all there is."""
    world = make_world(seed, judged)
    world.play(*random_order(random.Random(seed), SHORT, is_new=False), may_refuse=True)
    world.play("rest silver", "check silver")


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_a_seed(make_world: MakeWorld, seed: int) -> None:
    world = make_world(seed)
    world.play(*random_order(random.Random(seed), LENGTH), may_refuse=True)
    world.play("rest", "check", "audit")


@pytest.mark.soak
@pytest.mark.skipif(not GIVEN, reason="no LEDGER_TEST_ORDER is set")
def test_the_order_that_is_given(make_world: MakeWorld) -> None:
    make_world(0).play(*GIVEN, may_refuse=True)
