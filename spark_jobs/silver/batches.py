"""Bronze's batches as a stream's micro-batches bring them: whole, in order, and none twice."""

import logging
from collections.abc import Callable

from pyspark.sql import DataFrame, functions as F

from spark_jobs.control import scope
from spark_jobs.lake import sources
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.settings import Settings

log = logging.getLogger(__name__)


def take_new(
    settings: Settings,
    bronze: Table,
    name: str,
    done: Callable[[], int],
    process: Callable[[DataFrame, int, int], None],
    prepare: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    begun: int = 0,
) -> Callable[[DataFrame, int], None]:
    """What a query over `bronze` does with each micro-batch: `process(rows, first batch, last batch)` of the batches after `done()`.

    `prepare` is what the query has made of bronze's rows before. Batches up to `begun` were written in part by a run that died: they are
    processed by themselves, before later ones.
    """

    def take(rows: DataFrame, _: int) -> None:
        taken = done()
        if scope.is_rewritten(settings, bronze, taken):  # rows that were removed may have come back by a replay
            rows = prepare(sources.read_table(rows.sparkSession, settings, bronze))
        fresh, is_begun = rows.where(F.col("_batch") > taken), F.col("_batch") <= begun
        for part in (fresh.where(is_begun), fresh.where(~is_begun)) if begun > taken else (fresh,):
            first, last = part.agg(F.min("_batch"), F.max("_batch")).collect()[0]
            if last is not None:
                process(part, first, last)
                log.info("%s: batches %d to %d are in", name, first, last)

    return take
