"""Lakes that tests of several folders copy."""

import pytest
from pyspark.sql import SparkSession

from tests.support import redrive_cases
from tests.support.redrive_cases import Judged


@pytest.fixture(scope="session")
def judged_by_older(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """What `judge_by_older` makes; not to be written to."""
    return redrive_cases.judge_by_older(spark, tmp_path_factory.mktemp("older"))
