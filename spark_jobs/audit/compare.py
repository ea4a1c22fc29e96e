"""Compares two frames of one table both ways, row by row and column by column, and describes the differences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pyspark.sql import Column, DataFrame, Row, SparkSession, functions as F
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField

from spark_jobs.audit.queries import query
from spark_jobs.lake.sources import with_columns_of
from spark_jobs.lake.tables import Table
from spark_jobs.runtime.errors import AuditDifference
from spark_jobs.runtime.text import quoted

SHOWN = 10  # rows of a table that are printed
_PLACE = ("_topic", "_partition", "_offset")
# Texts that are not personal: coordinates and our own words. Of other texts only ids and the two types are shown, of the rest the length.
_OURS = ("_topic", "first_topic", "customer_status")
_HARMLESS = r"^([A-Z][0-9]{1,18}|Credit|Debit)\z"
_PERSONAL = ("birth_date",)

# Every distinct row, with how often it is expected and found.
_COUNTED = """
    select $columns, sum(is_expected) as _expected, sum(is_found) as _found
    from (select $columns, 1 as is_expected, 0 as is_found from {expected}
        union all select $columns, 0 as is_expected, 1 as is_found from {found})
    group by $columns"""
_SUMS = """
    select coalesce(sum(_found), 0), coalesce(sum(greatest(_expected - _found, 0)), 0), coalesce(sum(greatest(_found - _expected, 0)), 0)
    from {counted}"""


@dataclass(frozen=True)
class Comparison:
    """What a table holds (`rows`), how many rows are missing and how many are unexpected, and some of these as text."""

    rows: int
    missing: int = 0
    unexpected: int = 0
    examples: tuple[str, ...] = ()

    @property
    def differences(self) -> int:
        """Rows that are missing or unexpected; a row that differs in a column is both."""
        return self.missing + self.unexpected


def compare(spark: SparkSession, table: Table, expected: DataFrame, found: DataFrame) -> Comparison:
    """Compare all columns of a table; null is a value, and how often a row occurs counts. The examples hold no personal values."""
    if lacking := [name for name in table.columns if name not in expected.columns]:
        raise AuditDifference(f"{table.name}: found {', '.join(lacking)}, expected only columns that its audit query makes: correct either")
    columns = ", ".join(quoted(table.columns))
    counted = query(spark, _COUNTED, {"columns": columns}, expected=expected, found=with_columns_of(table, found))
    rows, missing, unexpected = query(spark, _SUMS, counted=counted).collect()[0]
    examples = _examples(table, counted.where("_expected <> _found")) if missing + unexpected else ()
    return Comparison(rows, missing, unexpected, tuple(examples))


def _examples(table: Table, different: DataFrame) -> Iterator[str]:
    """The first rows by the table's keys, each in a line: what was expected and what was found."""
    fields = [field for field in different.schema.fields if field.name in table.columns]
    shown = F.array(*map(_shown, fields)).alias("shown")
    hashes = F.array(*(F.xxhash64(field.name) for field in fields)).alias("hashes")  # values that are not shown may differ
    key = F.array(*(F.coalesce(F.col(name).cast("string"), F.lit("null")) for name in table.keys)).alias("key")
    ordered = different.select(key, shown, hashes, "_expected", "_found", *table.keys).orderBy(*table.keys, "_found").limit(4 * SHOWN)
    rows = ordered.drop(*table.keys).collect()  # as texts, because Python cannot represent all dates and times
    groups = [list(of_key) for _, of_key in groupby(rows, key=lambda row: row["key"])]
    for group in groups[:SHOWN]:
        yield _example(table, [field.name for field in fields], group)


def _example(table: Table, columns: Sequence[str], rows: Sequence[Row]) -> str:
    first = dict(zip(columns, rows[0]["shown"], strict=True))
    keys = ", ".join(f"{name} {first[name]}" for name in table.keys)
    expected, found = ([row for row in rows if row[name]] for name in ("_expected", "_found"))
    if [row["_expected"] for row in expected] == [row["_found"] for row in found] == [1]:
        should, is_ = expected[0], found[0]
        numbers = [number for number in range(len(columns)) if should["hashes"][number] != is_["hashes"][number]]
        changes = [f"{columns[number]} {is_['shown'][number]}, expected {should['shown'][number]}" for number in numbers]
        return f"{keys}: found {'; '.join(changes)}"
    rest = [name for name in columns if name not in table.keys]
    times = {name: sum(row[name] for row in rows) for name in ("_expected", "_found")}
    details = "; ".join(
        ", ".join(f"{name} {value}" for name, value in zip(columns, row["shown"], strict=True) if name in rest) for row in rows
    )
    return f"{keys}: found {_times(times['_found'])}, expected {_times(times['_expected'])}: {details}"


def _times(count: int) -> str:
    return {0: "no such row", 1: "one row"}.get(count, f"{count} rows")


def _shown(field: StructField) -> Column:
    """A value as it may be shown."""
    column, text = F.col(field.name), F.col(field.name).cast("string")
    if isinstance(field.dataType, BinaryType):
        text = F.concat(F.length(column).cast("string"), F.lit(" bytes"))
    elif isinstance(field.dataType, ArrayType):
        text = F.concat(F.lit("["), F.array_join(column, ", "), F.lit("]"))
    elif field.name in _PERSONAL:
        text = F.when(column.isNotNull(), F.lit("a date (not shown)"))
    elif isinstance(field.dataType, StringType) and field.name not in _OURS:
        hidden = F.concat(F.lit("a text of "), F.length(column).cast("string"), F.lit(" characters (not shown)"))
        text = F.when(column.rlike(_HARMLESS), column).otherwise(hidden)
    return F.coalesce(text, F.lit("null"))
