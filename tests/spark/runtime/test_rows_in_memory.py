"""Rows that are held in memory are computed in tasks: the driver would compute them while it plans, once for each plan that reads them."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs.lake.kept import in_memory

pytestmark = pytest.mark.spark


def test_no_row_is_computed_while_a_plan_is_made(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(number,) for number in range(10)], "n bigint").select((F.col("n") * 2).alias("twice"))
    plan: Any = rows._jdf.queryExecution().optimizedPlan()
    assert plan.nodeName() == "Project"
    assert sorted(row.twice for row in rows.where("twice > 14").collect()) == [16, 18]


def test_rows_of_this_process_go_to_tasks_as_arrow_and_joins_broadcast_them(spark: SparkSession) -> None:
    few = in_memory(spark, pa.table({"n": [3, 3, 9]}))
    assert "LocalRelation" not in optimized(few)
    found = spark.range(5).join(few.distinct(), on=F.col("id") == F.col("n"), how="left_semi")
    assert "strategy=broadcast" in optimized(found)
    assert [row.id for row in found.collect()] == [3]
    large = in_memory(spark, pa.table({"n": pa.array(range(1_400_000))}))
    assert "strategy=broadcast" not in optimized(spark.range(5).join(large, on=F.col("id") == F.col("n")))


def optimized(rows: DataFrame) -> str:
    plan: Any = rows._jdf.queryExecution().optimizedPlan()
    return str(plan.toString())
