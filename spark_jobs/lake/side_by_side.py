"""Work on several tables side by side, each in a session of its own, so that the settings of one write do not meet those of another."""

from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.runtime import known_classes, progress
from spark_jobs.runtime.errors import LedgerError, first_line

AT_ONCE = 3  # while one plans or commits, others compute
LARGE_AT_ONCE = 2  # work on many rows fills cores and memory: one task of it sorts and writes a file

Result = TypeVar("Result")


def run_each(spark: SparkSession, work: Mapping[str, Callable[[SparkSession], object]], at_once: int = AT_ONCE) -> None:
    """Run each piece of work, by name, in a copy of the session; they begin in this order, so many at a time.

    When one fails, those that have begun are finished, and the others do not begin. Raises LedgerError with the first line of each
    error, and first that of what failed first, which is the cause.
    """

    def run(name: str, task: Callable[[SparkSession], object]) -> None:
        spark.sparkContext.setJobDescription(name)  # of this thread
        running.append(name)
        phase.reach(len(done), ", ".join(running))
        task(copy_of(spark))
        running.remove(name)
        done.append(name)
        phase.reach(len(done), ", ".join(running))

    running, done = list[str](), list[str]()
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="table")
    with progress.phase("", len(work), "tables") as phase:
        try:
            begun = {pool.submit(inheritable_thread_target(spark)(run), name, task): name for name, task in work.items()}
            first, _ = wait(begun, return_when=FIRST_EXCEPTION)
        finally:
            pool.shutdown(cancel_futures=True)
    errors = [(name, error) for future, name in begun.items() if not future.cancelled() and (error := future.exception())]
    errors.sort(key=lambda failed: failed[0] not in {begun[future] for future in first})
    if errors:
        raise LedgerError("; ".join(f"{name} stopped: {first_line(error)}" for name, error in errors)) from errors[0][1]


def one_ahead(spark: SparkSession, work: Sequence[Callable[[SparkSession], Result]]) -> Generator[Result, None, None]:
    """What each piece of work returns, in order. While one result is used, the next piece runs, in a copy of the session.

    The last result that was used and the next one are in memory together. An error is raised in its turn. Closing waits for what runs.
    """
    if len(work) < 2:
        yield from (task(spark) for task in work)
        return
    run = inheritable_thread_target(spark)(lambda task: task(copy_of(spark)))
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
        running = pool.submit(run, work[0])
        for task in work[1:]:
            ended, running = running, pool.submit(run, task)  # which begins when the one before it has ended
            yield ended.result()
        yield running.result()


def copy_of(spark: SparkSession) -> SparkSession:
    """A session with the settings that another one has now; what is set in one of them does not concern the other."""
    session: Any = spark._jsparkSession
    return SparkSession(spark.sparkContext, session.cloneSession())


def within(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """The same rows, of a session that is a copy of theirs."""
    plan = rows._jdf.queryExecution().analyzed()
    return DataFrame(getattr(spark._jvm, known_classes.DATASET).ofRows(spark._jsparkSession, plan), spark)
