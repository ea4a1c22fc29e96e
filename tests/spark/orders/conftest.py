import random
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Protocol

import pytest
from pyspark.sql import SparkSession

from expectations import row_rules
from spark_jobs.releases import gates
from spark_jobs.runtime.settings import read_settings
from tests.spark.orders import stage
from tests.spark.orders.world import World

_JUDGED = (
    *("produce transactions customers", "bronze", "silver", "produce transactions", "bronze", "silver"),
    *("gate bronze", "gate silver", "gold", "gate gold"),
)


class MakeWorld(Protocol):
    """Makes the world of a seed: empty, or a copy of another one."""

    def __call__(self, seed: int, source: World | None = None) -> World: ...


@pytest.fixture(scope="module")
def make_world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeWorld]:
    """Makes worlds, one in use at a time: what their jobs start, and where they die, is in this process."""
    rules = tmp_path_factory.mktemp("rules")
    with stage.set_up() as on_stage, pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_rules, "FOLDER", rules)
        patch.setattr("spark_jobs.runtime.session.start_session", lambda *_, **__: on_stage.session)
        patch.setattr("spark_jobs.reprocessing.backfill._LIVE_GATES_SECONDS", 0)  # nobody runs a gate meanwhile
        patch.setattr(gates, "limited", lambda _, function: nullcontext(lambda _, *arguments: function(*arguments)))

        def make(seed: int, source: World | None = None) -> World:
            home = tmp_path_factory.mktemp("world") / "home"
            if source:
                shutil.copytree(source.settings.home, home)
            environment = {"LEDGER_HOME": str(home), "LEDGER_LARGE_CREDIT": "1", "LEDGER_FRESHNESS_SECONDS": "999999999"}
            kafka = source.kafka.copied() if source else None
            world = World(spark, on_stage, read_settings(environment), rules, random.Random(seed), kafka)
            patch.setattr(gates, "judge", world.judge)
            return world

        yield make
    row_rules.read_rules.cache_clear()


@pytest.fixture(scope="module")
def judged(make_world: MakeWorld) -> World:
    """A world whose gates have passed all there is, before its first release; not to be written to."""
    world = make_world(0)
    world.play(*_JUDGED)
    return world
