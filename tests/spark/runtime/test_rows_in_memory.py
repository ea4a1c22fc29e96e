"""Rows that are held in memory are computed in tasks: the driver would compute them while it plans, once for each plan that reads them."""

from typing import Any

import pytest
from pyspark.sql import SparkSession, functions as F

pytestmark = pytest.mark.spark


def test_no_row_is_computed_while_a_plan_is_made(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(number,) for number in range(10)], "n bigint").select((F.col("n") * 2).alias("twice"))
    plan: Any = rows._jdf.queryExecution().optimizedPlan()
    assert plan.nodeName() == "Project"
    assert sorted(row.twice for row in rows.where("twice > 14").collect()) == [16, 18]
