"""The live query of a table that is declared in SQL, and what is known of its SELECT only when Spark reads it. Runs nothing."""

from typing import Any

from pyspark.sql import DataFrame, functions as F

from spark_jobs.gold.selects import Select, said
from spark_jobs.lake.ddl import parse_columns
from spark_jobs.live.declaration import LiveQuery, Reader
from spark_jobs.live.plans import optimized, walk
from spark_jobs.live.sql_tables import SqlLiveTable
from spark_jobs.runtime.errors import LedgerError, SettingsError

_SOURCE = "live_transactions"
_OF_ARRIVAL = ("GlobalLimit", "LocalLimit", "Offset")
_HINT = "append mode, as by group by window(event_at, '1 day'), type (include/docs/sql-products.md)"


def query(table: SqlLiveTable) -> LiveQuery:
    """The query. Its meaning is that of its operators, of which the fingerprint has all."""
    columns = tuple((name, kind) for name, kind, _ in parse_columns(table.ddl))
    select = Select(table.file, table.query, columns, {}, table.line)
    return LiveQuery(table, lambda read: _stream(select, read), {}, sources=(_SOURCE,), lateness=table.lateness)


def _stream(select: Select, read: Reader) -> DataFrame:
    """The rows of the SELECT over the stream of transactions.

    Raises SettingsError where it does not run, gives other columns, depends on chance, or is no query that Spark can run as a stream
    in append mode with a state that the watermark bounds.
    """
    try:
        made = select.of(_hidden(read(_SOURCE)))
    except LedgerError as error:
        raise SettingsError(str(error)) from error
    execution: Any = made._jdf.queryExecution()
    jvm: Any = made.sparkSession._jvm
    try:
        append = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
        jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(execution.analyzed(), append)
    except Exception as error:
        raise SettingsError(f"{select.file}: the SELECT is no stream: {said(error)}. Expected what Spark can write in {_HINT}") from error
    plan = list(walk(optimized(made)))
    if any(node.nodeName() in _OF_ARRIVAL for node in plan):
        raise SettingsError(f"{select.file}: found limit or offset, expected none: which rows come first depends on the runs")
    if sum(node.isStreaming() and not node.children().size() for node in plan) != 1:
        raise SettingsError(f"{select.file}: found a SELECT that reads the transactions several times, expected once: no join, no union")
    return made.select(*(name for name, _ in select.columns))


def _hidden(rows: DataFrame) -> DataFrame:
    """The rows, whose columns but the time are what a generator gave: no filter is moved below it.

    Spark moves filters below watermarks. Then only rows that meet a filter would move the watermark, and while none comes, nothing closes.
    """
    others = F.struct(*(name for name in rows.columns if name != "event_at"))
    return rows.select("event_at", F.inline(F.array(others))).select(*rows.columns)
