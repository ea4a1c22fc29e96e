"""SQL of the audit: `{name}` in a text stands for a frame or a value, `$name` for a piece of SQL that several tables share."""

from pathlib import Path
from string import Template
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.lake.tables import GOLD
from spark_jobs.runtime.errors import LedgerError

FOLDER = Path(__file__).parent / "gold"
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


def gold(spark: SparkSession, **inputs: Any) -> dict[str, DataFrame]:
    """Every gold table by name, from all rows of silver, by the query in its file `gold/<table>.sql`. Pure; times are UTC.

    `inputs` are what the queries name: the silver tables transactions, customers and accounts, and large_credit. Raises LedgerError for a
    table that has no query.
    """
    if missing := [table.name for table in GOLD if not (FOLDER / f"{table.name}.sql").exists()]:
        raise LedgerError(f"found no query of the audit for {', '.join(missing)}, expected {FOLDER}/<table>.sql for each table of gold")
    made = {}
    for table in GOLD:
        text = (FOLDER / f"{table.name}.sql").read_text(encoding="utf-8")
        named = {word: given for word, given in inputs.items() if f"{{{word}}}" in text}
        made[table.name] = query(spark, text, **named)
    return made
