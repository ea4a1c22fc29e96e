"""SQL of the audit: `{name}` in a text stands for a frame or a value, `$name` for a piece of SQL that several tables share."""

from string import Template
from typing import Any

from pyspark.sql import DataFrame, SparkSession

PLACE = ("_topic", "_partition", "_offset")
ARRIVAL = ("_batch", *PLACE)
_AMOUNT = "cast(amount as decimal(38,2))"


def _start(seconds: int) -> str:
    """The start of the window of so many seconds, aligned to the epoch, that holds event_at."""
    return f"timestamp_seconds(unix_seconds(event_at) - pmod(unix_seconds(event_at), {seconds}))"


def _sum_of(kind: str) -> str:
    return f"cast(sum(if(type = '{kind}', {_AMOUNT}, cast(0 as decimal(38,2)))) as decimal(38,2))"


_SHARED = {
    "place": ", ".join(PLACE),
    "arrival": ", ".join(ARRIVAL),
    "last_arrival_first": ", ".join(f"{name} desc" for name in ARRIVAL),
    "content": "account_id, customer_id, event_at, type, operation, amount, balance",
    "sums": f"count(*) as transactions, cast(sum({_AMOUNT}) as decimal(38,2)) as amount",
    "by_type": f"{_sum_of('Credit')} as credits, {_sum_of('Debit')} as debits",
    "two_hours": _start(2 * 3600),
    "day": _start(86400),
    "week": _start(7 * 86400),
}


def query(spark: SparkSession, text: str, words: dict[str, str] | None = None, /, **frames: Any) -> DataFrame:
    """The answer to a text in which the pieces are filled in: those above, and `words`."""
    return spark.sql(Template(text).substitute(_SHARED | (words or {})), **frames)
