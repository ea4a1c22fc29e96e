"""The SELECT of a gold table that is declared in SQL: run over silver rows, and what is known of it only when Spark runs it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from spark_jobs.gold.strategies import Inputs, Parts, Region, Strategy
from spark_jobs.lake import functions
from spark_jobs.lake.kept import kept
from spark_jobs.lake.table import Table
from spark_jobs.runtime.errors import LedgerError, first_line
from spark_jobs.runtime.late_spark import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Make = Callable[["DataFrame"], "DataFrame"]
PARTS_TRIED = 10
# In the text of a plan; Spark calls a plan with these aggregates deterministic.
_OF_ORDER = re.compile(r"\b(first|first_value|last|last_value|any_value|collect_list|array_agg|listagg)\(")


@dataclass(frozen=True)
class Select:
    """A SELECT with `{transactions}` and the placeholders of `reads`; `columns` are the names and types that its file declares.

    It begins in `line` of the file.
    """

    file: str
    query: str
    columns: tuple[tuple[str, str], ...]
    reads: Mapping[str, Table]
    line: int

    def made(self, rows: DataFrame, inputs: Inputs) -> DataFrame:
        """The table of some silver rows. Raises LedgerError as `of` does."""
        return self.of(rows, {name: inputs.read(table) for name, table in self.reads.items()})

    def of(self, rows: DataFrame, others: Mapping[str, DataFrame] = MappingProxyType({})) -> DataFrame:
        """The table of some rows of transactions, which may be a stream, and of what else it reads.

        Raises LedgerError where the SELECT does not run, gives other columns, or depends on chance.
        """
        frames: dict[str, Any] = {**others, "transactions": rows}
        try:
            functions.register(rows.sparkSession, self.query)
            made = rows.sparkSession.sql(self.query, **frames)
        except Exception as error:
            place = re.search(r"\bline (\d+),? pos \d+", str(error))
            file = f"{self.file}:{self.line + int(place[1]) - 1}" if place else self.file
            raise LedgerError(f"{file}: the SELECT does not run: {said(error)}") from error
        found = {field.name: field.dataType.simpleString() for field in made.schema.fields}
        if found != dict(self.columns) or len(made.columns) != len(self.columns):
            names = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in made.schema.fields)
            expected = ", ".join(f"{name} {kind}" for name, kind in self.columns)
            raise LedgerError(f"{self.file}: found a SELECT of {names}, expected the columns of the header: {expected}")
        plan: Any = made._jdf.queryExecution().analyzed()
        now: Any = rows.sparkSession._jvm
        is_of_time = plan.containsPattern(now.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE())
        if not plan.deterministic() or is_of_time or _OF_ORDER.search(plan.toString()):
            raise LedgerError(
                f"{self.file}: found a function whose value depends on the time, on chance or on the order of rows (such as now, rand, "
                "first or collect_list), expected a SELECT that makes the same rows of the same rows: it is run again"
            )
        return made


def said(error: Exception) -> str:
    """What Spark says of a SELECT in one line, without the made-up name of {transactions}."""
    line = re.sub(r"`?_pyspark_[0-9a-f]{32}`?", "{transactions}", first_line(error), flags=re.IGNORECASE)
    return line.partition(" SQLSTATE")[0].rstrip(" .;:")


@dataclass(frozen=True)
class Part:
    """What a change touches: the rows of silver with one value of `of`, an expression; the column `name` of the table has that value.

    `carried` are columns that a row of the table has from the silver rows it is made of.
    """

    name: str
    of: str
    carried: tuple[str, ...]
    header: str


@dataclass(frozen=True)
class Selected(Strategy):
    """A strategy whose rows a SELECT makes. `part` is None where a change touches all rows."""

    select: Select
    geometry: Callable[[Make], Strategy]
    part: Part | None

    def whole(self, table: Table, inputs: Inputs) -> DataFrame:
        """The whole table, by the strategy. Raises LedgerError as `rebuilt` does."""
        if self.part is not None:
            self._try(self.part, table, inputs)
        return self.geometry(lambda rows: self.select.made(rows, inputs)).whole(table, inputs)

    def rebuilt(self, table: Table, region: Region, inputs: Inputs) -> Parts:
        """The parts, by the strategy. Raises LedgerError, before anything is written, for a SELECT that is not of the parts it touches.

        That is tried on the first parts of silver for as long as the table has few.
        """
        if self.part is not None and inputs.read(table).select(self.part.name).distinct().limit(PARTS_TRIED).count() < PARTS_TRIED:
            self._try(self.part, table, inputs)
        return self.geometry(lambda rows: self.select.made(rows, inputs)).rebuilt(table, region, inputs)

    def _try(self, part: Part, table: Table, inputs: Inputs) -> None:
        """Over some parts together and over every second of them the SELECT makes the same rows, and each from its part's own rows."""
        value = F.expr(part.of)
        first = inputs.silver().select(value.alias("part")).distinct().orderBy("part").limit(PARTS_TRIED)
        # Compared as texts: Python does not have all times.
        names = [row[0] for row in first.select(F.col("part").cast("string")).collect()]
        rows = inputs.silver().where(value.cast("string").isin(names)).transform(kept)
        made = self.select.made(rows, inputs)
        halves = [self.select.made(rows.where(value.cast("string").isin(names[start::2])), inputs) for start in (0, 1)]
        own = rows.select(value.alias(part.name), *part.carried[1:]).distinct()
        self._refuse(made.join(own, on=list(part.carried), how="left_anti"), table, f"the {', '.join(part.carried)} of no row of silver")
        counted = [made.withColumn("_n", F.lit(1)), *(half.withColumn("_n", F.lit(-1)) for half in halves)]
        sums = reduce(lambda one, other: one.unionByName(other), counted).groupBy(*table.columns).agg(F.sum("_n").alias("_n"))
        self._refuse(sums.where("_n <> 0"), table, "another content when the SELECT runs over neighbouring parts together and one by one")

    def _refuse(self, wrong: DataFrame, table: Table, fault: str) -> None:
        shown: list[Column] = [F.concat(F.lit(f"{name} "), F.coalesce(F.col(name).cast("string"), F.lit("null"))) for name in table.keys]
        found = wrong.select(F.concat_ws(", ", *shown)).limit(1).collect()
        if found and self.part is not None:
            raise LedgerError(
                f"{self.select.file}: found a row ({found[0][0]}) with {fault}, expected that it is made of the rows of one part only, "
                f"because the header says: touches: {self.part.header}"
            )
