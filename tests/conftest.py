"""What every folder of tests shares: the one Spark session, and which tests may run side by side."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_jobs.session import start_session
from spark_jobs.settings import read_settings

# Tests of one group run one after the other in one process, so that beside Spark runs at most one more heavy thing.
# xdist joins the names of a test's groups: one that names its group itself must use the same word.
GROUPS = {"spark": "spark", "integration": "stack", "airflow": "stack", "faults": "stack"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put every test with a marker that has a group into that group."""
    for item in items:
        groups = {GROUPS[mark.name] for mark in item.iter_markers() if mark.name in GROUPS}
        for group in groups - {"spark"} or groups:
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark session of all tests that share this process, with the settings of the jobs, for small frames."""
    settings = read_settings({"LEDGER_HOME": str(tmp_path_factory.mktemp("ledger")), "LEDGER_SPARK_MASTER": "local[2,4]"})
    session = start_session(settings, "tests")
    for name in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
        session.conf.set(name, "1")
    session.conf.set("spark.sql.adaptive.enabled", "false")  # it makes a job of every shuffle; these frames are small
    yield session
    session.stop()
