"""What every folder of tests shares: the one Spark session, and which tests may run side by side."""

import gc
import logging
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.runtime.session import SMALL_PLANS, java_options, s3_conf, start_session
from spark_jobs.runtime.settings import read_settings

# Tests of one group run one after the other in one process; what takes longest begins first, and the tests of no group come last.
# (Gates share homes that take long to make, and Great Expectations, which takes 8 s to import; the tests of dags share Airflow.)
GROUPS = {  # folder -> group: the first that a test lies below
    "spark/live": "live",
    "spark": "spark",
    "integration/live": "live processes",
    "integration": "stack",
    "faults": "faults",
    "unit/releases": "gates",
    "unit/expectations": "gates",
    "dags": "dags",
}
_FIRST = ("spark", "stack", "live", "live processes", "faults", "gates", "dags")
# These frames are small: one partition, no job for every shuffle, no generated code, which a few rows never pay back.
# (The processes that the tests of folder `integration` start run with the settings of the jobs.)
SMALL_FRAMES = SMALL_PLANS | {
    "spark.databricks.delta.delta.log.cacheSize": "50",  # of 10,000: the tables of an hour of tests, with their files, fill the heap
}
# One JVM runs hundreds of jobs, so both compilers pay, as in an engine.
LONG_LIVED = {
    "spark.driver.memory": "3g",
    "spark.driver.extraJavaOptions": " ".join(java_options(quick_compiler_only=False)),
}
MARKERS = {  # marker -> groups
    "spark": {"spark", "live"},
    "integration": {"stack", "live processes"},
    "airflow": {"stack"},
    "faults": {"faults", "stack", "live processes"},
}


def group_of(nodeid: str) -> str | None:
    """The group of a test, by the folder that it lies in."""
    return next((group for folder, group in GROUPS.items() if nodeid.startswith(f"tests/{folder}/")), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test whose markers ask for another group than that of its folder, and put the groups into their order."""
    items.sort(key=lambda item: _FIRST.index(group) if (group := group_of(item.nodeid)) else len(_FIRST))
    for item in items:
        asked = [MARKERS[mark.name] for mark in item.iter_markers() if mark.name in MARKERS]
        if any(group_of(item.nodeid) not in groups for groups in asked):
            raise pytest.UsageError(f"{item.nodeid}: its markers ask for the groups {asked}: put it into a folder of {GROUPS}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Any:
    """Give a group to one process, and every other test to whichever is free, in the order of collection.

    By folders: pytest 9.2 takes no notice of how xdist 3.8 passes on its own group marks (pytest-xdist#1386).
    """
    if config.getoption("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False  # by how many tests a group has
    scheduler = import_module("xdist.scheduler").LoadScopeScheduling(config, log)  # a library without types
    scheduler._split_scope = lambda nodeid: group_of(nodeid) or nodeid
    return scheduler


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark session of all tests that share this process, with the settings of the jobs, for small frames."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path_factory.mktemp("ledger")), "LEDGER_SPARK_MASTER": "local[2,4]"})
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells of connections that are closed after the output is
    session = start_session(settings, "tests", s3_conf(settings) | LONG_LIVED)
    for name, value in SMALL_FRAMES.items():
        session.conf.set(name, value)
    # Frames and queries of the JVM live until Python collects the objects that stand for them, which are in cycles. By itself it does
    # so when a quarter more objects have come: a quarter of all that a test process has loaded is too late for a heap of 1 GB.
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 5, 2)
    yield session
    session.stop()
