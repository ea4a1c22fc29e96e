"""How Spark divides the heap of a job."""

from typing import Any

from pyspark.sql import SparkSession

_HEADER = 16  # bytes of an array of the JVM


def test_a_memory_page_takes_no_more_of_the_heap_than_one_megabyte(spark: SparkSession) -> None:
    """G1 gives an array larger than half a region regions of its own: a page of 1 MB and its header would take two of 1 MB.

    The session of the tests has another collector, so the size is looked at, too.
    """
    jvm: Any = spark._jvm
    manager = jvm.org.apache.spark.SparkEnv.get().memoryManager()
    assert 2**19 < manager.pageSizeBytes() + _HEADER <= 2**20
    runtime, pages = jvm.java.lang.Runtime.getRuntime(), 64
    jvm.java.lang.System.gc()
    before = runtime.totalMemory() - runtime.freeMemory()
    held = [manager.tungstenMemoryAllocator().allocate(manager.pageSizeBytes()) for _ in range(pages)]
    taken = (runtime.totalMemory() - runtime.freeMemory() - before) / 2**20
    for page in held:
        manager.tungstenMemoryAllocator().free(page)
    assert 0.5 * pages < taken < 1.5 * pages
