"""Functions for Spark SQL, beside those that Spark brings: what they compute, and how a session gets them (include/docs/functions.md).

What SQL can say is an SQL function, which costs what its text costs. The others run in Python, on Arrow's columns.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TO_BE_MASKED = "(?<=[^ ])[^ ]"  # of a name: all but the first letter of each word; words are split at blanks
AMOUNT = pa.decimal128(18, 2)
TOP = 2


def register(spark: SparkSession, query: str) -> None:
    """Give a session the functions that the text of a query names, as temporary ones; a session needs no others.

    They hide functions of the same names that the catalog may have.
    """
    for name, define in _DEFINED.items():
        if re.search(rf"\b{name}\s*\(", query, re.IGNORECASE):
            define(spark, name)


def exact_quantiles(amounts: pa.Array, fractions: pa.Array) -> list[Decimal | None] | None:
    """Of each fraction f the smallest amount that at least f of all amounts do not exceed: no double, and no value between two amounts.

    Null amounts do not count; without amounts, or where `fractions` is null, the result is null, and that of a fraction that is null.
    Raises ValueError for amounts that are not decimal(18,2), and fractions that are not from 0 to 1 or not those of every row.
    """
    if amounts.type != AMOUNT:
        raise ValueError(f"exact_quantiles: found amounts of type {amounts.type}, expected decimal(18,2): cast them")
    asked = fractions[0].as_py()
    if not fractions[1:].equals(fractions[:-1]):
        raise ValueError("exact_quantiles: found fractions that change from row to row, expected the same of all rows")
    if wrong := [each for each in asked or () if each is not None and not 0 <= float(each) <= 1]:
        raise ValueError(f"exact_quantiles: found the fraction {wrong[0]}, expected one from 0 to 1")
    known = amounts.drop_null()
    if asked is None or not len(known):
        return None
    ranks = [None if each is None else int((Decimal(str(each)) * len(known)).to_integral_value(ROUND_CEILING)) for each in asked]
    places = pa.array([None if rank is None else max(rank - 1, 0) for rank in ranks], pa.int64())
    return list(known.take(pc.array_sort_indices(known).take(places)).to_pylist())


class SplitWords:
    """`split_words(TABLE(SELECT id, text ...))`: a row for each word of a text, with its place, from 1, and the id that came with the text.

    Words are split at blanks; of an empty text, one of blanks only, or null no row comes out.
    """

    def eval(self, rows: pa.RecordBatch) -> Iterator[pa.Table]:
        """The words of some texts. Raises ValueError for other columns than two of type string."""
        _check(rows, "split_words", "id string, text string", (pa.string(), pa.string()))
        pieces = pc.split_pattern(rows.column(1), " ")
        words, of = pc.list_flatten(pieces), pc.list_parent_indices(pieces)
        is_word = pc.not_equal(words, "")
        words, of = words.filter(is_word), of.filter(is_word)
        numbers = of.to_numpy(zero_copy_only=False)
        places = np.arange(len(numbers)) - np.searchsorted(numbers, numbers) + 1
        yield pa.table({"id": rows.column(0).take(of), "position": pa.array(places, pa.int32()), "word": words})


class TopAmounts:
    """`top_amounts(TABLE(SELECT account_id, amount ...) PARTITION BY account_id)`: the two largest amounts of each account, as rows.

    `rank` is 1 for the largest; of equal amounts each is one. Null amounts do not count: of an account with no other comes no row.
    """

    def __init__(self) -> None:
        self._account: pa.Array = pa.array([], pa.string())
        self._top: pa.Array = pa.array([], AMOUNT)

    def eval(self, rows: pa.RecordBatch) -> Iterator[pa.Table]:
        """Take some rows. Raises ValueError for rows of several accounts, and for other columns than a string and a decimal(18,2)."""
        _check(rows, "top_amounts", "account_id string, amount decimal(18,2)", (pa.string(), AMOUNT))
        self._account = pa.concat_arrays([self._account, rows.column(0)]).unique()
        if len(self._account) > 1:
            raise ValueError("top_amounts: found rows of several accounts together, expected PARTITION BY account_id after the table")
        amounts = pa.concat_arrays([self._top, rows.column(1).drop_null()])
        self._top = amounts.take(pc.array_sort_indices(amounts, order="descending")[:TOP])
        yield from ()

    def terminate(self) -> Iterator[pa.Table]:
        """The rows of the account."""
        ranks = pa.array(range(1, len(self._top) + 1), pa.int32())
        account = self._account.take(pa.array([0] * len(self._top), pa.int32()))
        yield pa.table({"account_id": account, "rank": ranks, "amount": self._top})


def _check(rows: pa.RecordBatch | pa.Array, name: str, expected: str, types: tuple[pa.DataType, ...]) -> None:
    schema = rows.schema if isinstance(rows, pa.RecordBatch) else pa.schema({"": rows.type})
    if tuple(schema.types) != types:
        found = ", ".join(f"{each.name} {each.type}".strip() for each in schema)
        raise ValueError(f"{name}: found a table of {found}, expected {expected}")


def _mask_name(spark: SparkSession, name: str) -> None:
    spark.sql(f"create or replace temporary function {name}(name string) returns string return regexp_replace(name, '{TO_BE_MASKED}', '*')")


def _exact_quantiles(spark: SparkSession, name: str) -> None:
    from pyspark.sql import functions as f

    send_with_queries()
    spark.udf.register(name, f.arrow_udf(exact_quantiles, "array<decimal(18,2)>"))  # type: ignore[attr-defined] # Spark's types lack it


def _table_function(handler: type, returns: str) -> Callable[[SparkSession, str], None]:
    def define(spark: SparkSession, name: str) -> None:
        from pyspark.sql.functions import arrow_udtf
        from pyspark.sql.udtf import UserDefinedTableFunction

        send_with_queries()
        made = cast(UserDefinedTableFunction, arrow_udtf(handler, returnType=returns))
        spark.udtf.register(name, made.asDeterministic())

    return define


def send_with_queries() -> None:
    """Make Spark send this module with what runs in Python workers: those of a cluster do not have it."""
    from pyspark import cloudpickle

    pickling: Any = cloudpickle  # a library without types
    pickling.register_pickle_by_value(sys.modules[__name__])


_DEFINED: dict[str, Callable[[SparkSession, str], None]] = {
    "mask_name": _mask_name,
    "split_words": _table_function(SplitWords, "id string, position int, word string"),
    "exact_quantiles": _exact_quantiles,
    "top_amounts": _table_function(TopAmounts, "account_id string, rank int, amount decimal(18,2)"),
}
NAMES = tuple(_DEFINED)
