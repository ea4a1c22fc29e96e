"""What gold is made of, as a run reads it. What a small change touches is held in memory: Spark would plan for longer than it reads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from string import Template

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_jobs import control
from spark_jobs.control.matching import find_rows
from spark_jobs.gold.strategies import Inputs, Sql
from spark_jobs.lake import few_rows, sinks, sources, tables
from spark_jobs.lake.kept import in_memory, kept
from spark_jobs.lake.ranges import Where
from spark_jobs.lake.tables import Table
from spark_jobs.lake.txn import applied
from spark_jobs.lake.versions import is_maintenance
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.text import quoted

LARGE_PLANS = {"spark.sql.shuffle.partitions": "4"}
_ONE = Template("select $value from t where $where")
_GROUPS = Template("select * from (select $columns from t where $where group by $by)$best")
_MOST_RANKED = 10  # times as many groups as rows are held, where only the best of them are given


@dataclass(frozen=True)
class Source:
    """Where the rows of a table are read: in a table with all its columns, at a version (None: as it is now)."""

    table: Table
    version: int | None = None


def silver_in_time(settings: Settings, application: str, version: int) -> Source:
    """silver.transactions at a version: gold.enriched_transactions, if that has come as far; there it lies in order of time.

    Otherwise the last version that holds the same rows: the files of older ones may be gone.
    """
    enriched, path = tables.ENRICHED_TRANSACTIONS, tables.SILVER_TRANSACTIONS.path(settings)
    if applied(settings, enriched, application) == version:
        return Source(enriched)
    while is_maintenance(path, version + 1):
        version += 1
    return Source(tables.SILVER_TRANSACTIONS, version)


def open_inputs(spark: SparkSession, settings: Settings, silver: Source, *, touches_few: bool) -> Inputs:
    """Tables as they are now, but for silver.transactions, which is read where `silver` says; in memory, if few are touched."""

    def source_of(table: Table) -> Source:
        return silver if table == tables.SILVER_TRANSACTIONS else Source(table)

    def read(table: Table) -> DataFrame:
        source = source_of(table)
        return sources.read_table(spark, settings, source.table, version=source.version).selectExpr(*quoted(table.columns))

    def read_few(table: Table, where: Where) -> DataFrame | None:
        rows = rows_where(settings, source_of(table), table, where)
        return None if rows is None else in_memory(spark, rows)

    def groups(table: Table, by: Sql, made: Sql, where: Where, best: str | None) -> DataFrame | None:
        found = groups_where(settings, silver, table, by, made, where, best)
        return None if found is None else in_memory(spark, found)

    def held(table: Table, columns: Sequence[str], where: Where) -> pa.Table | None:
        return find_rows(settings, source_of(table).table, columns, where.is_wanted, where.datafusion, version=source_of(table).version)

    given = Inputs(read, settings.large_credit, groups=groups, span=partial(few_rows.span, settings))
    return replace(given, few=read_few, held=held, hold=lambda rows: hold(rows)[0]) if touches_few else given


def hold(rows: DataFrame) -> tuple[DataFrame, pa.Table | None]:
    """The rows, computed once: in memory, as Spark and Arrow see them, or as Spark alone does where they are many."""
    few = sinks.collect_few(rows)
    return (rows.transform(kept), None) if few is None else (in_memory(rows.sparkSession, few), few)


def rows_where(settings: Settings, source: Source, table: Table, where: Where) -> pa.Table | None:
    """The columns of `table` of the rows of a source that meet a condition; None where they are many."""
    most = few_rows.MOST_ROWS
    return find_rows(settings, source.table, table.columns, where.is_wanted, where.datafusion, version=source.version, most=most)


def groups_where(
    settings: Settings, source: Source, table: Table, by: Sql, made: Sql, where: Where, best: str | None = None
) -> pa.Table | None:
    """What is made of the groups of the rows of a source that meet a condition (not `is_wanted`), as columns of `table`.

    `best` picks some of the groups. None where there may be more of them than are held in memory: each value of one column of `by` with
    each of the others.
    """
    delta, condition = source.table.open(settings, source.version), where.datafusion
    count = " * ".join(f"approx_distinct({value})" for value in by.values())
    most = few_rows.MOST_ROWS * (_MOST_RANKED if best else 1)
    if control.value(delta, _ONE.substitute(value=count, where=condition), source.table) > most:
        return None
    columns = ", ".join(f"{value} as {name}" for name, value in {**by, **made}.items())
    sql = _GROUPS.substitute(columns=columns, where=condition, by=", ".join(by.values()), best=f" qualify {best}" if best else "")
    found = control.query(delta, sql, source.table)
    if found.num_rows > few_rows.MOST_ROWS:
        return None
    declared = pa.schema(table.delta_schema().to_arrow())
    return found.cast(pa.schema([declared.field(name) for name in found.column_names]))
