"""The functions for SQL that run in Python: what they give, for whatever rows; and that a worker needs nothing of this checkout."""

import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from spark_jobs.lake import functions
from spark_jobs.lake.functions import AMOUNT, SplitWords, TopAmounts, exact_quantiles

MOST = "9999999999999999.99"  # two of these are one double


def amounts(*texts: str | None) -> pa.Array:
    return pa.array([None if text is None else Decimal(text) for text in texts], AMOUNT)


def quantiles(of: pa.Array, *fractions: Any) -> list[str | None] | None:
    """Of fractions as a query has them: the same list in each row."""
    found = exact_quantiles(of, pa.array([list(fractions)] * len(of)))
    return None if found is None else [None if each is None else str(each) for each in found]


def words(*rows: tuple[str | None, str | None]) -> list[tuple[Any, ...]]:
    ids, texts = zip(*rows, strict=True)
    (found,) = SplitWords().eval(pa.record_batch({"id": pa.array(ids, pa.string()), "text": pa.array(texts, pa.string())}))
    assert found.schema.types == [pa.string(), pa.int32(), pa.string()]
    return [tuple(row.values()) for row in found.to_pylist()]


def top(*batches: tuple[str | None, pa.Array]) -> list[tuple[Any, ...]]:
    function = TopAmounts()
    for account, of in batches:
        assert not list(function.eval(pa.record_batch({"account": pa.array([account] * len(of), pa.string()), "amount": of})))
    (found,) = function.terminate()
    assert found.schema.types == [pa.string(), pa.int32(), AMOUNT]
    return [tuple(row.values()) for row in found.to_pylist()]


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [(Decimal("0"), "1.00"), (Decimal("0.25"), "1.00"), (Decimal("0.26"), "2.00"), (Decimal("0.5"), "2.00"), (Decimal("1"), "4.00")],
)
def test_a_quantile_is_the_smallest_amount_that_so_many_do_not_exceed(fraction: Decimal, expected: str) -> None:
    assert quantiles(amounts("4.00", "1.00", None, "3.00", "2.00"), fraction, None) == [expected, None]


def test_a_fraction_counts_as_it_is_written() -> None:
    """0.07 * 100 is 7.000000000000001 in doubles: the eighth of a hundred amounts, where the seventh is asked for."""
    hundred = amounts(*(f"{number}.00" for number in range(1, 101)))
    assert quantiles(hundred, 0.07) == quantiles(hundred, Decimal("0.07")) == ["7.00"]


def test_amounts_that_are_one_double_stay_apart() -> None:
    assert quantiles(amounts(MOST, "9999999999999999.98", "-0.01"), 0.5, 1) == ["9999999999999999.98", MOST]


def test_without_amounts_or_fractions_there_is_no_quantile() -> None:
    assert quantiles(amounts(None, None), 0.5) is None
    assert exact_quantiles(amounts("1.00"), pa.array([None], pa.list_(pa.float64()))) is None
    assert quantiles(amounts("1.00")) == []


@pytest.mark.parametrize(
    ("of", "fractions", "message"),
    [
        (pa.array([1.5]), [[0.5]], r"found amounts of type double, expected decimal\(18,2\): cast them"),
        (amounts("1.00"), [[1.5]], "found the fraction 1.5, expected one from 0 to 1"),
        (amounts("1.00"), [[float("nan")]], "found the fraction nan, expected one from 0 to 1"),
        (amounts("1.00", "2.00"), [[0.5], [0.6]], "found fractions that change from row to row"),
    ],
)
def test_what_makes_no_sense_is_refused(of: pa.Array, fractions: list[list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        exact_quantiles(of, pa.array(fractions))


def test_words_are_split_at_blanks_and_counted_within_their_text() -> None:
    found = words(("1", "  Credit in  Cash "), ("2", None), ("3", ""), ("4", "  "), (None, "é😀 x"), ("5", "a\tb\u00a0c"), ("6", "x"))
    assert found == [
        *(("1", 1, "Credit"), ("1", 2, "in"), ("1", 3, "Cash")),
        *((None, 1, "é😀"), (None, 2, "x"), ("5", 1, "a\tb\u00a0c"), ("6", 1, "x")),
    ]
    assert words(("1", None)) == []


def test_a_huge_text_gives_all_of_its_words() -> None:
    found = words(("1", "w " * 1_000_000 + "x" * 1_000_000))
    assert (len(found), found[-1][1], len(found[-1][2])) == (1_000_001, 1_000_001, 1_000_000)


def test_the_two_largest_amounts_of_an_account_come_out_whatever_the_batches() -> None:
    assert top(("A", amounts("1.00", None, "3.00")), ("A", amounts()), ("A", amounts("3.00", "-1.00"))) == [
        ("A", 1, Decimal("3.00")),
        ("A", 2, Decimal("3.00")),
    ]
    assert top(("A", amounts("-5.00"))) == [("A", 1, Decimal("-5.00"))]
    assert top(("A", amounts(None))) == top() == []
    assert top((None, amounts(MOST))) == [(None, 1, Decimal(MOST))]


def test_rows_of_several_accounts_together_are_refused() -> None:
    with pytest.raises(ValueError, match="found rows of several accounts together, expected PARTITION BY account_id"):
        top(("A", amounts("1.00")), ("B", amounts("1.00")))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (SplitWords, "split_words: found a table of n int64, expected id string, text string"),
        (TopAmounts, r"top_amounts: found a table of n int64, expected account_id string, amount decimal\(18,2\)"),
    ],
)
def test_a_table_of_other_columns_is_refused(function: type[SplitWords | TopAmounts], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(function().eval(pa.record_batch({"n": pa.array([1])})))
    with pytest.raises(ValueError, match="found a table of string, expected"):
        list(function().eval(pa.array(["a"])))


def test_a_worker_needs_nothing_of_this_checkout(tmp_path: Path) -> None:
    """Those of a cluster do not have it."""
    functions.send_with_queries()
    sent = tmp_path / "sent"
    pickling: Any = cloudpickle
    sent.write_bytes(pickling.dumps((SplitWords, TopAmounts, exact_quantiles)))
    code = "import pickle, sys; print([each.__name__ for each in pickle.load(open(sys.argv[1], 'rb'))])"
    done = subprocess.run([sys.executable, "-c", code, str(sent)], cwd="/", capture_output=True, text=True, check=False)
    assert done.stdout == "['SplitWords', 'TopAmounts', 'exact_quantiles']\n", done.stderr
