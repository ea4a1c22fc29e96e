"""What tests of the live queries begin with: the session, the queries that there are for savepoints and upgrades, and a home."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.live import savepoints, upgrade
from spark_jobs.live.declaration import LiveQuery
from spark_jobs.live.queries import QUERIES
from spark_jobs.runtime.settings import Settings, read_settings
from tests.support.live_lake import live_session


@pytest.fixture
def known_queries() -> Sequence[LiveQuery]:
    """All live queries that there are; a file of tests may say that there are fewer."""
    return QUERIES


@pytest.fixture
def live(spark: SparkSession, known_queries: Sequence[LiveQuery]) -> Iterator[SparkSession]:
    with live_session(spark), pytest.MonkeyPatch.context() as patch:
        for module in (savepoints, upgrade):
            patch.setattr(module, "QUERIES", tuple(known_queries))
        yield spark


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"LEDGER_HOME": str(tmp_path)})
