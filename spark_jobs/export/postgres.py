"""The rows of a table in Postgres, all from one snapshot however many connections read it, and exact: no number passes through a float."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

import psycopg2
from psycopg2 import sql
from pyspark.sql import SparkSession, functions as F

from spark_jobs.export.days import Range
from spark_jobs.export.request import Request
from spark_jobs.export.source import TIME, Source
from spark_jobs.runtime.errors import LedgerError, SettingsError, first_line
from spark_jobs.runtime.postgres import connect
from spark_jobs.runtime.settings import Settings
from spark_jobs.runtime.times import ALWAYS

_AS_IT_IS = ("bool", "int2", "int4", "int8", "float4", "float8", "text", "varchar", "bpchar", "date", "timestamptz", "bytea")
_TIMES = ("date", "timestamp", "timestamptz")
_MOST_DIGITS = 38
_ANSWER_SECONDS = 30
_FETCHED = 10_000  # rows that a connection takes at a time
_COLUMNS = """select a.attname, t.typname,
    case when t.typname = 'numeric' and a.atttypmod >= 4 then ((a.atttypmod - 4) >> 16) & 65535 end,
    case when t.typname = 'numeric' and a.atttypmod >= 4 then (((a.atttypmod - 4) & 2047) # 1024) - 1024 end
    from pg_attribute a join pg_type t on t.oid = a.atttypid
    where a.attrelid = to_regclass(%s) and a.attnum > 0 and not a.attisdropped order by a.attnum"""
_NUMBERS = sql.SQL(
    "select coalesce(max(scale({0})), 0), coalesce(max(length(trunc(abs({0}))::text)), 1), "
    "count(*) filter (where {0}::text in ('NaN', 'Infinity', '-Infinity')) from {1}"
)
_BOUNDS = sql.SQL("select percentile_disc(%s::float8[]) within group (order by {0})::text[] from {1}")


@dataclass(frozen=True)
class Snapshot:
    """A transaction that reads one snapshot, and the name by which other connections read the same one."""

    connection: Any
    name: str

    def query(self, statement: sql.Composable | str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows that a statement finds."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def text(self, statement: sql.Composable) -> str:
        """A composed statement as the text that another connection can send."""
        return str(statement.as_string(self.connection))


@contextmanager
def snapshot(settings: Settings) -> Iterator[Snapshot]:
    """One snapshot of LEDGER_POSTGRES_URL, for as long as this lasts; raises LedgerError when it does not answer, or refuses."""
    try:
        connection = connect(settings, _ANSWER_SECONDS)
    except psycopg2.Error as error:
        raise LedgerError(f"Postgres does not answer ({first_line(error)}): check LEDGER_POSTGRES_URL") from None
    try:
        opened = Snapshot(connection, "")
        ((name,),) = opened.query("select pg_export_snapshot()")
        yield Snapshot(connection, name)
    except psycopg2.Error as error:
        raise LedgerError(f"Postgres refuses ({first_line(error)})") from None
    finally:
        connection.close()


def postgres_rows(spark: SparkSession, seen: Snapshot, request: Request, ranges: Iterable[Range]) -> Source:
    """The rows of a table with their time in one of the ranges; without a time column all rows, with the day of the export as time.

    numeric becomes a decimal of the digits that it has, timestamps are UTC, types that Parquet lacks are text as Postgres writes it.
    Raises SettingsError for a table or column that is not there or cannot be used, LedgerError for numbers of more than 38 digits, for
    NaN, and where rows have no time and no range was asked for.
    """
    schema, _, name = request.name.partition(".")
    table = sql.Identifier(schema, name)
    columns = {column: kind for column, *kind in seen.query(_COLUMNS, seen.text(table))}
    if not columns:
        raise SettingsError(f"--postgres: found no table {request.name}, expected one that this user may read")
    where = sql.SQL("true")
    time: sql.Composable = sql.SQL("null::timestamptz")
    if request.date_column:
        kind = _checked("--date-column", request.date_column, columns, _TIMES)
        where = _in_ranges(request.date_column, kind, ranges)
        time = _utc(sql.Identifier(request.date_column), kind)
        _refuse_timeless(seen, request, table)
    chosen = [_selected(seen, request, table, column, *kind) for column, kind in columns.items()]
    chosen.append(sql.SQL("{} as {}").format(time, sql.Identifier(TIME)))
    query = sql.SQL("(select {} from {} where {}) as t").format(sql.SQL(", ").join(chosen), table, where)
    rows = spark.read.jdbc(
        _jdbc_url(seen), seen.text(query), predicates=_cuts(spark, seen, request, columns, table), properties=_access(seen)
    )
    if request.date_column is None:
        rows = rows.withColumn(TIME, F.lit(request.start))
    ((size,),) = seen.query("select coalesce(pg_total_relation_size(to_regclass(%s)), 0)", seen.text(table))
    return Source(rows, (TIME,), {"table": request.name}, int(size))


def _selected(
    seen: Snapshot, request: Request, table: sql.Identifier, column: str, kind: str, precision: int | None, scale: int | None
) -> sql.Composable:
    """A column as it is read: exact, of a type that Parquet has."""
    name = sql.Identifier(column)
    if kind in _AS_IT_IS:
        return name
    if kind == "timestamp":
        return sql.SQL("{} as {}").format(_utc(name, kind), name)
    if kind != "numeric":
        return sql.SQL("{0}::text as {0}").format(name)
    if precision is not None and scale is not None and 0 <= scale <= precision <= _MOST_DIGITS:
        return name
    ((scale, digits, strange),) = seen.query(_NUMBERS.format(name, table))
    if strange or digits + scale > _MOST_DIGITS:
        found = f"{strange} values that are no numbers" if strange else f"{digits} digits before the point and {scale} after it"
        raise LedgerError(f"{request.name}, column {column}: found {found}, expected numbers of at most {_MOST_DIGITS} digits")
    return sql.SQL("{0}::numeric({1}, {2}) as {0}").format(name, sql.Literal(digits + scale), sql.Literal(scale))


def _checked(option: str, column: str, columns: dict[str, Any], kinds: Iterable[str] | None) -> str:
    """The type of a column that an option names."""
    if column not in columns:
        raise SettingsError(f"{option}: found {column!r}, expected one of the table's columns: {', '.join(columns)}")
    kind = str(columns[column][0])
    if kinds is not None and kind not in kinds:
        raise SettingsError(f"{option}: found {column} of type {kind}, expected {', '.join(kinds)}")
    return kind


def _utc(name: sql.Identifier, kind: str) -> sql.Composable:
    """A date or time as a UTC time; those without a zone are UTC."""
    return sql.SQL("{}" if kind == "timestamptz" else "({}::timestamp at time zone 'UTC')").format(name)


def _in_ranges(column: str, kind: str, ranges: Iterable[Range]) -> sql.Composable:
    """The condition that the column, as it is stored so that an index serves, lies in one of the ranges."""
    name = sql.Identifier(column)
    parts = []
    for start, end in ranges:
        bounds = (_bound(start, kind, "-infinity"), _bound(end, kind, "infinity"))
        parts.append(sql.SQL("({0} >= {1} and {0} < {2})").format(name, *bounds))
    return sql.SQL("({})").format(sql.SQL(" or ").join(parts))


def _bound(time: datetime, kind: str, endless: str) -> sql.Composable:
    is_edge = time in ALWAYS
    cast = "timestamptz" if kind == "timestamptz" else "timestamp"
    text = endless if is_edge else time.isoformat() if kind == "timestamptz" else time.replace(tzinfo=None).isoformat()
    return sql.SQL("{}::" + cast).format(sql.Literal(text))


def _refuse_timeless(seen: Snapshot, request: Request, table: sql.Identifier) -> None:
    """No row vanishes in silence: an export of all rows has no place for those without a time."""
    if request.is_endless:
        name = sql.Identifier(request.date_column or "")
        ((missing,),) = seen.query(sql.SQL("select count(*) from {1} where {0} is null or not isfinite({0})").format(name, table))
        if missing:
            raise LedgerError(
                f"{request.name}: found {missing} rows without a finite {request.date_column}, expected one in each: "
                "give --start and --end to leave them out, or export without --date-column"
            )


def _cuts(spark: SparkSession, seen: Snapshot, request: Request, columns: dict[str, Any], table: sql.Identifier) -> list[str]:
    """Conditions that cut the table into parts of about the same size, one for each connection; without a column there is one part."""
    if request.partition_column is None:
        return ["true"]
    kind = _checked("--partition-column", request.partition_column, columns, None)
    name, parts = sql.Identifier(request.partition_column), 2 * spark.sparkContext.defaultParallelism
    ((found,),) = seen.query(_BOUNDS.format(name, table), [number / parts for number in range(1, parts)])
    bounds = [sql.SQL("{}::{}").format(sql.Literal(text), sql.Identifier(kind)) for text in dict.fromkeys(found or ())]
    if not bounds:
        return ["true"]
    first = sql.SQL("{0} < {1} or {0} is null").format(name, bounds[0])
    between = [sql.SQL("{0} >= {1} and {0} < {2}").format(name, *pair) for pair in pairwise(bounds)]
    return [seen.text(part) for part in (first, *between, sql.SQL("{0} >= {1}").format(name, bounds[-1]))]


def _jdbc_url(seen: Snapshot) -> str:
    info = seen.connection.info
    if not info.host or info.host.startswith("/"):
        raise SettingsError("LEDGER_POSTGRES_URL: found a socket, expected a host and a port: Spark connects by TCP")
    return f"jdbc:postgresql://{info.host}:{info.port}/{info.dbname}"


def _access(seen: Snapshot) -> dict[str, str]:
    """How Spark connects: as this connection did, and to its snapshot. The password is in none of Spark's settings."""
    info = seen.connection.info
    see = f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{seen.name}'"
    encryption = {name: info.dsn_parameters[name] for name in ("sslmode", "sslrootcert") if name in info.dsn_parameters}
    access = {"user": info.user, "password": info.password or "", "driver": "org.postgresql.Driver", **encryption}
    return access | {"fetchsize": str(_FETCHED), "sessionInitStatement": see}
