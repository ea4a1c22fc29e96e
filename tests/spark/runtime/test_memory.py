"""How much of the heap Spark takes for small work."""

from typing import Any

from pyspark.sql import SparkSession


def test_a_sort_of_few_rows_takes_little_of_the_heap(spark: SparkSession) -> None:
    """By Spark's own measure a page is a 32nd of the heap for each core: jobs side by side on small tables filled it, and the JVM ended."""
    jvm: Any = spark._jvm
    assert jvm.org.apache.spark.SparkEnv.get().memoryManager().pageSizeBytes() == 2**20
