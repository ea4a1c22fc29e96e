"""gold.live_debit_share: the debits' share of all transactions up to each day, by the streams of debits and of credits.

Spark joins the two streams by a union, and counts both by day; a day is closed by the watermark. The counts of all days before are
state that both streams share: Spark's aggregates in append mode have none that is never closed. So it is a transformWithState of a row a
day.
"""

from collections.abc import Iterator
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

import pandas as pd
from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from spark_jobs.lake.tables import LIVE_DEBIT_SHARE
from spark_jobs.live.declaration import LiveQuery
from spark_jobs.live.watermarks import hide_type

STATE = "counts"  # the name of the state variable
SCHEMA = "debits bigint, credits bigint"
_OUTPUT = "day date, debits bigint, credits bigint, debit_share_percent decimal(7,4)"
_PRECISION = Decimal("0.0001")


class Day(NamedTuple):
    """How many debits and credits a day has."""

    day: date
    debits: int
    credits: int


class Counts(NamedTuple):
    """How many debits and credits came on all days so far."""

    debits: int = 0
    credits: int = 0


class Share(NamedTuple):
    """A row of gold.live_debit_share."""

    day: date
    debits: int
    credits: int
    debit_share_percent: Decimal


def step(counts: Counts, day: Day) -> tuple[Counts, Share]:
    """The counts after a day, which has a transaction and comes after all days before, and the share up to it, rounded half up."""
    debits, others = counts.debits + day.debits, counts.credits + day.credits
    percent = (Decimal(100 * debits) / Decimal(debits + others)).quantize(_PRECISION, ROUND_HALF_UP)
    return Counts(debits, others), Share(day.day, debits, others, percent)


class Sharing(StatefulProcessor):
    """Loads the counts, steps through the days that a micro-batch closes, stores them. Spark calls the methods by these names."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Before the first row."""
        self._state = handle.getValueState(STATE, SCHEMA)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """The days that a micro-batch closes; the share up to each of them."""
        found = self._state.get()
        counts, shares = Counts(*found) if found is not None else Counts(), list[Share]()
        days = (Day(*row) for frame in rows for row in zip(*(frame[name].tolist() for name in Day._fields), strict=True))
        for day in sorted(days):
            counts, share = step(counts, day)
            shares.append(share)
        self._state.update(tuple(counts))
        yield pd.DataFrame(shares, columns=list(Share._fields))

    def close(self) -> None:
        """After the last row."""


def debit_share(debits_from: DataFrame, credits_from: DataFrame) -> DataFrame:
    """gold.debit_share as a stream, of rows of gold.live_transactions with a watermark: of the one its debits, of the other its credits."""
    debits, others = (
        hide_type(rows).where(F.col("type") == kind).select("event_at", "type")
        for rows, kind in ((debits_from, "Debit"), (credits_from, "Credit"))
    )
    counts = (
        debits.union(others).groupBy(F.window("event_at", "1 day")).agg(_count("Debit").alias("debits"), _count("Credit").alias("credits"))
    )
    days = counts.select(F.lit("bank").alias("scope"), F.to_date(F.col("window")["start"]).alias("day"), "debits", "credits")
    return days.groupBy("scope").transformWithStateInPandas(Sharing(), _OUTPUT, "append", "None")


def _count(kind: str) -> Column:
    return F.count(F.when(F.col("type") == kind, 1))  # count_if has another text with each start: its state would not be known again


QUERY = LiveQuery(
    LIVE_DEBIT_SHARE,
    lambda read: debit_share(read("live_debits"), read("live_credits")),
    {"state": f"{STATE}: {SCHEMA}", "window": "tumbling, 1 day"},
    sources=("live_debits", "live_credits"),
)
