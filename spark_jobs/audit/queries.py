"""SQL of the audit: `{name}` in a text stands for a frame or a value, `$name` for a piece of SQL that several tables share."""

from pathlib import Path
from string import Template
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.lake import functions
from spark_jobs.lake.tables import GOLD
from spark_jobs.runtime.errors import LedgerError

FOLDER = Path(__file__).parent
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
    "milliseconds": "-62135596800000 and 253402300799999",  # of the years 1 to 9999
    "sums": f"count(*) as transactions, cast(sum({_AMOUNT}) as decimal(38,2)) as amount",
    "by_type": f"{_sum_of('Credit')} as credits, {_sum_of('Debit')} as debits",
    "two_hours": _start(2 * 3600),
    "day": _start(86400),
    "week": _start(7 * 86400),
}


def query(spark: SparkSession, text: str, words: dict[str, str] | None = None, /, **frames: Any) -> DataFrame:
    """The answer to a text in which the pieces are filled in: those above, and `words`."""
    return spark.sql(Template(text).substitute(_SHARED | (words or {})), **frames)


def text_of(folder: str, name: str) -> str:
    """The query in a file of the audit; raises LedgerError where there is none."""
    file = FOLDER / folder / f"{name}.sql"
    if not file.exists():
        raise LedgerError(f"found no query of the audit for {name}, expected {file}")
    return file.read_text(encoding="utf-8")


def gold(spark: SparkSession, **inputs: Any) -> dict[str, DataFrame]:
    """Every gold table by name, from all rows of silver, by the query in its file `gold/<table>.sql`. Pure; times are UTC.

    `inputs` are what the queries name: the silver tables transactions, customers and accounts, and large_credit. Of a table that is
    declared in SQL it is the table's own SELECT, over all rows at once. Raises LedgerError for a table that has no query.
    """
    texts = {table.name: "" if table.query else text_of("gold", table.name) for table in GOLD}
    made: dict[str, DataFrame] = {}
    for table in GOLD:
        if table.query:  # may name another table of gold, too: that of the audit
            given = inputs | {name.replace(".", "_"): rows for name, rows in made.items()}
            functions.register(spark, table.query)
            made[table.name] = spark.sql(table.query, **{word: each for word, each in given.items() if f"{{{word}}}" in table.query})
            continue
        text = texts[table.name]
        named = {word: given for word, given in inputs.items() if f"{{{word}}}" in text}
        made[table.name] = query(spark, text, **named)
    return made
